"""The Ray executor's parts one by one, and what it rejects; without Ray."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from ray.exceptions import RayActorError, RayTaskError
from ray_processes import Line

import labkit
from labkit.distributed import cluster, driver, replay_actor
from labkit.distributed.cluster import ParameterServer
from labkit.errors import ActorLostError, DivergedError, ParameterError, StalledError
from labkit.replay import reverb_replay
from labkit.replay.server import LimiterState, free_port
from labkit.replay.transitions import Layout, Transition
from labkit.replay.uniform_replay import UniformReplay
from labkit.training import checkpoint
from labkit.training.records import describe

LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_collectors": 0}, r"`num_collectors` must be a whole number from 1.*, got 0"),
        ({"num_collectors": "two"}, r"`num_collectors` must be .*, got 'two'"),
        ({"address": "localhost:1"}, r"`address` must be .*refused.*, got 'localhost:1'"),
        ({"address": "nowhere"}, r"`address` must be .*, got 'nowhere'"),
        ({"address": ""}, r"`address` must be None, 'auto', or host:port of .*, got ''"),
        ({"max_episode_steps": 0}, r"`max_episode_steps` must be .* or None\), got 0"),
        (
            {"make_env": lambda: Line(LOCK)},
            r"`make_env` must be a class or a function that Ray can pickle .*lock.*, got <function",
        ),
    ],
)
def test_what_it_rejects(small_config, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match=f"^{message}") as caught:
        labkit.train_on_ray(small_config(env_name="Line"), **{"make_env": Line, **arguments})
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("runs/*")), "nothing was begun"


def test_only_reverb_can_be_written_to_from_other_processes(small_config):
    with pytest.raises(ParameterError, match=r"`replay` must be .*, got 'tf_uniform'"):
        labkit.train_on_ray(small_config(replay="tf_uniform"))


def test_a_run_in_another_way_is_rejected_before_ray_starts(small_config, tmp_path):
    config = small_config(env_name="Line")
    run = labkit.open_run(tmp_path, config)
    run.check_environment({**describe(labkit.make_environment(Line)), "executor": "local"})
    rows = UniformReplay(Layout(1, 1), 10)
    checkpoint.save(tmp_path / "checkpoints", 7, [np.ones(1)], {}, rows)
    found = r"executor: local there and ray here; .*max_episode_steps: None there and 3 here"
    with pytest.raises(ParameterError, match=found):
        labkit.train_on_ray(config, run=run, make_env=Line, max_episode_steps=3)


# --- replay


def test_the_limiter_holds_the_configured_ratio(small_config):
    per_insert, first, buffer = replay_actor.limits(labkit.SACConfig())
    drawn = "half of a batch is reflections, and half of the rest is recent"
    assert (per_insert, first, buffer) == (64, 5_000, 6_400), drawn
    without = labkit.SACConfig(recent_transitions=0, symmetry_augmentation=False)
    assert replay_actor.limits(without) == (256, 5_000, 25_600)
    slow = small_config(collect_steps_per_iteration=4, steps_per_call=1_000)
    assert replay_actor.limits(slow) == (2, 300, 8 * 4_000)
    tight = small_config(initial_collect_steps=5_000)  # more than the table holds
    assert replay_actor.limits(tight)[1] == tight.replay_buffer_capacity


def samples_are_blocked(state: LimiterState) -> bool:
    """Whether Reverb's rate limiter blocks the next sample."""
    return state.size < state.min_size or state.balance - 1 < state.min_diff


def test_no_sample_is_drawn_before_the_whole_warm_up_is_inserted(small_config, tmp_path):
    """Also where the table holds less than that: `labkit.train` completes its warm-up, too."""
    tight = small_config(initial_collect_steps=1_000, replay_buffer_capacity=100)
    address = f"localhost:{free_port()}"
    context = SimpleNamespace(config=tight, checkpoints=tmp_path, server_address=address)
    actor = replay_actor.ReplayActor(context, Layout(2, 1))
    actor.open("")
    per_insert, _, buffer = replay_actor.limits(tight)
    ahead = int(buffer / per_insert)  # rows that may be missing from the ratio
    for row in range(tight.initial_collect_steps + ahead):
        if row == tight.initial_collect_steps - ahead - 1:
            actor._table.flush()
            assert samples_are_blocked(actor._table.state())
        actor._table.write(Transition([row, row], [0], 0, 1, [0, 0]))
    actor._table.flush()
    assert not samples_are_blocked(actor._table.state())
    actor._table.close()


def test_the_replay_actor_opens_a_checkpoint_and_keeps_a_newer_table(tmp_path, monkeypatch):
    layout, folder = Layout(2, 1), tmp_path / "checkpoints"
    config = labkit.SACConfig(replay_buffer_capacity=100, batch_size=32, recent_transitions=0)
    context = SimpleNamespace(
        config=config, checkpoints=folder, server_address=f"localhost:{free_port()}"
    )
    table = reverb_replay.ReverbReplay(layout, 100, tmp_path / "table")
    for t in range(10):
        table.write(Transition([t, t], [t], t, 1, [t, t]))
    saved = checkpoint.save(folder, 100, [np.ones(1)], {}, table)
    table.close()

    actor = replay_actor.ReplayActor(context, layout)
    assert actor.status()["inserts"] is None
    monkeypatch.setattr(replay_actor, "START_SECONDS", 0)
    with pytest.raises(StalledError, match="restarted during a checkpoint"):
        actor.save(str(folder / "partial"))  # as Ray repeats the call after a restart
    assert not (folder / "partial").exists()
    actor.open(saved.name)
    assert actor.status()["inserts"] == 10
    actor._table.write(Transition([0, 0], [0], 0, 1, [0, 0]))
    actor._table.flush()
    actor.open(saved.name)
    assert actor.status()["inserts"] == 11, "a restarted learner finds the newer rows"
    (folder / "partial").mkdir()  # a killed learner's
    actor.save(str(folder / "partial"))
    assert (folder / "partial" / "DONE").exists()
    actor._table.close()


