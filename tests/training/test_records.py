"""metrics.csv and config.json: what was written is read, whatever happened to the file since."""

import numpy as np
import pytest

from labkit.config import SACConfig
from labkit.errors import ParameterError
from labkit.training import records
from labkit.training.records import read_config, read_metrics
from labkit.training.run import Run, open_run


@pytest.fixture
def run(tmp_path):
    """A run with rows at the gradient steps 10 to 50, an evaluation with two episodes at 30."""
    run = open_run(tmp_path / "run", SACConfig(num_iterations=50))
    for step in range(10, 60, 10):
        row = {"env_step": 300 + step, "gradient_step": step, "wall_seconds": step / 8}
        run.log(**row, critic_loss=1 / step, alpha=0.5)
        if step == 30:
            run.log(**row, eval_return=1.5, eval_returns=(1, 2), eval_distances=(0.5, 3.25))
    return run


def steps(path):
    return read_metrics(path).gradient_step.tolist()


def test_rows_come_back_as_written(run):
    table = run.metrics()
    assert table.gradient_step.tolist() == [10, 20, 30, 30, 40, 50]
    assert table.env_step.dtype == table.gradient_step.dtype == int
    assert table.critic_loss.dropna().tolist() == [1 / 10, 1 / 20, 1 / 30, 1 / 40, 1 / 50]
    assert table.eval_returns.tolist() == [(), (), (), (1.0, 2.0), (), ()]
    assert table.eval_distances[3] == (0.5, 3.25)
    assert np.isnan(table.eval_return[0])
    run.log(env_step=360, gradient_step=60, wall_seconds=9, eval_distances=(np.nan,))
    np.testing.assert_array_equal(run.metrics().eval_distances[6], (np.nan,))


def test_a_new_name_becomes_a_column(run):
    run.log(env_step=360, gradient_step=60, wall_seconds=9, td_error=4.0)
    table = run.metrics()
    assert list(table.columns[:6]) == [*records.FIRST, "critic_loss", "alpha", "td_error"]
    assert list(table.columns[6:]) == records.LAST
    assert table.td_error.dropna().tolist() == [4.0]
    assert table.critic_loss.notna().sum() == 5, "the rows before are as they were"


def test_each_row_goes_to_on_metrics(run):
    got = []
    run.on_metrics = got.append
    run.log(env_step=360, gradient_step=60, wall_seconds=9, critic_loss=0.25)
    assert got == [{"env_step": 360, "gradient_step": 60, "wall_seconds": 9, "critic_loss": 0.25}]


@pytest.mark.parametrize("kept", range(60, 400, 37))
@pytest.mark.parametrize("end", [b"", bytes(50), bytes(20) + b"\n1,2"])
def test_every_whole_row_of_a_cut_file_is_read_and_kept(run, kept, end):
    file = run.path / "metrics.csv"
    data = file.read_bytes()
    header = data.index(b"\n") + 1
    file.write_bytes(data[: header + kept] + end)
    whole = data[header : header + kept].count(b"\n")
    assert steps(run.path) == [10, 20, 30, 30, 40, 50][:whole]
    records.cut(run.path, 50)
    run.log(env_step=360, gradient_step=60, wall_seconds=9, critic_loss=1.0)
    assert steps(run.path) == [*[10, 20, 30, 30, 40, 50][:whole], 60]


@pytest.mark.parametrize("line", ["1,2", "x,20,1,,,,,,", "\0\0\0", ",20,1,0.1,,,,,", '"'])
def test_a_damaged_row_is_left_out_with_a_message(run, line, capsys):
    file = run.path / "metrics.csv"
    header, first, *rows = file.read_text().splitlines()
    file.write_text("\n".join([header, first, line, *rows]) + "\n")
    assert steps(run.path) == [10, 20, 30, 30, 40, 50]
    records.cut(run.path, 50)
    assert capsys.readouterr().out == f"{file} has 1 damaged rows, which are left out\n"
    assert steps(run.path) == [10, 20, 30, 30, 40, 50]


