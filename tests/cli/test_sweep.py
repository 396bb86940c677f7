"""`labkit sweep` with a small notebook, in real processes."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import nbformat
import papermill
import pytest

from labkit.analysis.runs import find_runs
from labkit.cli import sweep
from labkit.cli.main import main
from labkit.cli.sweep import free_share, plan, run_sweep
from labkit.config import SACConfig
from labkit.errors import ParameterError, StorageError
from labkit.sac.rollout import Evaluation
from labkit.training.run import open_run

ROOT = Path(__file__).parents[2]
SWEEP = [sys.executable, "-m", "labkit.cli.main", "sweep"]
# It replaces notebook 03: the same parameters, run directory, progress and stop request. It counts
# instead of training, and its return is the step that it resumed from. Seed 7 fails.
BODY = """
import os
import time
from labkit.config import SACConfig
from labkit.sac.rollout import Evaluation
from labkit.training.run import open_run
from labkit.training.progress import progress
from labkit.training.progress import stop_request

config = SACConfig(seed=seed, num_iterations=num_iterations, gamma=gamma, num_eval_episodes=1)
if seed == 7:
    raise RuntimeError("the cable is out")
run = open_run(run_dir, config)
(run.path / "cores").write_text(" ".join(map(str, sorted(os.sched_getaffinity(0)))))
kept = run.path / "kept"
first = int(kept.read_text()) if kept.exists() else 0
with progress("training", int(num_iterations), "it") as ticker, stop_request() as stop:
    ticker.advance(first)
    for step in range(first + 1, int(num_iterations) + 1):
        time.sleep(0 if first else 0.02)  # nobody stops a resumed run
        ticker.advance()
        kept.write_text(str(step))
        if stop:
            break
if step == int(num_iterations):
    score = Evaluation((float(first),), (9.0,), (0.0,))
    run.log_evaluation(score, env_step=step, gradient_step=step, wall_seconds=1)