# --- parameter server


def test_the_parameter_server_measures_staleness(monkeypatch):
    server, nan = ParameterServer(), float("nan")
    assert server.pull(None, 0, 0, nan) is None
    assert np.isnan(server.push(10, 1_010, np.ones(3, np.float32)))
    version, env_step, weights = server.pull(None, 0, worker=0, mean_return=2.0)
    assert (version, env_step) == (10, 1_010)
    np.testing.assert_array_equal(weights, [1, 1, 1])
    assert server.pull(10, 1_010, 1, mean_return=4.0) is None
    assert server.push(60, 1_070, np.zeros(3, np.float32)) == 3.0
    assert server.pull(10, 1_010, 0, 2.0)[0] == 60
    assert server.pull(60, 1_070, 0, 2.0) is None
    told = server.status()
    assert (told["staleness_median"], told["staleness_max"]) == (0, 60)  # of 0, 60, 0


# --- failures


def dead():
    return RayActorError(error_msg="The actor died.\n" + "a1" * 28 + " was lost: out of memory.")


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (RayTaskError("work", "", DivergedError("a loss is NaN")), DivergedError, "a loss is NaN"),
        (RayTaskError("work", "", ParameterError("no")), ParameterError, "no"),
        (dead(), ActorLostError, "learner failed and could not be restarted: .* out of memory."),
        (RayTaskError("work", "", dead()), ActorLostError, "learner failed and could not be .*"),
    ],
)
def test_the_error_of_an_actor_is_one_line(monkeypatch, error, expected, message):
    def get(_ref):
        raise error

    monkeypatch.setattr(cluster.ray, "get", get)
    with pytest.raises(expected, match=f"^{message}$") as caught:
        cluster.fetch("learner", "reference")
    assert type(caught.value) is expected


@pytest.fixture
def answers(monkeypatch):
    """What each reference holds; `poll` finds all of them ready."""
    held = {}

    def get(ref):
        if isinstance(held[ref], Exception):
            raise held[ref]
        return held[ref]

    monkeypatch.setattr(cluster.ray, "get", get)
    monkeypatch.setattr(cluster.ray, "wait", lambda refs, **_: ([r for r in refs if r in held], []))
    return held


def test_another_process_is_a_failure_and_silence_is_an_error(answers, monkeypatch):
    monkeypatch.setattr(cluster.ray, "available_resources", lambda: {"CPU": 2.0})
    made = cluster.ActorSupervisor(limit=60)
    learner = made.actors["learner"] = cluster.SupervisedActor("learner", None, work="work")
    for process, step, failed in (("a", 3, False), ("a", 5, False), ("b", 1, True)):
        answers["learner"] = {"process": process, "step": step}
        learner.pending = "learner"
        assert bool(list(made.poll(0.1))) == failed
    assert learner.before["step"] == 5
    answers.clear()
    learner.pending = "learner"
    assert not list(made.poll(0.1))
    learner.answered_at -= 61
    expected = "learner has not answered for 60 s; Ray has 2 free CPUs"
    with pytest.raises(StalledError, match=expected):
        list(made.poll(0.1))
    answers["work"] = dead()
    with pytest.raises(ActorLostError, match=r"^learner failed"):
        list(made.poll(0.1))


@pytest.mark.parametrize(
    ("name", "before", "env_steps", "gradient_steps"),
    [
        ("rollout worker 3", {}, 2 * reverb_replay.UNCONFIRMED - 1 + 4, 0),
        ("replay", {"inserts": 530}, 90, 50),
        ("learner", {"step": 260, "saved_step": 200}, 0, 60),
        ("evaluator", {}, 0, 0),
    ],
)
def test_what_a_failure_costs(monkeypatch, capsys, name, before, env_steps, gradient_steps):
    killed = []
    monkeypatch.setattr("ray.kill", lambda handle, no_restart: killed.append(handle))
    status = {"step": 250, "saved_step": 200, "saved_env_step": 440}
    learner = cluster.SupervisedActor("learner", "its handle", status=status)
    failed = cluster.SupervisedActor(name, None)
    failed = learner if name == "learner" else failed
    failed.before, failed.failed_for = before, 4.2
    made = driver.Driver.__new__(driver.Driver)
    made.config, made.faults = labkit.SACConfig(n_step=5), []
    made.actors = {"learner": learner}
    made._report(failed)
    (fault,) = made.faults
    assert (fault["actor"], fault["seconds"]) == (name, 4.2)
    assert (fault["env_steps_lost"], fault["gradient_steps_lost"]) == (env_steps, gradient_steps)
    assert f"{name} failed and was restarted after 4 s" in capsys.readouterr().out
    assert killed == (["its handle"] if name == "replay" else []), "restarts with its table"
