"""The run directory: opened once, never overwritten, read back as it was written."""

import fcntl
import json
import os
import shutil
import subprocess
import sys

import attrs
import numpy as np
import pytest
from conftest import OFF_DEFAULT
from small_disk import fill, small_disk

import labkit
from labkit.config import SACConfig
from labkit.errors import ParameterError, StorageError
from labkit.replay.transitions import Layout
from labkit.replay.uniform_replay import UniformReplay
from labkit.sac.rollout import Evaluation
from labkit.training import checkpoint, metrics, run_lock
from labkit.training.run import (
    Run,
    check_resumable,
    choose_directory,
    is_finished,
    open_run,
    read_config,
    removed_if_rejected,
    start_run,
)


def begun(path, config):
    """A run with one row."""
    run = open_run(path, config)
    run.log(env_step=301, gradient_step=1)
    return run


def test_an_error_late_in_a_run_does_not_delete_its_checkpoints(tmp_path):
    """With no rows yet, as if `log_interval` and `eval_interval` were 0."""
    run = open_run(tmp_path / "run", SACConfig())
    (run.path / "checkpoints" / "000000005").mkdir(parents=True)
    with pytest.raises(ParameterError), removed_if_rejected(run):
        raise ParameterError("a worker cannot make its environment")
    assert checkpoint.steps(run.path / "checkpoints") == [5]


def test_numbers_count_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [choose_directory("", SACConfig()).name for _ in range(3)] == [
        "0001",
        "0002",
        "0003",
    ]
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "runs" / "0041").mkdir()
    assert str(choose_directory("", SACConfig())) == "runs/0042"


FREE = {"num_iterations", "strategy", "checkpoint_interval", "checkpoint_seconds"}


@pytest.mark.parametrize("name", SACConfig.names())
def test_what_a_resumed_run_may_change(tmp_path, name):
    base = SACConfig(env_name="HalfCheetahBulletEnv-v0", batch_size=32)
    if name == "symmetry_augmentation":  # True needs an environment whose reflection is known
        base = SACConfig(symmetry_augmentation=False)
    begun(tmp_path, base)
    changed = attrs.evolve(base, **{name: OFF_DEFAULT[name]})
    assert changed != base
    if name in FREE | {"environment_timeout"}:
        check_resumable(tmp_path, changed)
    else:
        with pytest.raises(ParameterError, match=rf"\({name} is .* there and .* here\)"):
            check_resumable(tmp_path, changed)


def test_relative_and_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert choose_directory("a/b", SACConfig()).resolve() == tmp_path / "a" / "b"
    assert choose_directory(str(tmp_path / "c"), SACConfig()) == tmp_path / "c"


@pytest.mark.parametrize("where", ["file/below", "file", "/proc/nothing/here", "nul\0"])
def test_a_directory_that_cannot_be_written_is_rejected(tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        ParameterError, match=r"^`run_dir` must be a directory that this process can create"
    ):
        choose_directory(where, SACConfig())
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("run_dir", [1, None, b"runs"])
def test_a_run_directory_that_is_no_path_is_one_line(run_dir):
    with pytest.raises(ParameterError) as error:
        choose_directory(run_dir, SACConfig())
    assert str(error.value).startswith("`run_dir` must be a path, as text (papermill takes 0001")
    assert str(error.value).endswith(f", got {run_dir!r}")


def test_start_run_without_the_notebook_s_variables_is_one_line():
    with pytest.raises(
        ParameterError, match=r"`namespace` must be .*start_run\(globals\(\)\), got"
    ):
        start_run(None)


def test_what_a_killed_launcher_left_is_removed_unless_another_one_runs(tmp_path):
    open_run(tmp_path, SACConfig())
    left = [tmp_path / ".stop-4711", tmp_path / "progress.json"]
    mine = [tmp_path / ".stop-it", tmp_path / "progress.json.mine"]
    for file in (*left, *mine):
        file.write_text("{}")
    (tmp_path / "launcher.lock").write_text("4711\nsmall.ipynb")
    with (tmp_path / "launcher.lock").open() as launcher:
        fcntl.flock(launcher, fcntl.LOCK_EX)
        open_run(tmp_path, SACConfig())
        assert all(file.exists() for file in (*left, *mine))
    open_run(tmp_path, SACConfig())
    assert not any(file.exists() for file in left)
    assert all(file.exists() for file in mine)