"""
PARAMETERS = """
run_dir: str = ""  # directory
seed: int = 0  # seed
num_iterations: int = 20  # gradient steps
gamma: float = 0.99  # discount
num_eval_episodes: int = 1  # episodes
"""


@pytest.fixture
def notebook(tmp_path):
    cells = [nbformat.v4.new_code_cell(text.strip()) for text in (PARAMETERS, BODY)]
    cells[0].metadata["tags"] = ["parameters"]
    content = nbformat.v4.new_notebook(cells=cells)
    content.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    nbformat.write(content, tmp_path / "small.ipynb")
    return tmp_path / "small.ipynb"


SHORT = {"num_eval_episodes": "1", "num_iterations": "2e1"}


def test_a_second_sweep_runs_only_the_failed_seed(notebook, tmp_path, capfd):
    into = tmp_path / "runs"
    jobs = plan(notebook, ["0", "1", "7"], SHORT, into)
    unfinished = sweep.run_all(notebook, jobs, workers=2)
    logs = {job.name: job.log.read_text() for job in jobs}
    assert [job.name for job in unfinished] == ["defaults/seed-7"], logs
    err = capfd.readouterr().err
    assert "done: defaults/seed-0" in err
    assert "failed: defaults/seed-7: the cell that failed is marked in" in err
    one, two = ({*map(int, (job.run_dir / "cores").read_text().split())} for job in jobs[:2])
    assert one | two == os.sched_getaffinity(0)
    assert len(one | two) == 1 or not one & two
    before = [job.log.stat().st_mtime_ns for job in jobs]
    assert sweep.run_all(notebook, jobs, workers=2) == [jobs[2]]
    after = [job.log.stat().st_mtime_ns for job in jobs]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, True, False]


def test_a_finished_run_of_another_configuration_is_not_taken_for_a_seed(notebook, tmp_path):
    other = SACConfig(num_iterations=20, num_eval_episodes=1, gamma=0.5)
    run = open_run(tmp_path / "runs" / "defaults" / "seed-0", other)
    score = Evaluation((1.0,), (9.0,), (0.0,))
    run.log_evaluation(score, env_step=20, gradient_step=20, wall_seconds=1)
    with pytest.raises(ParameterError, match=r"gamma is 0\.5 there and 0\.99 here"):
        plan(notebook, ["0"], SHORT, tmp_path / "runs")


def test_a_stopped_sweep_resumes(notebook, tmp_path):
    command = [*SWEEP, str(notebook), "--seeds", "0 1", "--workers", "2"]
    command += ["--into", str(tmp_path / "runs"), "-p", "num_iterations", "5000"]
    command += ["-p", "num_eval_episodes", "1"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    kept = [tmp_path / "runs" / "defaults" / f"seed-{seed}" / "kept" for seed in "01"]
    deadline = time.monotonic() + 90
    while not all(file.exists() for file in kept):
        assert time.monotonic() < deadline, "no run has started"
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 1
    assert err.count("stopped: ") == 2
    assert err.count("the same command resumes it") == 2
    stopped = [int(file.read_text()) for file in kept]
    assert all(0 < step < 5_000 for step in stopped)

    jobs = plan(notebook, ["0", "1"], {**SHORT, "num_iterations": "5000"}, kept[0].parents[2])
    assert sweep.run_all(notebook, jobs, workers=2) == []
    found, _ = find_runs(tmp_path / "runs")
    assert [run.metrics.eval_return.iloc[-1] for run in found] == stopped, "a run restarted from 0"


@pytest.mark.parametrize(
    ("seeds", "texts", "message"),
    [
        ([], {}, "`seeds` must be .*, got ''"),
        (["0", "0"], {}, "`seeds` must be one or more different seeds.*, got '0 0'"),
        (["1", "1.0"], {}, "`seeds` must be one or more different seeds.*, got '1 1.0'"),
        (["1", "+1"], {}, "`seeds` must be one or more different seeds"),
        (["0x1", "1e0"], {}, "`seeds` must be one or more different seeds"),
        (["0", "-1"], {}, "`seed` must be .*, got '-1'"),
        (["0"], {"gamma": "2"}, "`gamma` must be .*, got '2'"),
        (["0"], {"run_dir": "x"}, "`run_dir` is not a parameter of a sweep, which sets it itself"),
        (["0"], {"seed": "3"}, "`seed` is not a parameter of a sweep"),
        (["0"], {"gama": "0.9"}, r"`gama` is not a parameter; did you mean 'gamma'\?"),
    ],
)
def test_a_wrong_parameter_is_one_line_before_any_run(notebook, tmp_path, seeds, texts, message):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ParameterError) as error:
        plan(notebook, seeds, texts, tmp_path / "runs")
    assert re.search(message, str(error.value))
    assert "\n" not in str(error.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_each_setting_has_its_directory(notebook, tmp_path):
    def name(**texts):
        (job,) = plan(notebook, ["0"], texts, tmp_path)
        return job.name

    assert name() == name(num_iterations="30") == "defaults/seed-0"
    assert name(gamma="0.5", num_iterations="30") == "gamma-0.5/seed-0"


def test_a_setting_has_one_directory_however_it_is_spelled(notebook, tmp_path):
    def name(seed="0", **texts):
        (job,) = plan(notebook, [seed], texts, tmp_path)
        return job.name

    assert {name(gamma=text) for text in ("0.9", "0.90", "9e-1")} == {"gamma-0.9/seed-0"}
    assert name(gamma="0.990") == "defaults/seed-0"
    assert {name(seed) for seed in ("1", "1.0", "+1", "0x1", "1e0")} == {"defaults/seed-1"}


def test_a_setting_with_long_values_has_a_directory_of_its_own(notebook, tmp_path, monkeypatch):
    def folder(**texts):
        return sweep._directory_name(notebook, texts, SACConfig())

    longest = sweep.LONGEST_NAME + 13
    one, two = folder(note="0.123456789_" * 40), folder(note="0.123456789_" * 41)
    assert one != two
    assert max(len(one), len(two)) == longest


@pytest.mark.parametrize("name", ["01_overlapping_trajectories", "02_replay_buffers"])
def test_a_notebook_that_trains_no_run_is_rejected(name, tmp_path):
    allowed = r"`notebook` must be a notebook with the parameter `\w+`, such as 03"
    with pytest.raises(ParameterError, match=allowed):
        plan(ROOT / "notebooks" / f"{name}.ipynb", ["0"], {}, tmp_path)


def test_what_a_run_would_refuse_is_found_before_any_run_starts(notebook, tmp_path):
    with pytest.raises(ParameterError, match=r"^`--into` must be a path without"):
        plan(notebook, ["0"], {}, tmp_path / "a*")
    (tmp_path / "defaults" / "seed-1").mkdir(parents=True)
    (tmp_path / "defaults" / "seed-1" / "thesis.txt").write_text("mine")
    with pytest.raises(ParameterError, match=r"it holds thesis\.txt, and no config\.json"):
        plan(notebook, ["0", "1"], {}, tmp_path)


def test_if_a_run_cannot_start_the_others_are_stopped(notebook, tmp_path, monkeypatch):
    jobs = plan(notebook, ["0", "1"], {**SHORT, "num_iterations": "100000"}, tmp_path)
    start = sweep.Job.start

    def fail_for_the_second(job, notebook):
        if job is jobs[1]:
            raise OSError(12, "Cannot allocate memory")
        start(job, notebook)

    monkeypatch.setattr(sweep.Job, "start", fail_for_the_second)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        sweep.run_all(notebook, jobs, 2)
    assert not jobs[0].running()


def test_a_run_that_starts_while_a_stop_is_requested_is_stopped(notebook, tmp_path, monkeypatch):
    """The signal arrives while the process is being started."""
    start = sweep.Job.start

    def start_and_stop(job, notebook):
        os.kill(os.getpid(), signal.SIGINT)
        start(job, notebook)
        deadline = time.monotonic() + 60
        while not job.log.stat().st_size and time.monotonic() < deadline:  # it handles signals
            time.sleep(0.1)

    monkeypatch.setattr(sweep.Job, "start", start_and_stop)
    asked = []
    interrupt = sweep.Job.interrupt
    monkeypatch.setattr(sweep.Job, "interrupt", lambda job: asked.append(job) or interrupt(job))
    jobs = plan(notebook, ["0"], {**SHORT, "num_iterations": "2000"}, tmp_path)
    assert sweep.run_all(notebook, jobs, 1) == jobs
    assert asked[-1] is jobs[0]


def test_a_file_in_place_of_the_folder_is_one_line(notebook, tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ParameterError, match=r"^`--into` must be a folder, or .*mine'$"):
        plan(notebook, ["0"], {}, tmp_path / "mine")


def test_a_folder_that_cannot_be_made_is_one_line(notebook):
    with pytest.raises(StorageError, match=r"^/proc/nowhere/.* cannot be written \(.+\)$"):
        run_sweep(notebook, ["0"], {}, Path("/proc/nowhere"), 1)


@pytest.fixture
def running_sweep(request, notebook, tmp_path):
    """A sweep of one long run, whose kernel trains; and the folder of that run.

    With the parameter "deaf" it does not end when it is asked to stop.
    """
    if getattr(request, "param", "") == "deaf":
        notebook.write_text(notebook.read_text().replace("if stop:", "if False:"))
    command = [*SWEEP, str(notebook), "--seeds", "0", "--into", str(tmp_path / "runs")]
    command += ["-p", "num_iterations", "90000"]
    child = subprocess.Popen(
        command,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        # Under nohup, this process ignores SIGHUP, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    run_dir = tmp_path / "runs" / "defaults" / "seed-0"
    deadline = time.monotonic() + 90
    try:
        while not (run_dir / "kept").exists():
            assert time.monotonic() < deadline, "the run has not started"
            time.sleep(0.1)
        yield child, run_dir
    finally:
        child.kill()  # its runs end with it
        child.wait()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_the_runs_of_a_sweep_that_was_killed_end(running_sweep, number):
    child, run_dir = running_sweep
    child.send_signal(number)
    child.wait(timeout=40)
    deadline, kept = time.monotonic() + 20, run_dir / "kept"
    while (count := kept.read_text()) and (time.sleep(1) or kept.read_text() != count):
        assert time.monotonic() < deadline, "the kernel runs on"
    left = [p for p in Path("/proc").glob("[0-9]*/cmdline") if str(run_dir).encode() in _read(p)]
    assert not left


def test_a_finished_sweep_without_notebook_05_prints_one_line(notebook, tmp_path, capfd):
    with mock.patch.object(sweep, "run_all", return_value=[]):
        assert sweep.run_sweep(notebook, ["0"], SHORT, tmp_path, workers=1) == 0
    assert re.fullmatch(
        r"no comparison: there is no .*05_compare_runs\.ipynb\n", capfd.readouterr().err
    )


def test_a_notebook_with_its_runs_elsewhere_is_named(notebook, tmp_path, capfd):
    """As notebook 04: its `run_dir` is a folder for several runs, so a sweep finds none there."""
    content = nbformat.read(notebook, 4)
    content.cells[1].source = content.cells[1].source.replace("run_dir,", "run_dir + '/local',")
    nbformat.write(content, notebook)
    assert run_sweep(notebook, ("0",), SHORT, tmp_path / "sweep", workers=1) == 1
    error = capfd.readouterr().err
    there = tmp_path / "sweep" / "defaults" / "seed-0"
    assert f"{notebook} wrote no run to {there}: its `run_dir` must be the directory of" in error
    assert "ended without a run: defaults/seed-0" in error
    assert "not finished" not in error


def test_a_finished_sweep_is_compared_in_notebook_05(notebook, tmp_path, monkeypatch):
    comparison = tmp_path / sweep.COMPARISON
    comparison.touch()
    swept, executed = [], []
    monkeypatch.setattr(sweep, "run_all", lambda _, jobs, count: swept.append((jobs, count)) or [])
    monkeypatch.setattr(sweep, "execute", lambda *given: executed.append(given) or 0)
    command = ["sweep", str(notebook), "--seeds", "0,1", "--workers", "3"]
    command += ["--into", str(tmp_path / "runs"), "-p", "gamma", "0.5"]
    with pytest.raises(SystemExit):
        main(command)
    ((jobs, workers),) = swept
    assert [job.config.seed for job in jobs] == [0, 1]
    assert workers == 3
    ((file, into, parameters),) = executed
    assert (file, into) == (comparison, tmp_path / "runs")
    assert parameters == {"runs": str(tmp_path / "runs"), "budget": 20, "baseline": "gamma 0.5"}
    known = papermill.inspect_notebook(str(ROOT / "notebooks" / sweep.COMPARISON))
    assert set(parameters) <= set(known)


def test_another_notebook_05_in_the_folder_is_found_before_any_run_starts(notebook, tmp_path):
    (tmp_path / sweep.COMPARISON).touch()
    mine = tmp_path / "runs" / sweep.COMPARISON
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(ParameterError, match=r"^`--into` must be a directory without a 05_comp"):
        run_sweep(notebook, ["0"], SHORT, tmp_path / "runs", workers=1)
    with pytest.raises(ParameterError, match=r"^`--into` must be another directory than that of"):
        run_sweep(notebook, ["0"], SHORT, tmp_path, workers=1)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [mine.name]
    assert mine.read_text() == "mine"


def test_fewer_than_one_worker_is_rejected(notebook, tmp_path):
    with pytest.raises(
        ParameterError, match=r"^`--workers` must be a whole number from 1 .*, got 0$"
    ):
        sweep.run_sweep(notebook, ["0"], SHORT, tmp_path, workers=0)


@pytest.mark.parametrize("running_sweep", ["deaf"], indirect=True)
def test_a_second_stop_request_ends_a_run_that_ignores_the_first(running_sweep):
    child, run_dir = running_sweep
    child.send_signal(signal.SIGINT)
    deadline, kept = time.monotonic() + 30, run_dir / "kept"
    while not list(run_dir.glob(".stop-*")):
        assert time.monotonic() < deadline, "the first request has not arrived"
        time.sleep(0.1)
    count = kept.read_text()
    time.sleep(1)
    assert kept.read_text() != count, "it ended after the first request"
    child.send_signal(signal.SIGINT)
    child.wait(timeout=60)
    time.sleep(1)
    count = kept.read_text()
    time.sleep(1)
    assert kept.read_text() == count, "the kernel runs on"


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_parallel_runs_use_different_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 8})
    first = free_share(2, [])
    second = free_share(2, [first])
    assert (first, second) == ({0, 2, 8}, {1, 3})
    assert free_share(2, [second]) == first  # when the first run has ended
    one, two = free_share(9, []), free_share(9, [free_share(9, [])])
    assert len(one) == len(two) == 1
    assert one != two
    monkeypatch.delattr(os, "sched_getaffinity")
    assert free_share(2, []) == frozenset()
