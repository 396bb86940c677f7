"""`labkit sweep`: seeds in parallel, stopped and resumed, then compared."""

import re
from pathlib import Path

import pytest
from small_notebook import START, TRAIN, interrupt_when, labkit, last_line, outputs, rows, write

from labkit.cli.run import COMPARISON
from labkit.training import checkpoint
from labkit.training.records import read_config, read_metrics

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """A notebook that trains, beside one that compares: it prints its parameters."""
    folder = tmp_path_factory.mktemp("notebooks")
    shows = write(
        folder, "print(runs, budget, baseline)", parameters="runs = budget = baseline = 0"
    )
    shows.rename(folder / COMPARISON)
    return write(folder, START, TRAIN)


@pytest.mark.thorough
def test_two_seeds_stop_resume_and_are_compared(notebook, tmp_path):
    into = tmp_path / "runs"
    seeds = [into / "gamma-0.9" / f"seed-{seed}" for seed in (4, 5)]
    command = ["sweep", notebook, "--seeds", "4,5", "--workers", "2", "--into", into]
    command += ["-p", "gamma", "0.90", "-p", "num_iterations"]
    interrupt_when(lambda: min(map(rows, seeds)) > 3)
    stopped = labkit(*command, "1e6")
    assert stopped.exit_code == 130
    assert stopped.stderr.count("small.ipynb: stopped; the same command resumes it") == 2
    assert not (into / COMPARISON).exists()

    saved = [int(checkpoint.latest(seed / "checkpoints").name) for seed in seeds]
    total = max(saved) + 10
    assert labkit(*command, total).exit_code == 0
    for seed, step in zip(seeds, saved, strict=True):
        table = read_metrics(seed)
        assert table.gradient_step.is_monotonic_increasing
        assert table.gradient_step.max() == total
        assert table.gradient_step.min() < step
    assert {read_config(seed).seed for seed in seeds} == {4, 5}
    *_, shown = outputs(into / COMPARISON)
    assert shown.startswith(f"{into} {total} ")
    assert "gamma 0.9" in shown

    before = [(seed / "small.ipynb").stat().st_mtime_ns for seed in seeds]
    assert labkit(*command, total).exit_code == 0
    assert [(seed / "small.ipynb").stat().st_mtime_ns for seed in seeds] == before


@pytest.mark.thorough
def test_a_seed_that_fails_leaves_the_others(tmp_path):
    fails = "assert seed != 7, 'the cable is out'"
    done = labkit(
        "sweep", write(tmp_path, START, fails, TRAIN), "--seeds", "7 1", "--into", tmp_path
    )
    assert done.exit_code == 1
    assert "seed-7/small.ipynb: AssertionError: the cable is out" in done.stderr
    assert f"{tmp_path}/defaults/seed-1/small.ipynb: done" in done.stderr


REFUSED = [
    (["--seeds", ""], "`--seeds` must be one or more different seeds"),
    (["--seeds", "1 1.0"], "`--seeds` must be one or more different seeds, such as '0 1 2', got"),
    (["--seeds", "0 x"], "`seed` must be a whole number"),
    (
        ["-p", "seed", "3"],
        "`-p` must be a parameter that the sweep does not set itself, got 'seed'",
    ),
    (["-p", "gama", "3"], "`gama` is not a parameter; did you mean 'gamma'"),
    (["-p", "env_name", "CartPole-v1"], "`env_name` must be an environment whose actions are"),
    (["--into", "mine"], r"it holds thesis\.txt, and no config\.json"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_bad_input_is_found_before_any_run_starts(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "work", START).rename(tmp_path / "work" / COMPARISON)
    notebook = write(tmp_path / "work", START, TRAIN)
    theirs = tmp_path / "mine" / "defaults" / "seed-2" / "thesis.txt"
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    before = sorted(tmp_path.rglob("*"))
    done = labkit("sweep", notebook, *arguments)
    assert done.exit_code == 1
    assert re.search(message, last_line(done)), done.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["01_overlapping_trajectories", "02_replay_buffers", "own"])
def test_a_notebook_that_trains_no_run_is_named(tmp_path, name):
    notebook = write(tmp_path, "print(seed)") if name == "own" else ROOT / f"notebooks/{name}.ipynb"
    done = labkit("sweep", notebook)
    assert done.exit_code == 1
    line = "ParameterError: `notebook` must be a notebook that trains with labkit.start_run, such"
    assert done.stderr.startswith(line)


def test_notebook_05_has_the_parameters_that_a_sweep_passes():
    import papermill

    known = papermill.inspect_notebook(str(ROOT / "notebooks" / COMPARISON))
    assert {"runs", "budget", "baseline"} <= set(known)