MINE = {
    "events": "events/mine.txt",
    "policy": "policy/mine.txt",
    "checkpoints": "checkpoints/000000007/mine.txt",
    "lock": "lock",
    "launcher.lock": "launcher.lock",
    "metrics.csv": "metrics.csv",
    "videos": "videos/mine.mp4",
    "notes.md": "notes.md",
}


@pytest.mark.parametrize("name", MINE)
def test_a_directory_of_the_user_s_files_is_left_alone(tmp_path, name):
    file = tmp_path / "here" / MINE[name]
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    for _ in range(2):
        with pytest.raises(ParameterError) as error:
            open_run(tmp_path / "here", SACConfig())
        start = "`run_dir` must be a new or empty directory, or a run; it holds "
        assert str(error.value).startswith(f"{start}{name}, and no config.json")
        assert ("if it was lost, copy that of a run" in str(error.value)) == (name == "checkpoints")
        assert "\n" not in str(error.value)
        assert [p for p in (tmp_path / "here").rglob("*") if p.is_file()] == [file]
        assert file.read_text() == "mine"
    other = open_run(tmp_path / "here", SACConfig(), resume="never")
    assert other.path.name == "here-2"


def test_a_run_that_lost_only_its_configuration_is_refused_with_what_to_do(tmp_path):
    run = open_run(tmp_path, SACConfig())
    run.log(env_step=5, gradient_step=2)
    (tmp_path / "config.json").rename(tmp_path / ".config.json")
    before = (tmp_path / "metrics.csv").read_bytes()
    with pytest.raises(ParameterError, match=r"it holds metrics\.csv, and no config\.json \(if it"):
        open_run(tmp_path, SACConfig())
    assert (tmp_path / "metrics.csv").read_bytes() == before
    (tmp_path / ".config.json").rename(tmp_path / "config.json")
    assert open_run(tmp_path, SACConfig()).metrics().gradient_step.tolist() == [2]


def test_hidden_files_and_what_a_start_left_do_not_block_a_run(tmp_path):
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / "lock").write_text("4711\n")
    (tmp_path / "launcher.lock").write_text("4712\nsmall.ipynb")
    (tmp_path / "any.ipynb").write_text("{}")  # papermill writes the notebook that runs here
    metrics.create(tmp_path)
    assert open_run(tmp_path, SACConfig()).path == tmp_path


@pytest.mark.parametrize(
    "name", ["metrics.csv", "config.json", "lock", "events", "policy", "checkpoints/reverb"]
)
def test_a_link_in_a_run_is_never_followed(tmp_path, name):
    run = open_run(tmp_path / "run", SACConfig())
    link, mine = run.path / name, tmp_path / "mine"
    link.parent.mkdir(exist_ok=True)
    if link.exists():
        link.rename(mine)
    else:
        mine.mkdir()
        (mine / "file").write_text("mine")
    before = mine.read_bytes() if mine.is_file() else (mine / "file").read_bytes()
    link.symlink_to(mine)
    with pytest.raises(ParameterError, match=rf"without symbolic links, such as its {link.name},"):
        open_run(run.path, SACConfig())
    assert before == (mine.read_bytes() if mine.is_file() else (mine / "file").read_bytes())


@pytest.mark.parametrize("name", ["lr[3e-4]", "a*", "what?", "back\\slash"])
def test_a_path_that_tensorflow_cannot_read_back_is_rejected(tmp_path, name):
    with pytest.raises(ParameterError, match=r"`run_dir` must be a path without \* \? \[ and back"):
        choose_directory(tmp_path / name, SACConfig())
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_user_s_home_is_one_line():
    with pytest.raises(ParameterError, match=r"^`run_dir` must be .*, got '~nobody-here/x'$"):
        choose_directory("~nobody-here/x", SACConfig())


