"""The run directory: which one a run takes, one writer, and nothing of anybody is overwritten."""

import os
import re
import subprocess
import sys
from pathlib import Path

import attrs
import numpy as np
import pytest
from small import OFF_DEFAULT
from small_disk import fill, small_disk

from labkit.config import FREE_TO_CHANGE, SACConfig
from labkit.errors import ParameterError, StorageError
from labkit.replay.transitions import Layout
from labkit.replay.uniform_replay import UniformReplay
from labkit.training import checkpoint
from labkit.training.components import open_training
from labkit.training.records import is_finished, read_config
from labkit.training.run import check_free, choose_directory, open_run, start_run

CONFIG = SACConfig(num_iterations=20, num_eval_episodes=2, interim_eval_episodes=1)
ROW = {"env_step": 310, "gradient_step": 10, "wall_seconds": 1.0}


def begun(path, config=CONFIG, finished=False, step=None, executor="local"):
    """A run with a row of losses, or its final evaluation, and the checkpoint of a step."""
    run = open_run(path, config)
    run.write_config({"executor": executor})
    run.log(**ROW, critic_loss=1.0)
    if finished:
        last = {**ROW, "gradient_step": config.num_iterations}
        run.log(**last, eval_return=1.5, eval_returns=(1.0, 2.0))
    if step is not None:
        table = UniformReplay(Layout(1, 1), 10)
        state = {"seconds": 1.0, "totals": {}}
        checkpoint.save(run.path / "checkpoints", step, [np.zeros(2)], state, table)
    return run


def contents(path):
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


# --- new runs


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_numbers_count_up(here):
    (here / "runs" / "0041").mkdir(parents=True)
    (here / "runs" / "notes").mkdir()
    assert begun("", CONFIG).path == Path("runs/0042")
    assert open_run("", CONFIG, resume="never").path == Path("runs/0043")


def test_a_rejected_start_uses_up_no_number(here):
    with pytest.raises(ParameterError), open_training("local", CONFIG, None, None, None):
        raise ParameterError("a typo")
    assert not list(here.glob("runs/*"))
    code = "import labkit; print(labkit.open_run('', labkit.SACConfig(seed={})).path)"
    for seed in (1, 2):  # two kernels, of which each ended before its training began
        done = subprocess.run([sys.executable, "-c", code.format(seed)], capture_output=True)
        assert done.stdout.decode().splitlines() == ["runs/0001"], done.stderr


def test_resume_never_takes_another_directory(tmp_path):
    begun(tmp_path / "run")
    (tmp_path / "run-2").mkdir()
    (tmp_path / "run-2" / "mine.txt").write_text("")
    assert open_run(tmp_path / "run", CONFIG, resume="never").path == tmp_path / "run-3"


def test_start_run_takes_what_is_its_own(here):
    namespace = {"num_iterations": 5.0, "env_name": "Pendulum-v1", "run_dir": "a", "mine": 3}
    assert start_run(namespace, ("mine",)).config.num_iterations == 5
    assert (here / "a" / "config.json").exists()


# --- runs that are resumed


def test_without_a_directory_the_newest_unfinished_run_is_resumed(here, capsys):
    begun("runs/0001", step=5)
    begun("runs/0002", step=15)
    begun("runs/0003", finished=True, step=20)
    begun("runs/0004", attrs.evolve(CONFIG, seed=9), step=15)
    begun("runs/0005", step=15, executor="ray")
    open_run("runs/0006", CONFIG)  # a start that ended before its first row
    assert open_run("", CONFIG).path == Path("runs/0002")
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("runs/0002 is an unfinished run of this configuration: it resumes from ")
    assert "gradient step 15" in line
    assert "resume never" in line
    assert open_run("", CONFIG, environment={"executor": "ray"}).path == Path("runs/0005")
    assert open_run("", CONFIG, resume="never").path == Path("runs/0007")


def test_an_unfinished_run_of_another_environment_or_process_is_not_taken(here):
    run = begun("runs/0001", step=5)
    mine, other = {"name": "Mine", "max_episode_steps": 5}, {"name": "Mine", "max_episode_steps": 9}
    run.write_config(mine)
    assert open_run("", CONFIG, environment=mine).path == run.path
    assert open_run("", CONFIG, environment=other).path == Path("runs/0002")
    code = (
        "import labkit; from test_run_directory import *; print(labkit.open_run('', CONFIG).path)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == ["runs/0003"], done.stderr


def test_what_a_resumed_run_may_change(tmp_path):
    fields = {"env_name": "Pendulum-v1", "num_iterations": 20}
    begun(tmp_path, SACConfig(**fields), step=5)
    values = {**OFF_DEFAULT, "env_name": "Other-v0", "replay_buffer_capacity": 5_000}
    for name, value in values.items():
        changed = SACConfig(**{**fields, name: value})
        if name in (*FREE_TO_CHANGE, "num_iterations"):
            assert open_run(tmp_path, changed).config == changed
        else:
            with pytest.raises(ParameterError, match=f"{name} is .* there and .* here"):
                open_run(tmp_path, changed)


def test_a_run_resumes_with_more_iterations_but_not_with_fewer_than_it_took(tmp_path):
    begun(tmp_path, finished=True, step=20)
    assert is_finished(tmp_path, CONFIG)
    longer = attrs.evolve(CONFIG, num_iterations=40)
    assert not is_finished(tmp_path, longer)
    open_run(tmp_path, longer)
    with pytest.raises(ParameterError, match="`num_iterations` must be 20 or more"):
        open_run(tmp_path, attrs.evolve(CONFIG, num_iterations=10))


# --- nothing is overwritten


def test_a_finished_run_without_its_checkpoint_is_not_overwritten(tmp_path):
    begun(tmp_path, finished=True)
    before = contents(tmp_path)
    with pytest.raises(ParameterError, match="a finished run is never overwritten"):
        open_run(tmp_path, CONFIG)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["thesis.tex", "policy/weights", "metrics.csv", "lock.txt"])
