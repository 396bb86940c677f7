"""Checkpoints: all of a run comes back, damage is named, and a crash costs only what came after."""

import os
import signal
import subprocess
import sys
import time
import tracemalloc
import zipfile
from pathlib import Path

import gym
import numpy as np
import pytest
import tensorflow as tf
import torture
import torture_files
from small_disk import fill, may_mount, small_disk

import labkit
from labkit.errors import ParameterError, StalledError, StorageError
from labkit.replay import reverb_replay, transitions, uniform_replay
from labkit.replay.transitions import Transition
from labkit.training import checkpoint
from labkit.training.records import read_metrics

LAYOUT = transitions.Layout(2, 1)
ARRAYS = [np.arange(6, dtype=np.float32).reshape(2, 3), np.array(7, np.int64)]


@pytest.fixture(params=[reverb_replay.ReverbReplay, uniform_replay.UniformReplay])
def table(tmp_path, request):
    """A table with 30 transitions."""
    folder = [tmp_path / "reverb"] if request.param is reverb_replay.ReverbReplay else []
    table = request.param(LAYOUT, 100, *folder)
    for t in range(30):
        table.write(Transition([t, t], [t], t, 1, [t, t]))
    table.flush()
    yield table
    table.close()


def variables():
    return [tf.Variable(np.zeros((2, 3), np.float32)), tf.Variable(np.int64(0))]


def rows(table):
    return {tuple(row) for _ in range(20) for row in table.sample(64).tolist()}


