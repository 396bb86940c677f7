"""metrics.csv: what is whole is read and kept, whatever happened to the file."""

import codecs
import math
from pathlib import Path

import pytest
from labkit.sac.evaluation import Evaluation

from labkit.config import SACConfig
from labkit.errors import ParameterError
from labkit.training import files, metrics
from labkit.training.run import choose_directory, open_run


@pytest.fixture
def run(tmp_path):
    """A run with rows at the steps 10, 20 and 30."""
    run = open_run(tmp_path / "run", SACConfig())
    for step in (10, 20, 30):
        run.log(env_step=step, gradient_step=step, critic_loss=0.125, wall_seconds=step / 10)
    return run


def steps(run):
    return run.metrics().gradient_step.tolist()


def test_a_file_that_lost_its_end_is_repaired_and_never_extended(run):
    """A power failure: the checkpoint remembers more bytes than the disk kept."""
    file, length = run.path / "metrics.csv", run.sync_metrics()
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])
    lost = run.cut_metrics(length, step=30)
    assert lost == (
        f"{file} has lost {len(whole.splitlines(keepends=True)[-1])} of the {length} bytes that it "
        "had at gradient step 30; it has 2 whole rows, up to step 20"
    )
    assert steps(run) == [10, 20]
    run.log(env_step=40, gradient_step=40)
    assert steps(run) == [10, 20, 40]
    assert b"\0" not in file.read_bytes()


@pytest.mark.parametrize("kept", range(0, 50, 7))
def test_every_cut_leaves_a_table_that_can_be_read(run, kept):
    file, length = run.path / "metrics.csv", run.sync_metrics()
    left = file.read_bytes()[: length - kept]
    whole = [10, 20, 30][: left.count(b"\n") - 1]  # without the header
    file.write_bytes(left + bytes(kept // 2))
    assert steps(run) == whole
    run.cut_metrics(length, step=30)
    assert steps(run) == whole


@pytest.mark.parametrize("episodes", [1, 2])
def test_distances_that_an_environment_does_not_have_are_nan_for_each_episode(run, episodes):
    score = Evaluation((1.5,) * episodes, (9.0,) * episodes, (math.nan,) * episodes)
    run.log_evaluation(score, env_step=40, gradient_step=40, wall_seconds=4)
    *others, row = run.metrics().itertuples()
    assert (row.eval_returns, row.eval_lengths) == ((1.5,) * episodes, (9.0,) * episodes)
    assert [math.isnan(one) for one in row.eval_distances] == [True] * episodes
    assert all(other.eval_distances == () for other in others), "no evaluation, no episode"


def test_an_earlier_repeat_of_the_fault_is_repaired(run):
    """Version 0.1 extended the file with NULs and wrote on."""
    file, length = run.path / "metrics.csv", run.sync_metrics()
    file.write_bytes(file.read_bytes()[: length - 20] + bytes(20))
    run.log(env_step=40, gradient_step=40)
    run.log(env_step=50, gradient_step=50)
    with pytest.raises(
        ParameterError, match=r"metrics\.csv is damaged in line 4, .* resume the run"
    ):
        run.metrics()
    assert choose_directory(run.path, SACConfig()) == run.path
    run.cut_metrics(file.stat().st_size, step=50)
    assert steps(run) == [10, 20, 50]


def test_a_row_that_lost_an_episode_s_number_is_not_whole(run):
    """Cut in its last column, and closed by an editor that ends every file with a line end."""
    score = Evaluation((1.0, 2.0), (9.0, 9.0), (3.0, 4.0))
    run.log_evaluation(score, env_step=40, gradient_step=40, wall_seconds=1)
    file = run.path / "metrics.csv"
    file.write_bytes(file.read_bytes().removesuffix(b" 4\r\n") + b"\r\n")
    with pytest.raises(ParameterError, match=r"metrics\.csv is damaged in line 5"):
        run.metrics()


def test_a_spreadsheet_s_mark_and_line_ends_lose_nothing(run):
    file, length = run.path / "metrics.csv", run.sync_metrics()
    changed = codecs.BOM_UTF8 + file.read_bytes().replace(b"\r\n", b"\n")
    file.write_bytes(changed)
    assert steps(run) == [10, 20, 30]
    assert run.cut_metrics(length, step=30) == ""
    assert steps(run) == [10, 20, 30]


@pytest.mark.parametrize("change", ["order", "extra"])
def test_other_columns_are_refused_before_rows_are_appended_under_wrong_names(run, change):
    file = run.path / "metrics.csv"
    first, *rest = file.read_text().splitlines()
    if change == "order":
        lines = [
            ",".join([*line.split(",")[1::-1], *line.split(",")[2:]]) for line in (first, *rest)
        ]
        found = "it has them in another order"
    else:
        lines, found = [f"{first},note", *(f"{line}," for line in rest)], "it also has note"
    file.write_text("\n".join(lines) + "\n")
    before = file.read_bytes()
    with pytest.raises(ParameterError, match=rf"must have the columns env_step,.*: {found}$"):
        open_run(run.path, SACConfig())
    assert file.read_bytes() == before
    assert steps(run) == [10, 20, 30]  # it can still be read


def lose(file, how):
    file.unlink()
    if how != "removed":
        file.write_bytes(b"" if how == "emptied" else bytes(100))


LOSSES = ["removed", "emptied", "only NULs"]


@pytest.mark.parametrize("how", LOSSES)
def test_a_lost_file_begins_again_at_the_checkpoint(run, how):
    file, length = run.path / "metrics.csv", run.sync_metrics()
    (run.path / "checkpoints" / "000000030").mkdir(parents=True)
    lose(file, how)
    assert choose_directory(run.path, SACConfig()) == run.path
    lost = run.cut_metrics(length, step=30)
    rows = length - len(metrics.HEADER)
    assert lost.startswith(f"{file} has lost {rows} of the {length} bytes that it had at gradient")
    run.log(env_step=40, gradient_step=40)
    assert steps(run) == [40]


def test_a_row_does_not_read_all_rows_before_it(run, monkeypatch):
    """Else a long run with `log_interval=1` would spend most of its time with reading."""
    read = []
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path) or b"")
    run.log(env_step=40, gradient_step=40)
    assert not read


