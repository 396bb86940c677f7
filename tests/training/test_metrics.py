"""metrics.csv: what is whole is read and kept, whatever happened to the file."""

import codecs

import pytest

from labkit.config import SACConfig
from labkit.errors import ParameterError
from labkit.training import files, metrics, run_directory


@pytest.fixture
def run(tmp_path):
    """A run with rows at the steps 10, 20 and 30."""
    run = run_directory.open_run(tmp_path / "run", SACConfig())
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
    file.write_bytes(file.read_bytes()[: length - kept] + bytes(kept // 2))
    assert steps(run) in ([10, 20, 30], [10, 20], [10])
    run.cut_metrics(length, step=30)
    assert steps(run) in ([10, 20, 30], [10, 20], [10])


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
    assert run_directory.choose_directory(run.path, SACConfig()) == run.path
    run.cut_metrics(file.stat().st_size, step=50)
    assert steps(run) == [10, 20, 50]


def test_a_spreadsheet_s_mark_and_line_ends_lose_nothing(run):
    file, length = run.path / "metrics.csv", run.sync_metrics()
    changed = codecs.BOM_UTF8 + file.read_bytes().replace(b"\r\n", b"\n")
    file.write_bytes(changed)
    assert steps(run) == [10, 20, 30]
    assert run.cut_metrics(length, step=30) == ""
    assert steps(run) == [10, 20, 30]


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