def test_a_full_disk_at_the_start_is_one_line(tmp_path):
    with small_disk(tmp_path / "disk", 64) as disk:
        filler = fill(disk)
        with pytest.raises(
            (ParameterError, StorageError), match="No space left on device"
        ) as error:
            open_run(disk / "run", SACConfig())
        assert "\n" not in str(error.value)
        filler.unlink()
        assert open_run(disk / "run", SACConfig()).metrics().empty


def test_a_run_of_another_configuration_is_never_overwritten(tmp_path):
    begun(tmp_path, SACConfig(seed=4))
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(ParameterError, match=r"seed is 4 there and 5 here; gamma is 0\.995 there"):
        choose_directory(tmp_path, SACConfig(seed=5, gamma=0.9))
    assert (tmp_path / "config.json").read_bytes() == before


def test_a_start_that_left_no_row_does_not_block_its_directory(tmp_path):
    """As after a value that was rejected late: the corrected one may follow."""
    open_run(tmp_path, SACConfig(seed=4))
    assert open_run(tmp_path, SACConfig(seed=5)).config.seed == 5
    assert read_config(tmp_path).seed == 5


def test_the_path_of_a_run_may_be_text(tmp_path):
    path = open_run(tmp_path / "run", SACConfig(seed=4)).path
    assert labkit.Run(str(path), SACConfig(seed=4)).metrics().empty
    assert read_config(str(path)).seed == 4


def test_an_unfinished_run_is_resumed_and_a_finished_one_rejected(tmp_path):
    config = SACConfig(num_eval_episodes=1, num_iterations=7)
    run = open_run(tmp_path, config)
    run.log_evaluation(
        Evaluation((1.0,), (9.0,), (0.0,)), env_step=5, gradient_step=5, wall_seconds=1
    )
    again = open_run(tmp_path, SACConfig(num_eval_episodes=1, num_iterations=7, strategy="cpu"))
    assert len(again.metrics()) == 1
    run.log_evaluation(
        Evaluation((1.0,), (9.0,), (0.0,)), env_step=7, gradient_step=7, wall_seconds=1
    )
    with pytest.raises(ParameterError, match="finished"):
        open_run(tmp_path, config)


def save_checkpoint(path, step):
    layout = Layout(1, 1)
    checkpoint.save(path / "checkpoints", step, [np.ones(1)], {}, UniformReplay(layout, 10))


@pytest.mark.parametrize("iterations", [5, 7, 9])
def test_a_finished_run_without_its_checkpoints_is_not_overwritten(tmp_path, iterations):
    run = open_run(tmp_path, SACConfig(num_eval_episodes=1, num_iterations=7))
    score = Evaluation((1.0,), (9.0,), (0.0,))
    run.log_evaluation(score, env_step=7, gradient_step=7, wall_seconds=1)
    other = SACConfig(num_eval_episodes=1, num_iterations=iterations)
    with pytest.raises(ParameterError, match="a finished run is never overwritten"):
        open_run(tmp_path, other)


def test_a_finished_run_that_was_asked_for_more_is_not_overwritten_either(tmp_path):
    run = open_run(tmp_path, SACConfig(num_eval_episodes=9, num_iterations=7))
    score = Evaluation((1.0,) * 9, (9.0,) * 9, (0.0,) * 9)
    run.log_evaluation(score, env_step=7, gradient_step=7, wall_seconds=1)
    save_checkpoint(tmp_path, 7)
    more = SACConfig(num_eval_episodes=9, num_iterations=9)
    open_run(tmp_path, more)
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(ParameterError, match="a finished run is never overwritten"):
        open_run(tmp_path, more)


def test_a_run_that_lost_its_metrics_is_not_finished(tmp_path):
    config = SACConfig(num_eval_episodes=1, num_iterations=7)
    open_run(tmp_path, config)
    for content in ("", "\0" * 99):
        (tmp_path / "metrics.csv").write_text(content)
        assert not is_finished(tmp_path, config)
    (tmp_path / "metrics.csv").unlink()
    assert not is_finished(tmp_path, config)