def as_spreadsheet(data, kind):
    text = data.decode().replace("\r\n", "\n")
    lines = [line.split(",") for line in text.splitlines()]
    if kind == "quotes":
        lines = [[f'"{cell}"' for cell in line] for line in lines]
    if kind == "floats":
        lines = [lines[0], *([f"{line[0]}.0", f"{line[1]}.00", *line[2:]] for line in lines[1:])]
    if kind == "decimal comma":
        lines = [[cell.replace(".", ",") for cell in line] for line in lines]
    separator = {"tabs": "\t", "semicolons": ";", "decimal comma": ";"}.get(kind, ",")
    end = "\r\n" if kind == "line ends" else "\n"
    mark = "\ufeff" if kind == "mark" else ""
    return (mark + end.join(separator.join(line) for line in lines) + end).encode()


KINDS = ["mark", "line ends", "semicolons", "decimal comma", "tabs", "quotes", "floats"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_spreadsheet_saved_is_read_and_a_resumed_run_appends_to_it(run, kind):
    file, before = run.path / "metrics.csv", run.metrics()
    file.write_bytes(as_spreadsheet(file.read_bytes(), kind))
    assert run.metrics().equals(before)
    records.cut(run.path, 50)
    run.log(env_step=360, gradient_step=60, wall_seconds=9, critic_loss=1.0)
    assert run.metrics()[:-1].equals(before)


def test_rows_after_the_checkpoint_are_dropped_and_a_lost_file_begins_again(run, capsys):
    records.cut(run.path, 30)
    assert steps(run.path) == [10, 20, 30, 30]
    for lose in (lambda file: file.unlink(), lambda file: file.write_bytes(bytes(500))):
        lose(run.path / "metrics.csv")
        records.cut(run.path, 30)
        assert steps(run.path) == []
        assert "was removed or emptied: it begins again here" in capsys.readouterr().out


def test_without_a_checkpoint_the_former_rows_are_set_aside(run, capsys):
    records.cut(run.path, -1)
    assert steps(run.path) == []
    aside = run.path / "metrics-1.csv"
    assert f"its former rows are in {aside}" in capsys.readouterr().out
    assert aside.read_text().count("\n") == 7


DAMAGES = {
    "empty": (b"", "damaged"),
    "noise": (b"\x00\xff\xfe" * 30, "damaged"),
    "no steps": (b"env_step,wall_seconds\n1,2\n", "lacks the column gradient_step"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_what_cannot_be_read_is_one_line(run, kind):
    content, message = DAMAGES[kind]
    (run.path / "metrics.csv").write_bytes(content)
    with pytest.raises(ParameterError, match=message) as error:
        read_metrics(run.path)
    assert "\n" not in str(error.value)


CONFIGS = {
    "missing": (None, "No such file"),
    "text": ("{", "damaged"),
    "list": ("[]", "damaged"),
    "other format": ('{"format": 7, "config": {}}', "format 7"),
    "value": ('{"format": 1, "config": {"gamma": 3}}', "`gamma` must be"),
    "name": ('{"format": 1, "config": {"gama": 0.9}}', "gama"),
    "deep": ("[" * 100_000, "damaged"),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_damaged_configuration_is_one_line(run, kind):
    content, message = CONFIGS[kind]
    file = run.path / "config.json"
    file.unlink()
    if content is not None:
        file.write_text(content)
    with pytest.raises(ParameterError, match=message) as error:
        read_config(run.path)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_the_configuration_says_what_made_the_run(tmp_path):
    run = open_run(tmp_path, SACConfig(gamma=0.9))
    content = records.read_content(run.path)
    assert read_config(run.path) == run.config
    assert content["versions"]["tensorflow"] == "2.15.1"
    assert content["commit"] is None or len(content["commit"].removesuffix("-dirty")) == 40


def test_a_link_in_place_of_an_unfinished_file_is_not_followed(tmp_path):
    (tmp_path / "mine").write_text("precious")
    (tmp_path / ".config.json.partial").symlink_to(tmp_path / "mine")
    Run(tmp_path, SACConfig()).write_config()
    assert (tmp_path / "mine").read_text() == "precious"
    assert read_config(tmp_path) == SACConfig()