def test_rows_set_aside_by_a_start_that_was_killed_are_kept(run, monkeypatch):
    rows = (run.path / "metrics.csv").read_bytes()

    def killed(folder):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(metrics, "create", killed)
        with pytest.raises(KeyboardInterrupt):
            run.set_metrics_aside()
    assert open_run(run.path, SACConfig()).path == run.path
    aside = run.set_metrics_aside()
    assert {file.read_bytes() for file in (run.path / "metrics-1.csv", aside)} == {rows}
    assert steps(run) == []


@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("write", ["log", "sync"])
def test_a_file_that_is_lost_during_training_gets_its_header_again(run, how, write, capsys):
    lose(run.path / "metrics.csv", how)
    if write == "sync":
        assert run.sync_metrics() == len(metrics.HEADER)
    run.log(env_step=40, gradient_step=40)
    assert steps(run) == [40]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith(
        "metrics.csv was removed or emptied: its rows are lost, and it begins again here"
    )


def test_rows_after_the_checkpoint_are_cut(run):
    length = run.sync_metrics()
    run.log(env_step=40, gradient_step=40)
    assert run.cut_metrics(length, step=30) == ""
    assert steps(run) == [10, 20, 30]
    run.cut_metrics(None)
    assert steps(run) == []
    assert metrics.is_empty(run.path)


def test_the_size_that_a_checkpoint_stores_is_on_the_disk(run, monkeypatch):
    flushed = []
    monkeypatch.setattr(run_directory, "flush_to_disk", flushed.append)
    assert run.sync_metrics() == (run.path / "metrics.csv").stat().st_size
    assert flushed == [run.path / "metrics.csv"]


def test_a_link_in_place_of_the_unfinished_file_is_not_followed(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".x.partial").symlink_to(tmp_path / "mine")
    files.write_atomically(tmp_path / "x", "new", durable=True)
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "x").read_text() == "new"