@pytest.mark.parametrize(
    "name",
    ["checkpoints", "checkpoints/deleted", "checkpoints/partial", "events", "policy"],
)
def test_a_file_in_place_of_a_directory_is_named_before_training(tmp_path, name):
    open_run(tmp_path, SACConfig())
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(ParameterError, match=f"`run_dir` must be a run in which {name} is a dire"):
        open_run(tmp_path, SACConfig())
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("name", ["ended_by_watchdog.txt", "metrics.csv"])
def test_a_directory_in_place_of_a_file_is_named_before_training(tmp_path, name):
    open_run(tmp_path, SACConfig())
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).mkdir()
    with pytest.raises(ParameterError, match=name) as error:
        open_run(tmp_path, SACConfig())
    assert "\n" not in str(error.value)


def test_a_finished_run_resumes_with_more_iterations_but_not_with_fewer_than_it_took(tmp_path):
    run = open_run(tmp_path, SACConfig(num_eval_episodes=1, num_iterations=7))
    score = Evaluation((1.0,), (9.0,), (0.0,))
    run.log_evaluation(score, env_step=7, gradient_step=7, wall_seconds=1)
    save_checkpoint(tmp_path, 7)
    more = open_run(tmp_path, SACConfig(num_eval_episodes=1, num_iterations=9))
    assert more.config == SACConfig(num_eval_episodes=1, num_iterations=9)
    assert read_config(tmp_path).num_iterations == 7, "nothing has started yet"
    save_checkpoint(tmp_path, 8)
    assert (
        open_run(tmp_path, SACConfig(num_eval_episodes=1, num_iterations=8)).config.num_iterations
        == 8
    )
    with pytest.raises(ParameterError, match=r"`num_iterations` must be 8 or more.*, got 6"):
        open_run(tmp_path, SACConfig(num_eval_episodes=1, num_iterations=6))


def test_resume_never_takes_another_directory(tmp_path):
    first = open_run(tmp_path / "a", SACConfig())
    second = open_run(tmp_path / "a", SACConfig(), resume="never")
    third = open_run(tmp_path / "a", SACConfig(seed=9), resume="never")
    assert [r.path.name for r in (first, second, third)] == ["a", "a-2", "a-3"]
    with pytest.raises(ParameterError, match=r"^`resume` must be .*, got 'perhaps'"):
        choose_directory(tmp_path / "a", SACConfig(), resume="perhaps")


def test_two_processes_on_one_run(tmp_path):
    open_run(tmp_path, SACConfig())
    script = "import sys; from labkit import open_run, SACConfig;open_run(sys.argv[1], SACConfig())"
    second = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    writer = f"a run that no other process is writing to (process {os.getpid()} is)"
    assert writer in second.stderr.splitlines()[-1]
    open_run(tmp_path, SACConfig())  # this process may: a cell is run twice


OPEN = "import sys; from labkit import open_run, SACConfig;open_run(sys.argv[1], SACConfig())"


