"""Checkpoints: all or nothing, read without code, and enough to go on as if never stopped."""

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import torture
import torture_files
from small_disk import may_mount

import labkit
from labkit import runtime
from labkit.environments.make import make_environment
from labkit.errors import ParameterError, StalledError, StorageError
from labkit.replay import reverb_replay, transitions, uniform_replay
from labkit.replay.transitions import Transition
from labkit.sac import agent as agents
from labkit.sac.rollout import Evaluation
from labkit.sac.update import make_update
from labkit.strategy import make_strategy
from labkit.training import checkpoint
from labkit.training.run import open_run, read_metrics

LAYOUT = transitions.Layout(2, 1)


@pytest.fixture(params=[reverb_replay.ReverbReplay, uniform_replay.UniformReplay])
def table(tmp_path, request):
    if request.param is reverb_replay.ReverbReplay:
        table = reverb_replay.ReverbReplay(LAYOUT, 100, tmp_path / "reverb")
    else:
        table = uniform_replay.UniformReplay(LAYOUT, 100)
    for t in range(30):
        table.write(Transition([t, t], [t], t, 1, [t, t]))
    table.flush()
    yield table
    table.close()


def held(table, distinct):
    seen = set()
    for _ in range(30):
        seen |= {tuple(row) for row in table.sample(64).tolist()}
        if len(seen) >= distinct:
            break
    return seen