def test_a_directory_of_the_user_s_files_is_left_alone(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("precious")
    with pytest.raises(ParameterError, match=f"holds {Path(name).parts[0]}, and no config.json"):
        open_run(tmp_path, CONFIG)
    assert contents(tmp_path) == {tmp_path / name: b"precious"}


def test_hidden_files_notebooks_and_a_start_that_left_no_row_do_not_block_a_run(tmp_path):
    (tmp_path / ".DS_Store").write_text("")
    (tmp_path / "03_sac_minitaur.ipynb").write_text("{}")
    open_run(tmp_path, CONFIG)
    other = attrs.evolve(CONFIG, gamma=0.5)
    open_run(tmp_path, other)
    assert read_config(tmp_path) == other


@pytest.mark.parametrize("name", ["checkpoints", "metrics.csv", "policy/assets/x", "lock"])
def test_a_link_in_a_run_is_never_followed(tmp_path, name):
    run, secret = begun(tmp_path / "run", step=5), tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    link = run.path / name
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.exists():
        link.rename(tmp_path / "aside")
    link.symlink_to(secret)
    with pytest.raises(ParameterError, match=f"without symbolic links, such as its {link.name}"):
        open_run(run.path, CONFIG)
    assert contents(secret) == {secret / "key": b"secret"}


# --- one writer

HOLD = "import labkit, sys, time; run = labkit.open_run(sys.argv[1], labkit.SACConfig()); "


def test_two_processes_on_one_run(tmp_path):
    code = HOLD + "print('open', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"open\n"
        for attempt in (lambda: open_run(tmp_path, SACConfig()), lambda: check_free(tmp_path)):
            with pytest.raises(ParameterError, match=rf"\(process {process.pid} is\)"):
                attempt()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    open_run(tmp_path, SACConfig())  # its lock went with it
    open_run(tmp_path, SACConfig())  # a cell may run again in its own kernel


def test_a_forked_child_does_not_hold_its_parent_s_run(tmp_path):
    """As an environment that starts a process, which outlives the training."""
    code = HOLD + "import os; ready, go = os.pipe(); "
    code += "os.fork() or (os.setsid(), os.write(go, b'x'), time.sleep(20)); os.read(ready, 1); "
    code += "os._exit(0)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    open_run(tmp_path, SACConfig())


# --- bad input

BAD = {
    "a number": (1, "auto", r"`run_dir` must be a path, as text"),
    "nothing": (None, "auto", r"`run_dir` must be a path, as text"),
    "below a file": ("file/below", "auto", r"`run_dir` must be a directory .*\(Not a directory\)"),
    "a file": ("file", "auto", r"`run_dir` must be a directory .*\((File|Not)"),
    "no place": ("/proc/nothing/here", "auto", r"`run_dir` must be a directory"),
    "NUL": ("nul\0", "auto", r"`run_dir` must be a directory .*null"),
    "a pattern": ("lr[3e-4]", "auto", r"without \* \? \[ and backslash"),
    "a stranger": ("~nobody-at-all/run", "auto", r"`run_dir` must be a directory"),
    "resume": ("run", "yes", r"`resume` must be 'auto' or 'never', got 'yes'"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_directory_that_cannot_be_used_is_one_line(here, kind):
    (here / "file").write_text("")
    run_dir, resume, message = BAD[kind]
    with pytest.raises(ParameterError, match=message) as error:
        choose_directory(run_dir, CONFIG, resume)
    assert "\n" not in str(error.value)


def test_runs_that_cannot_be_made_are_named(here):
    (here / "runs").write_text("a file")
    with pytest.raises(ParameterError, match=r"got 'runs'"):
        open_run("", CONFIG)


def test_a_full_disk_at_the_start_is_one_line(tmp_path):
    with small_disk(tmp_path / "disk", 64) as disk:
        fill(disk)
        with pytest.raises(StorageError, match=re.escape("No space left on device")):
            open_run(disk / "run", CONFIG)
        (disk / ".filler").unlink()
        open_run(disk / "run", CONFIG)