def open_elsewhere(path):
    """What another process writes to stderr when it opens the run."""
    command = [sys.executable, "-c", OPEN, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stderr


@pytest.mark.parametrize("change", ["removed", "renamed"])
def test_a_lock_belongs_to_its_file_and_not_to_the_path(tmp_path, change):
    path, other = tmp_path / "run", tmp_path / "renamed"
    first = open_run(path, SACConfig())
    if change == "removed":
        shutil.rmtree(path)
        open_run(path, SACConfig())
    else:
        path = path.rename(other)
        open_run(path, SACConfig())
    assert f"(process {os.getpid()} is)" in open_elsewhere(path)
    with pytest.raises(StorageError, match="was removed or replaced since this run was opened"):
        first.log(env_step=1, gradient_step=1)


@pytest.mark.parametrize("lost", ["directory", "lock"])
def test_a_run_whose_directory_another_process_took_writes_nothing_more(tmp_path, lost):
    run = open_run(tmp_path / "run", SACConfig())
    if lost == "directory":
        shutil.rmtree(run.path)
    else:
        (run.path / "lock").unlink()
    assert open_elsewhere(run.path) == ""
    before = (run.path / "metrics.csv").read_bytes()
    for write in (lambda: run.log(gradient_step=1), run.sync_metrics, lambda: run.cut_metrics(0)):
        with pytest.raises(StorageError, match=r"was removed or replaced") as error:
            write()
        assert "\n" not in str(error.value)
    assert (run.path / "metrics.csv").read_bytes() == before


def test_a_forked_child_does_not_hold_its_parent_s_run(tmp_path):
    open_run(tmp_path, SACConfig())
    read, write = os.pipe()
    if not (child := os.fork()):
        try:
            open_run(tmp_path, SACConfig())
            os.write(write, b"admitted")
        except ParameterError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert f"(process {os.getpid()} is)" in os.read(read, 1000).decode()


def test_a_held_lock_does_not_name_a_process_that_has_ended(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    (tmp_path / "lock").write_text(f"{ended.pid}\n")
    with (tmp_path / "lock").open() as left:
        fcntl.flock(left, fcntl.LOCK_EX)
        with pytest.raises(ParameterError) as error:
            open_run(tmp_path, SACConfig())
    assert "a run that no other process is writing to, got" in str(error.value)


def test_a_second_thread_may_not_train_in_the_same_run(tmp_path):
    run = open_run(tmp_path, SACConfig())
    who = rf"no other thread is training \(process {os.getpid()}, this one, is\)"
    with run_lock.training(run.path):
        with pytest.raises(ParameterError, match=who):
            labkit.train(SACConfig(), run)
        with pytest.raises(ParameterError, match=who):
            open_run(tmp_path, SACConfig())
        open_run(tmp_path / "another", SACConfig())
    assert open_run(tmp_path, SACConfig()) == run


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", "{", r"config\.json is damaged"),
        ("config.json", "[]", r"config\.json is damaged"),
        ("config.json", "[" * 100_000, r"config\.json is damaged"),
        (
            "config.json",
            '{"format": 99, "config": {}}',
            "has format 99; this labkit reads format 1",
        ),
        (
            "config.json",
            '{"format": 1, "config": {"gamma": 7}}',
            "damaged: `gamma` must be .*, got 7",
        ),
        ("config.json", '{"format": 1, "config": {"new": 7}}', "damaged: `new` is not a parameter"),
        (
            "metrics.csv",
            "env_step,gradient_step\n",
            r"metrics\.csv is damaged: it lacks the column",
        ),
        ("metrics.csv", "", r"metrics\.csv cannot be read"),
        ("metrics.csv", None, r"metrics\.csv cannot be read"),
    ],
)
def test_damaged_runs_are_named_and_left_alone(tmp_path, file, content, message):
    open_run(tmp_path, SACConfig())
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(content)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(ParameterError, match=message) as caught:
        choose_directory(tmp_path, SACConfig())
    assert "\n" not in str(caught.value)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_metrics_come_back_as_written(tmp_path):
    run = Run.create(tmp_path, SACConfig())
    run.log(env_step=5, gradient_step=2, critic_loss=0.25)
    evaluation = Evaluation((1.5, -2.0), (10.0, 1000.0), (0.5, float("nan")))
    run.log_evaluation(evaluation, env_step=6, gradient_step=3, wall_seconds=1.23456)
    table = run.metrics()
    assert table.critic_loss[0] == 0.25
    assert table.eval_returns[0] == ()
    assert table.eval_return[1] == -0.25
    assert table.eval_returns[1] == (1.5, -2.0)
    assert table.eval_distances[1][0] == 0.5
    assert table.wall_seconds[1] == 1.235
    with pytest.raises(ValueError, match="no column"):
        run.log(reward=1)


def test_start_run_takes_what_is_its_own(tmp_path):
    namespace = {"seed": 3.0, "run_dir": str(tmp_path / "x"), "__name__": "?", "anything": object()}
    run = start_run(namespace)
    assert run.config == SACConfig(seed=3)
    assert (run.path / "config.json").exists()


def test_start_run_resumes_unless_told_otherwise(tmp_path):
    paths = [
        start_run({"run_dir": str(tmp_path / "x"), **more}).path.name
        for more in ({}, {}, {"resume": "never"}, {"resume": "auto"})
    ]
    assert paths == ["x", "x", "x-2", "x"]


def test_a_run_without_a_target_entropy_had_that_of_tf_agents(tmp_path):
    open_run(tmp_path, SACConfig(target_entropy=-8))
    content = json.loads((tmp_path / "config.json").read_text())
    del content["config"]["target_entropy"]
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert read_config(tmp_path).target_entropy == -4.0