def test_what_is_saved_is_loaded_and_only_two_are_kept(table, tmp_path):
    folder, before = tmp_path / "checkpoints", rows(table)
    for step in (5, 10, 15):
        checkpoint.save(folder, step, ARRAYS, {"note": step}, table)
    assert checkpoint.steps(folder) == [10, 15]
    saved, restored = checkpoint.latest(folder), variables()
    checkpoint.check(saved)
    checkpoint.assign(restored, saved)
    for ours, theirs in zip(restored, ARRAYS, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert checkpoint.read_state(saved)["note"] == checkpoint.read_state(saved)["step"] == 15
    table.write(Transition([99, 99], [0], 0, 1, [0, 0]))
    table.restore(saved / "replay")
    assert (table.size(), rows(table)) == (30, before)


def damage(file, how):
    content = bytearray(file.read_bytes())
    if how == "flipped":  # in a ZIP archive, the last byte of an array: headers hold dates, too
        directory = content.find(b"PK\x01\x02")
        content[directory - 1 if directory > 0 else len(content) // 2] ^= 4
    file.write_bytes({"cut": content[: len(content) // 2], "empty": b""}.get(how, content))
    if how == "missing":
        file.unlink()


@pytest.mark.parametrize("how", ["flipped", "cut", "empty", "missing"])
def test_damage_to_any_file_is_named_and_the_older_checkpoint_is_used(table, tmp_path, how, capsys):
    folder = tmp_path / "checkpoints"
    for step in (5, 10):
        newest = checkpoint.save(folder, step, ARRAYS, {}, table)
    names = [file.relative_to(newest) for file in newest.rglob("*") if file.stat().st_size]
    files = [name for name in names if (newest / name).is_file()]
    assert {"agent.npz", "state.json"} < {str(name) for name in files}
    for name in files:
        damage(newest / name, how)
        checkpoint.set_aside_damaged(folder)
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith(str(newest / name)), line
        assert line.endswith("and the run resumes from gradient step 5")
        assert checkpoint.steps(folder) == [5]
        (folder / "damaged-000000010").rename(tmp_path / str(name).replace("/", "-"))
        checkpoint.save(folder, 10, ARRAYS, {}, table)


def test_without_a_whole_checkpoint_nothing_is_changed(table, tmp_path):
    folder = tmp_path / "checkpoints"
    for step in (5, 10):
        damage(checkpoint.save(folder, step, ARRAYS, {}, table) / "agent.npz", "flipped")
    with pytest.raises(ParameterError, match=r"10/agent\.npz is .*; .* holds no whole checkpoint"):
        checkpoint.set_aside_damaged(folder)
    assert checkpoint.steps(folder) == [5, 10]


def test_other_networks_and_pickles_are_rejected_before_anything_is_assigned(table, tmp_path):
    saved, (first, second) = checkpoint.save(tmp_path / "c", 1, ARRAYS, {}, table), variables()
    with pytest.raises(ParameterError, match=r"number 1 has the shape \(\), not \(2,\)"):
        checkpoint.assign([first, tf.Variable([1.0, 2.0])], saved)
    with pytest.raises(ParameterError, match=r"the 1 variables of this agent, got 2 arrays"):
        checkpoint.assign([first], saved)
    assert not first.numpy().any()
    checkpoint.assign([first], saved, partly=True)
    assert first.numpy().any()
    np.savez(saved / "agent.npz", **{"0": ARRAYS[0], "1": np.array({"a": 1}, dtype=object)})
    with pytest.raises(ParameterError, match=r"agent\.npz is damaged"):
        checkpoint.assign([first, second], saved)


def test_a_bomb_is_rejected_by_its_header(table, tmp_path):
    saved = checkpoint.save(tmp_path / "c", 1, ARRAYS, {}, table)
    with zipfile.ZipFile(saved / "agent.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("0.npy", "1.npy"):
            with archive.open(name, "w") as stream:
                np.lib.format.write_array(stream, np.zeros((3_000, 1_000)))
    tracemalloc.start()
    with pytest.raises(ParameterError, match=r"number 0 has the shape \(3000, 1000\)"):
        checkpoint.assign(variables(), saved)
    assert tracemalloc.get_traced_memory()[1] < 2e6
    tracemalloc.stop()


def test_a_checkpoint_outlasts_a_power_failure(table, tmp_path, monkeypatch):
    """Everything is on the disk before the rename, and the rename before `save` returns."""
    flushed = []
    monkeypatch.setattr(checkpoint, "flush_to_disk", flushed.append)
    folder = tmp_path / "checkpoints"
    final = checkpoint.save(folder, 4, [np.ones(9)], {}, table)
    written = {folder / "partial" / file.relative_to(final) for file in final.rglob("*")}
    assert written | {folder / "partial"} == set(flushed[:-2])
    assert flushed[-2:] == [folder, tmp_path]


def test_a_disk_that_fills_up_leaves_the_previous_checkpoint(table, tmp_path):
    with small_disk(tmp_path / "disk", 1_024) as disk:
        folder = disk / "checkpoints"
        checkpoint.save(folder, 1, ARRAYS, {}, table)
        fill(disk, leave=8_192)
        with pytest.raises(StorageError, match=r"no checkpoint .* at gradient step 2 \(No space"):
            checkpoint.save(folder, 2, [np.zeros(200_000)], {}, table)
        assert [path.name for path in folder.iterdir()] == ["000000001"], "room was made again"
        checkpoint.check(checkpoint.latest(folder))


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        # TensorFlow calls ENOSPC a resource that is exhausted, and Reverb makes this of it.
        (IndexError("No space left"), StorageError, r"at gradient step 1 \(No space left\)"),
        (StalledError("the server is gone"), StalledError, r"^the server is gone$"),
    ],
)
def test_what_reverb_raises_is_named(tmp_path, raised, expected, message):
    class Broken:
        def save(self, target):
            raise raised

    with pytest.raises(expected, match=message):
        checkpoint.save(tmp_path / "checkpoints", 1, [], {}, Broken())
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_link_that_appears_during_a_run_is_not_written_through(table, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "checkpoints").symlink_to(tmp_path / "mine")
    with pytest.raises(StorageError, match="is a symbolic link"):
        checkpoint.save(tmp_path / "checkpoints", 1, ARRAYS, {}, table)
    assert not list((tmp_path / "mine").iterdir())


# --- whole runs, which are killed


class Counter(gym.Env):
    """Observes how often it was stepped in this life, in episodes of 50 steps."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    steps = 0

    def reset(self):
        return np.array([self.steps / 1e4], np.float32)

    def step(self, action):
        self.steps += 1
        observation = np.array([self.steps / 1e4], np.float32)
        return observation, float(action[0]), self.steps % 50 == 0, {}


def train(make_env=Counter):
    """Trains in `runs/`, as a user's script does."""
    from small import SMALL

    fields = {"num_iterations": 400, "log_interval": 10, "eval_interval": 100}
    fields |= {"env_name": "Counter", "checkpoint_interval": 40}
    return labkit.train(labkit.SACConfig(**{**SMALL, **fields}), make_env=make_env)


def script(folder):
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", "import test_checkpoint; test_checkpoint.train()"],
        **{"cwd": folder, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE},
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_script_that_was_terminated_or_killed_resumes_when_it_runs_again(tmp_path):
    """SIGINT is tested in `test_local`, in this process."""
    folder = tmp_path / "runs" / "0001" / "checkpoints"
    for number in (signal.SIGTERM, signal.SIGKILL):
        before, deadline = checkpoint.latest(folder), time.monotonic() + 200
        process = script(tmp_path)
        while checkpoint.latest(folder) == before and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(number)
        out, err = process.communicate(timeout=100)
        stopped = checkpoint.steps(folder)[-1]
        if number == signal.SIGTERM:
            assert process.returncode == 0, err
            assert f"stopped at gradient step {stopped} of 400; run this again to resume" in out
        else:
            assert "runs/0001 is an unfinished run of this configuration" in out
    out, err = (process := script(tmp_path)).communicate(timeout=200)
    assert process.returncode == 0, err
    assert f"it resumes from gradient step {stopped} " in out
    table = read_metrics(tmp_path / "runs" / "0001")
    logged = table.gradient_step[table.critic_loss.notna()].tolist()
    assert logged == list(range(10, 401, 10)), "every logged step once, none missing"
    assert table.gradient_step[table.eval_return.notna()].tolist() == [0, 100, 200, 300, 400]
    assert (table.env_step == 300 + table.gradient_step).all()
    assert (np.diff(table.wall_seconds) >= 0).all()


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "kills"), [("reverb", 2), pytest.param("tf_uniform", 1, marks=pytest.mark.slow)]
)
def test_a_killed_run_loses_nothing(tmp_path, kind, kills):
    """Item by item, weight by weight, step by step; `make torture` does it twenty times."""
    seen = torture.torture(tmp_path, kills, steps=600, kind=kind)
    assert seen["kills"] == seen["resumed"] == kills
    assert seen["compared_rows"] > 800


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_damaged_files_and_a_full_disk_lose_nothing():
    """Each kind of damage once; `make torture ARGS='--rounds 100'` does it at many places."""
    played = torture_files.torture_files(len(torture_files.ROUNDS))
    skipped = 0 if may_mount() else torture_files.ROUNDS.count(torture_files.full_disk)
    assert sum(played.values()) == len(torture_files.ROUNDS) - skipped