def test_what_is_saved_is_loaded_and_only_two_are_kept(table, tmp_path):
    folder = tmp_path / "checkpoints"
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3), np.array(7, np.int64)]
    for step in (5, 10, 15):
        checkpoint.save(folder, step, arrays, {"note": step}, table)
    assert checkpoint.steps(folder) == [10, 15]
    loaded, state = checkpoint.load(checkpoint.latest(folder))
    assert state["note"] == state["step"] == 15
    for ours, theirs in zip(arrays, loaded, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert checkpoint.size_bytes(folder) > 1_000


def test_the_table_comes_back_item_by_item(table, tmp_path):
    saved = checkpoint.save(tmp_path / "checkpoints", 1, [], {}, table)
    again = type(table)(LAYOUT, 100)
    again.restore(saved / "replay")
    assert again.size() == 30
    assert held(again, 30) == held(table, 30)
    for t in range(90):  # the oldest are still removed first
        again.write(Transition([1000 + t, 0], [0], 0, 1, [0, 0]))
    again.flush()
    assert {row[0] for row in held(again, 100) if row[0] < 1000} == set(map(float, range(20, 30)))
    again.close()


def test_a_damaged_table_is_named(table, tmp_path):
    saved = checkpoint.save(tmp_path / "c", 1, [], {}, table)
    file = (
        saved / "replay" / ("DONE" if isinstance(table, reverb_replay.ReverbReplay) else "rows.npz")
    )
    file.unlink()
    with pytest.raises(ParameterError, match=file.name) as error:
        table.restore(saved / "replay")
    assert "\n" not in str(error.value)
    assert len(held(table, 30)) == 30  # what was there is still there


@pytest.mark.parametrize("damage", ["truncate", "state", "missing", "format", "replay"])
def test_a_damaged_checkpoint_is_named(table, tmp_path, damage):
    saved = checkpoint.save(tmp_path / "c", 1, [np.ones(1000, np.float32)], {}, table)
    if damage == "truncate":
        with (saved / "agent.npz").open("r+b") as file:
            file.truncate(900)
    elif damage == "state":
        (saved / "state.json").write_text("{'")
    elif damage == "missing":
        (saved / "agent.npz").unlink()
    elif damage == "format":
        (saved / "state.json").write_text('{"format": 99}')
    else:
        shutil.rmtree(saved / "replay")
    with pytest.raises(ParameterError, match=r"000000001/(agent\.npz|state\.json|replay)") as e:
        checkpoint.load(saved)
    assert "\n" not in str(e.value)


def flip_bit(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def test_a_flipped_bit_in_any_file_is_found_and_the_older_checkpoint_is_used(
    table, tmp_path, capsys
):
    folder = tmp_path / "checkpoints"
    arrays = [np.arange(6, dtype=np.float32)]
    checkpoint.save(folder, 1, arrays, {}, table)
    newest = checkpoint.save(folder, 2, arrays, {}, table)
    files = [f for f in newest.rglob("*") if f.is_file() and f.stat().st_size]
    assert {f.name for f in files} >= {"agent.npz", "state.json", checkpoint.CHECKSUMS}
    for file in files:
        whole = file.read_bytes()
        flip_bit(file)
        with pytest.raises(ParameterError, match=re.escape(f"{file} is damaged: ")):
            checkpoint.check(newest)
        file.write_bytes(whole)
        checkpoint.check(newest)
    flip_bit(files[0])
    checkpoint.set_aside_damaged(folder)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{files[0]} is damaged: ")
    assert line.endswith("damaged-000000002, and the run resumes from gradient step 1")
    assert checkpoint.latest(folder).name == "000000001"
    checkpoint.set_aside_damaged(folder)
    assert capsys.readouterr().out == ""


def test_an_emptied_checkpoint_is_set_aside(table, tmp_path, capsys):
    for step in (1, 2):
        newest = checkpoint.save(tmp_path / "c", step, [np.ones(9)], {}, table)
    shutil.rmtree(newest)
    newest.mkdir()
    checkpoint.set_aside_damaged(tmp_path / "c")
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(
        f"{newest / 'state.json'} is missing: this checkpoint cannot be used; it"
    )
    assert line.endswith("damaged-000000002, and the run resumes from gradient step 1")
    assert checkpoint.steps(tmp_path / "c") == [1]


def test_a_step_that_is_damaged_twice_keeps_both(table, tmp_path):
    for text in ("first", "second"):
        for step in (1, 2):
            newest = checkpoint.save(tmp_path / "c", step, [np.ones(9)], {}, table)
        (newest / "state.json").write_text(text)
        checkpoint.set_aside_damaged(tmp_path / "c")
    kept = sorted((tmp_path / "c").glob("damaged-*"))
    assert [path.name for path in kept] == ["damaged-000000002", "damaged-000000002-2"]
    assert [(path / "state.json").read_text() for path in kept] == ["first", "second"]


def test_other_names_between_the_checkpoints_are_left_alone(table, tmp_path):
    others = ["5", "²", "00000000²", "0000000005", "99999999999", "mine"]
    for name in others:
        (tmp_path / "c" / name).mkdir(parents=True)
    for step in (6, 7, 8):
        checkpoint.save(tmp_path / "c", step, [np.ones(9)], {}, table)
    assert checkpoint.steps(tmp_path / "c") == [7, 8]
    found = {path.name for path in (tmp_path / "c").iterdir()}
    assert found == {*others, "000000007", "000000008"}


def test_without_any_whole_checkpoint_the_newest_damage_is_named(table, tmp_path):
    folder = tmp_path / "checkpoints"
    for step in (1, 2):
        flip_bit(checkpoint.save(folder, step, [np.ones(9)], {}, table) / "agent.npz")
    with pytest.raises(ParameterError, match=r"000000002/agent\.npz is damaged: .* no whole ") as e:
        checkpoint.set_aside_damaged(folder)
    assert "\n" not in str(e.value)
    assert checkpoint.steps(folder) == [1, 2]


def test_a_checkpoint_without_checksums_is_read(table, tmp_path):
    """Version 0.1 wrote none."""
    saved = checkpoint.save(tmp_path / "c", 3, [np.ones(9)], {}, table)
    (saved / checkpoint.CHECKSUMS).unlink()
    checkpoint.set_aside_damaged(tmp_path / "c")
    assert checkpoint.load(saved)[1]["step"] == 3


@pytest.mark.parametrize("damage", ["empty", "flipped"])
@pytest.mark.parametrize("name", ["tables.tfrecord", "chunks.tfrecord", "items.tfrecord"])
def test_a_damaged_snapshot_is_one_line(tmp_path, name, damage, capfd):
    """Also without checksums: Reverb ended the process, raised, or began with an empty table."""
    snapshot = tmp_path / "replay"
    shutil.copytree(
        Path(__file__).parents[1] / "data/run_0.1/reverb/checkpoints/000000060", snapshot
    )
    snapshot = snapshot / "replay"
    if damage == "empty":
        (snapshot / name).write_bytes(b"")
    else:
        flip_bit(snapshot / name)
    with pytest.raises(ParameterError, match=r"replay.* is damaged: ") as error:
        reverb_replay.ReverbReplay(LAYOUT, 100, snapshot=snapshot)
    assert "\n" not in str(error.value)
    assert capfd.readouterr().err == ""


def test_a_checkpoint_outlasts_a_power_failure(table, tmp_path, monkeypatch):
    """Everything is on the disk before the rename, and the rename before `save` returns."""
    flushed = []
    monkeypatch.setattr(checkpoint, "flush_to_disk", lambda path: flushed.append(path))
    folder = tmp_path / "checkpoints"
    final = checkpoint.save(folder, 4, [np.ones(9)], {}, table)
    written = {folder / "partial" / f.relative_to(final) for f in final.rglob("*")}
    assert written | {folder / "partial"} == set(flushed[:-2])
    assert flushed[-2:] == [folder, tmp_path]


def test_a_pickle_in_disguise_is_not_opened(table, tmp_path):
    saved = checkpoint.save(tmp_path / "c", 1, [], {}, table)
    np.savez(saved / "agent.npz", **{"0000": np.array([{"a": 1}], dtype=object)})
    (saved / checkpoint.CHECKSUMS).unlink()  # somebody else's would fit
    with pytest.raises(ParameterError, match=r"agent\.npz is damaged"):
        checkpoint.load(saved)


def test_a_folder_that_vanished_is_named_and_says_what_is_safe(table, tmp_path):
    folder = tmp_path / "file" / "checkpoints"
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(StorageError, match=r"no checkpoint .* at gradient step 3 \("):
        checkpoint.save(folder, 3, [], {}, table)


def test_a_full_disk_under_reverb_is_named(tmp_path):
    class Full:
        def save(self, target):
            # TensorFlow calls ENOSPC a resource that is exhausted, and Reverb makes this of it.
            raise IndexError("No space left on device")

    with pytest.raises(StorageError, match=r"gradient step 1 \(No space left on device\)"):
        checkpoint.save(tmp_path / "checkpoints", 1, [], {}, Full())
    assert list((tmp_path / "checkpoints").iterdir()) == [], "what fills the disk is removed"


def test_a_stalled_server_is_not_taken_for_a_full_disk(tmp_path):
    class Gone:
        def save(self, target):
            raise StalledError("the replay actor was restarted during a checkpoint")

    with pytest.raises(StalledError, match=r"^the replay actor was restarted"):
        checkpoint.save(tmp_path / "checkpoints", 1, [], {}, Gone())


def test_the_same_step_again_leaves_the_old_one_until_the_new_one_is_there(
    tmp_path, monkeypatch, request
):
    table = reverb_replay.ReverbReplay(LAYOUT, 100, tmp_path / "reverb")
    request.addfinalizer(table.close)
    folder, deleted = tmp_path / "checkpoints", []

    def rmtree(path, **options):
        if Path(path).name == "deleted" and Path(path).exists():
            deleted.append(checkpoint.load(checkpoint.latest(folder))[1]["note"])
        real(path, **options)

    real = shutil.rmtree
    monkeypatch.setattr(checkpoint.shutil, "rmtree", rmtree)
    for note in ("first", "second"):
        checkpoint.save(folder, 7, [], {"note": note}, table)
    assert deleted == ["second"]


@pytest.mark.parametrize(("damaged", "kept"), [("", "second"), ("partial", "first")])
def test_a_kill_between_the_two_renames_loses_no_checkpoint(tmp_path, monkeypatch, damaged, kept):
    """The final one: it is saved twice, before and after its score."""
    path, table = tmp_path / "run", uniform_replay.UniformReplay(LAYOUT, 100)
    config = labkit.SACConfig(num_iterations=7, num_eval_episodes=1)
    run = open_run(path, config)
    checkpoint.save(path / "checkpoints", 7, [], {"note": "first"}, table)
    score = Evaluation((1.0,), (9.0,), (0.0,))
    run.log_evaluation(score, env_step=7, gradient_step=7, wall_seconds=1)
    rename = Path.rename

    def killed(self, target):
        if self.name == "partial":
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.save(path / "checkpoints", 7, [], {"note": "second"}, table)
    assert checkpoint.steps(path / "checkpoints") == []
    if damaged:
        flip_bit(path / "checkpoints" / damaged / "state.json")
    open_run(path, config)
    assert checkpoint.steps(path / "checkpoints") == [7]
    assert checkpoint.load(checkpoint.latest(path / "checkpoints"))[1]["note"] == kept


def test_a_run_whose_only_checkpoint_was_interrupted_is_not_taken_for_a_new_one(tmp_path):
    """Without rows, as if `log_interval` and `eval_interval` were 0."""
    open_run(tmp_path, labkit.SACConfig(seed=1))
    table = uniform_replay.UniformReplay(LAYOUT, 100)
    checkpoint.save(tmp_path / "checkpoints", 7, [], {}, table).rename(
        tmp_path / "checkpoints" / "partial"
    )
    with pytest.raises(ParameterError, match="seed is 1 there and 2 here"):
        open_run(tmp_path, labkit.SACConfig(seed=2))
    open_run(tmp_path, labkit.SACConfig(seed=1))
    assert checkpoint.steps(tmp_path / "checkpoints") == [7]


def test_an_unfinished_checkpoint_is_not_taken_for_a_whole_one(tmp_path, table):
    checkpoint.save(tmp_path, 7, [], {}, table)
    (tmp_path / "000000007").rename(tmp_path / "partial")
    (tmp_path / "partial" / "checksums.json").unlink()
    checkpoint.recover(tmp_path)
    assert checkpoint.steps(tmp_path) == []


def test_a_checkpoint_of_other_networks_is_rejected(tmp_path):
    variable = tf.Variable([1.0, 2.0])
    with pytest.raises(
        ParameterError, match=r"got 1 arrays: number 0 has the shape \(3,\), not \(2,\)"
    ):
        checkpoint.assign([variable], [np.zeros(3)], tmp_path)
    np.testing.assert_array_equal(variable, [1.0, 2.0])


def test_losses_after_a_resume_are_those_of_an_unbroken_run(small_config, random_rows):
    """The next 100 losses on the same batches, bit for bit."""
    env = make_environment("MinitaurBulletEnv-v0", seed=0)
    batches = [tf.constant(random_rows(32, seed)) for seed in range(130)]
    layout = transitions.layout_of(env)

    def fresh(seed):
        runtime.seed_everything(seed)
        strategy = make_strategy("cpu", 32)
        agent = agents.create_agent(small_config(), env, strategy)
        update = make_update(agent, layout, strategy)
        update.get_concrete_function(batches[0])
        return agent, update

    agent, update = fresh(0)
    for batch in batches[:30]:
        update(batch)
    saved = [v.numpy() for v in agents.state_variables(agent)]
    unbroken = [update(batch)[0].numpy() for batch in batches[30:]]
    other, resumed = fresh(1)
    variables = agents.state_variables(other)
    checkpoint.assign(variables, saved, Path("here"))
    np.testing.assert_array_equal(unbroken, [resumed(batch)[0].numpy() for batch in batches[30:]])


TESTS = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
RUN = """
import sys, labkit
sys.path[:0] = sys.argv[2:]
from test_checkpoint import Counter, config
labkit.train(config(), labkit.open_run(sys.argv[1], config()), make_env=Counter)
"""


def config():
    from conftest import SMALL

    return labkit.SACConfig(
        **{**SMALL, "num_iterations": 400, "log_interval": 10, "eval_interval": 100},
        env_name="Counter",
        checkpoint_interval=40,
    )


def make_counter():
    import gym

    class Counter(gym.Env):
        """Observes how often it was stepped in this life, in episodes of 50 steps."""

        observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        steps = 0

        def reset(self):
            return np.array([self.steps / 1e4], np.float32)

        def step(self, action):
            type(self).steps += 1
            observation = np.array([self.steps / 1e4], np.float32)
            return observation, float(action[0]), self.steps % 50 == 0, {}

    return Counter


Counter = make_counter()


def start(path):
    command = [sys.executable, "-c", RUN, str(path), *TESTS]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def check_metrics(path):
    """Every logged step once, none missing, in order."""
    table = read_metrics(path)
    logged = table.gradient_step[table.critic_loss.notna()].tolist()
    assert logged == list(range(10, 401, 10))
    assert table.gradient_step[table.eval_return.notna()].tolist() == [0, 100, 200, 300, 400]
    assert (table.env_step == 300 + table.gradient_step).all()
    assert (np.diff(table.wall_seconds) >= 0).all()


@pytest.mark.parametrize(
    ("kind", "kills"), [("reverb", 3), pytest.param("tf_uniform", 1, marks=pytest.mark.slow)]
)
def test_a_killed_run_loses_nothing(tmp_path, kind, kills):
    """Item by item, weight by weight, step by step; `make torture` does it twenty times."""
    seen = torture.torture(tmp_path, kills, steps=600, kind=kind)
    assert seen["kills"] == seen["resumed"] == kills
    assert seen["compared_rows"] > 800


def test_damaged_files_and_a_full_disk_lose_nothing():
    """Each kind of damage once; `make torture ARGS='--rounds 100'` does it at many places."""
    rounds = len(torture_files.ROUNDS)
    played = torture_files.torture_files(rounds)
    assert played == {
        "power_failure": 1,
        "damaged_checkpoint": 2,
        "damaged_metrics": 1,
        "no_whole_checkpoint": 1,
        "no_configuration": 1,
        "full_disk": 2 * may_mount(),
    }


def test_a_terminated_run_leaves_a_checkpoint_and_resumes(tmp_path):
    """SIGINT is tested in `test_local`, in this process."""
    path = tmp_path / "run"
    process = start(path)
    deadline = time.monotonic() + 90
    while not checkpoint.latest(path / "checkpoints") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert checkpoint.latest(path / "checkpoints"), "no checkpoint came"
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    stopped = checkpoint.steps(path / "checkpoints")[-1]
    assert f"stopped at gradient step {stopped} of 400; run this again to resume" in out
    assert (path / "policy" / "saved_model.pb").exists()
    process = start(path)
    process.communicate(timeout=120)
    check_metrics(path)
