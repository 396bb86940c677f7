"""The Ray executor: what it refuses, its parts one by one, and one small run."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import known_optimum
import numpy as np
import pytest
import reverb
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError
from ray_processes import ACTORS, LOOPBACK, Line, actor_pids, descendants, listening, wait_until

import labkit
from labkit.distributed import (
    context,
    driver,
    evaluation_queue,
    parameter_server,
    ray_cluster,
    ray_summary,
    replay_actor,
    supervisor,
    workers,
)
from labkit.distributed.evaluation_queue import EvaluationRequest, EvaluationRequester
from labkit.distributed.learner_actor import LearnerActor
from labkit.environments.make import make_environment
from labkit.errors import ActorLostError, DivergedError, ParameterError, StalledError
from labkit.replay import reverb_replay
from labkit.replay.transitions import Layout
from labkit.replay.uniform_replay import UniformReplay
from labkit.sac.rollout import Evaluation
from labkit.teaching import rate_limiter
from labkit.training import checkpoint
from labkit.training.run import RAY_SUMMARY, check_same_environment, open_run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_collectors": 0}, r"`num_collectors` must be a whole number from 1.*, got 0"),
        ({"num_collectors": "two"}, r"`num_collectors` must be .*, got 'two'"),
        ({"address": "localhost:1"}, r"`address` must be .*host:port.*, got 'localhost:1'"),
        ({"address": "nowhere"}, r"`address` must be .*, got 'nowhere'"),
        ({"address": 5}, r"`address` must be None, 'auto', or host:port of .*, got 5"),
        ({"max_episode_steps": 0}, r"`max_episode_steps` must be .* or None\), got 0"),
    ],
)
def test_what_it_rejects(small_config, tmp_path, arguments, message):
    settings = small_config(env_name="Line")
    run = open_run(tmp_path, settings)
    with pytest.raises(ParameterError, match=message):
        labkit.train_on_ray(settings, run=run, make_env=Line, **arguments)


def test_a_make_env_that_cannot_be_pickled_is_refused(small_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lock = threading.Lock()
    expected = (
        r"^`make_env` must be a class or a function that Ray can pickle .*lock.*, got <function"
    )
    with pytest.raises(ParameterError, match=expected) as caught:
        labkit.train_on_ray(small_config(env_name="Line"), make_env=lambda: Line(lock))
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


class Closing(Line):
    """Says when it is closed."""

    def close(self):
        print("closed")


def test_a_run_of_the_other_executor_is_refused_before_ray_starts(small_config, tmp_path, capsys):
    settings = small_config(env_name="Closing")
    run = open_run(tmp_path, settings)
    rows = UniformReplay(Layout(1, 1), 10)
    checkpoint.save(tmp_path / "checkpoints", 7, [np.ones(1)], {"executor": "local"}, rows)
    capsys.readouterr()
    with pytest.raises(ParameterError, match=r"a run of labkit\.train_on_ray: labkit\.train "):
        labkit.train_on_ray(settings, run=run, make_env=Closing)
    assert capsys.readouterr().out == "closed\n", "the environment does not stay open"


def test_a_run_of_another_environment_is_refused_before_ray_starts(small_config, tmp_path):
    settings = small_config(env_name="Line")
    run = open_run(tmp_path, settings)
    check_same_environment(run, make_environment(Line))
    run.log(gradient_step=5, env_step=305, critic_loss=1.0)  # it has trained
    with pytest.raises(ParameterError, match="max_episode_steps: None there and 3 here"):
        labkit.train_on_ray(settings, run=run, make_env=Line, max_episode_steps=3)


def test_another_version_of_ray_is_named_with_both_versions(monkeypatch):
    import ray
    from ray._private import utils

    def init(**options):  # Ray's own check
        theirs = {"ray_version": "2.59.0", "python_version": "3.11.2"}
        utils.check_version_info(theirs, "node 10.0.0.1")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray_cluster, "check_address", lambda address: None)
    expected = r"^`address` must be .*\(Version mismatch: .* Ray: 2\.59\.0 Python: 3\.11\.2 .*, got"
    with pytest.raises(ParameterError, match=expected) as caught:
        ray_cluster._connect("10.0.0.1:6379")
    assert "\n" not in str(caught.value)


def test_too_few_cpus_in_a_running_ray_are_refused(small_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = r"^`num_collectors` must be less than the 2 CPUs of the running Ray: .*, got 2$"
    with ray_cluster.connection(None, cpus=2):
        ray_cluster.check_cpus(1)
        with pytest.raises(ParameterError, match=expected):
            labkit.train_on_ray(small_config(env_name="Line"), 2, make_env=Line)
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


HANGS = """
import sys, time
from pathlib import Path
sys.path[:0] = sys.argv[2:]
import labkit
from labkit.distributed.context import RunContext
from ray_processes import Line

class Hanging(Line):
    def __init__(self):
        time.sleep(30)

class HangingInSeed(Line):
    def seed(self, seed=None):
        time.sleep(30)

config = labkit.SACConfig(env_name="Line", environment_timeout=1)
run = labkit.open_run(sys.argv[1], config)
"""


@pytest.mark.parametrize(
    "call",
    [
        "labkit.train_on_ray(config, run=run, make_env=Hanging)",  # the driver
        "RunContext(config, Hanging, run.path, '', '').environment(0)",  # an actor
        "RunContext(config, HangingInSeed, run.path, '', '').environment(0)",
    ],
)
def test_a_constructor_or_a_seed_that_hangs_is_killed_in_every_process(tmp_path, call):
    command = [sys.executable, "-c", HANGS + call, str(tmp_path), str(Path(__file__).parent)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1, ended.stderr[-2000:]
    assert "Timeout (0:00:01)!" in ended.stderr


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(b"", "there is no answer within 1 s"), (b"HTTP/1.1 400\r\n", "something else answers")],
)
def test_an_address_where_no_ray_answers_is_named_soon(monkeypatch, answer, reason):
    """Ray itself would wait silently for 200 s."""
    monkeypatch.setattr(ray_cluster, "CONNECT_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def serve():
            connected, _ = server.accept()
            connected.recv(100)
            connected.sendall(answer)
            threads.append(connected)  # open until the end of the test

        threads = [threading.Thread(target=serve, daemon=True)]
        threads[0].start()
        with pytest.raises(ParameterError, match=rf"^`address` must be .*\({reason}.*\), got"):
            ray_cluster.check_address(address)
        threads[0].join()
        threads[-1].close()


def test_only_reverb_can_be_written_to_from_other_processes(small_config):
    with pytest.raises(ParameterError, match=r"`replay` must be .*, got 'tf_uniform'"):
        labkit.train_on_ray(small_config(replay="tf_uniform"))


def test_the_limiter_holds_the_configured_ratio(small_config):
    per_insert, first, buffer = replay_actor.limits(labkit.SACConfig())
    assert (per_insert, first, buffer) == (128, 5_000, 12_800), "half of a batch is recent"
    uniform = labkit.SACConfig(recent_transitions=0)
    assert replay_actor.limits(uniform) == (256, 5_000, 25_600)
    slow = small_config(collect_steps_per_iteration=4, steps_per_call=1_000)
    assert replay_actor.limits(slow) == (4, 300, 16 * 4_000)
    repeated = small_config(collect_steps_per_iteration=4, action_repeat=2)
    assert replay_actor.limits(repeated)[:2] == (8, 150), "a row for every second env step"
    tight = small_config(initial_collect_steps=5_000)  # more than the table holds
    assert replay_actor.limits(tight)[1] == tight.replay_buffer_capacity


def test_no_sample_is_drawn_before_the_whole_warm_up_is_inserted(small_config):
    """Also where the table holds less than that: `labkit.train` completes its warm-up, too."""
    tight = small_config(initial_collect_steps=1_000, replay_buffer_capacity=100)
    rows = replay_actor.warm_up_rows(tight)
    limiter = replay_actor.limiter_of(tight)
    fifo = reverb.selectors.Fifo
    table = reverb.Table("rows", fifo(), fifo(), tight.replay_buffer_capacity, limiter)
    server = reverb_replay.start_server([table])
    client = reverb.Client(f"localhost:{server.port}")
    per_insert, _, buffer = replay_actor.limits(tight)
    ahead = int(buffer / per_insert)  # rows that may be missing from the ratio
    for row in range(rows - ahead - 1):
        client.insert(np.int64(row), {"rows": 1.0})
    state = rate_limiter.limiter_state(client, "rows")
    assert state.blocks_sample()
    for row in range(2 * ahead):
        client.insert(np.int64(row), {"rows": 1.0})
    assert not rate_limiter.limiter_state(client, "rows").blocks_sample()
    server.stop()


def test_the_parameter_server(tmp_path, monkeypatch):
    monkeypatch.setattr(parameter_server, "SAVE_SECONDS", -1)
    server = parameter_server.ParameterServer(tmp_path / "weights.npz")
    assert server.pull(None, 0, 0, float("nan")) is None
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
    assert parameter_server._median({3: 2, 9: 2}) == 6
    again = parameter_server.ParameterServer(tmp_path / "weights.npz")
    assert again.pull(None, 0, 0, float("nan"))[:2] == (60, 1_070)
    server.push(90, 1_100, np.zeros(3, np.float32))
    again = parameter_server.ParameterServer(tmp_path / "weights.npz")
    assert again.status()["staleness_max"] == 60, "that before the restart"


def test_the_return_of_a_lost_worker_does_not_count_for_ever(tmp_path, monkeypatch):
    server = parameter_server.ParameterServer(tmp_path / "weights.npz")
    now = time.monotonic()
    for worker, pulled_at in enumerate((now - 601, now - 599)):
        monkeypatch.setattr(parameter_server.time, "monotonic", lambda at=pulled_at: at)
        server.pull(None, 0, worker, mean_return=float(worker))
    monkeypatch.setattr(parameter_server.time, "monotonic", lambda: now)
    assert server.push(10, 1_010, np.ones(3, np.float32)) == 1.0


def requested(version, final=False, learner="a"):
    weights = np.full(3, version, np.float32)
    return EvaluationRequest(version, 1_000 + version, 0.0, weights, final, learner)


def test_requests_that_wait_for_the_evaluator(tmp_path):
    """The oldest first, each until it is done, and none from before a restart of the learner."""
    server = parameter_server.ParameterServer(tmp_path / "weights.npz")
    assert server.next_request(None) is None
    for one in (requested(10), requested(20), requested(10), requested(20, final=True)):
        server.request_evaluation(one)
    assert server.next_request(None).key == (10, False, "a")
    assert server.next_request(None).key == (10, False, "a"), "for an evaluator that was restarted"
    assert server.next_request((10, False, "a")).key == (20, False, "a")
    assert server.next_request((20, False, "a")).key == (20, True, "a")
    assert server.next_request((20, True, "a")) is None
    server.request_evaluation(requested(20))
    server.request_evaluation(requested(10, learner="b"))
    assert server.next_request((20, True, "a")).key == (10, False, "b")
    assert server.next_request((10, False, "b")) is None


def test_a_request_is_repeated_until_it_is_answered_and_counts_once(monkeypatch):
    sent, result = [], Evaluation((1.0,), (2.0,), (3.0,))
    requester = EvaluationRequester(lambda request: sent.append(request.key))
    requester.request(10, 1_010, 2.5, np.ones(3, np.float32), final=False)
    requester.repeat()
    (key,) = sent
    monkeypatch.setattr(evaluation_queue, "RETRY_SECONDS", -1)
    requester.repeat()
    assert sent == [key, key]
    before_restart = (10, False, "another learner")
    for answered in (before_restart, key, key):
        requester.answer(answered, result)
    ((request, found),) = requester.results()
    assert (request.version, request.env_step, request.final) == (10, 1_010, False)
    assert found == result
    assert requester.results() == []
    requester.repeat()
    assert len(sent) == 2


def test_an_answered_request_is_logged_and_not_repeated(monkeypatch):
    """With the learner's seconds when it had these weights, however late the answer comes."""
    sent, logged = [], []
    requester = EvaluationRequester(sent.append)
    requester.request(10, 1_010, 2.5, np.ones(3, np.float32), final=False)
    (request,) = sent
    requester.answer(request.key, Evaluation((1.0,), (2.0,), (3.0,)))
    monkeypatch.setattr(evaluation_queue, "RETRY_SECONDS", -1)
    learner = SimpleNamespace(log_evaluation=lambda *given: logged.append(given))
    LearnerActor._log_evaluations(SimpleNamespace(_evaluations=requester), learner)
    ((step, env_step, _, final, seconds),) = logged
    assert (len(sent), step, env_step, final, seconds) == (1, 10, 1_010, False, 2.5)


def test_an_evaluator_that_is_behind_still_gets_the_final_request(monkeypatch, tmp_path):
    monkeypatch.setattr(evaluation_queue, "RETRY_SECONDS", -1)
    server = parameter_server.ParameterServer(tmp_path / "weights.npz")
    requester = EvaluationRequester(server.request_evaluation)
    results, done = [], None

    def evaluate_next():
        nonlocal done
        if (one := server.next_request(done)) is not None:
            assert len(one.weights) == 3
            done = one.key
            requester.answer(done, Evaluation((1.0,), (2.0,), (3.0,)))
            results.extend(request.version for request, _ in requester.results())
        return one

    for version in range(100):
        requester.request(version, version, 0.0, np.ones(3, np.float32), final=version == 99)
        requester.repeat()
        if version % 2:  # each evaluation takes as long as two requests
            evaluate_next()
    assert len(results) == 50, "all that were played count, although others were left out"
    while evaluate_next() is not None:
        requester.repeat()
    assert results[-1] == 99, "the final one"
    assert len(results) == len(set(results)) < 100


def test_no_limit_for_the_environment_is_none_for_the_run(small_config):
    assert context.environment_seconds(small_config(environment_timeout=7)) == 7
    assert context.environment_seconds(small_config(environment_timeout=0)) > 10 * 24 * 3_600


def test_the_faults_of_earlier_starts_stay_in_the_summary(tmp_path):
    file = tmp_path / RAY_SUMMARY
    assert ray_summary.read(tmp_path) == {}
    file.write_text('{"faults": [{"actor": "learner"}], "samples": 9}')
    run = open_run(tmp_path / "run", labkit.SACConfig())
    shutil.copy(file, run.path)
    ended = SimpleNamespace(run=run, faults=[{"actor": "learner"}, {"actor": "replay"}])
    driver.Driver.write_faults(ended)
    found = json.loads((run.path / RAY_SUMMARY).read_text())
    assert found == {"faults": ended.faults, "samples": 9}
    for damaged in ("", "[]", "3"):
        file.write_text(damaged)
        assert ray_summary.read(tmp_path) == {}


def test_the_summary_covers_all_starts_and_keeps_what_a_stopped_one_did_not_measure():
    table = {"inserts": 900, "samples": 800, "samples_per_insert": 1.3}
    staleness = {"staleness_median": 10.0, "staleness_max": 40.0}
    cpu = {"learner": 3.0, "evaluator": 1.0}
    first = ray_summary.with_start({"faults": []}, 60.0, cpu, {**table, **staleness})
    assert first == {**table, **staleness, "faults": [], "seconds": 60.0, "cpu_seconds": cpu}
    nothing = dict.fromkeys((*table, *staleness))
    stopped = ray_summary.with_start(first, 5.0, {"learner": 2.0, "replay": 0.5}, nothing)
    more = {"learner": 5.0, "evaluator": 1.0, "replay": 0.5}
    assert stopped == {**first, "seconds": 65.0, "cpu_seconds": more}
    assert ray_summary.with_start({}, 5.0, {}, nothing)["samples_per_insert"] is None


def test_another_address_than_that_of_the_running_ray_is_rejected():
    with ray_cluster.connection(None, cpus=1):
        import ray

        port = ray.get_runtime_context().gcs_address.rpartition(":")[2]
        for same in ("auto", f"localhost:{port}"):
            with ray_cluster.connection(same, cpus=1):
                pass
        expected = r"^`address` must be None, or '127.0.0.1:\d+', to which .*, got 'other:6379'$"
        with (
            pytest.raises(ParameterError, match=expected),
            ray_cluster.connection("other:6379", cpus=1),
        ):
            pass


def test_the_cpus_of_a_cluster_are_checked_when_it_is_known(small_config, tmp_path, monkeypatch):
    asked = []

    def check(workers):
        asked.append(workers)
        if len(asked) == 2:  # the first check came before the connection
            raise ParameterError("too few")

    monkeypatch.setattr(ray_cluster, "check_cpus", check)
    monkeypatch.setattr(ray_cluster, "connection", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match="too few"):
        labkit.train_on_ray(small_config(), num_collectors=3, address="1.2.3.4:6379")
    assert asked == [3, 3]
    assert not list(tmp_path.glob("runs/*/metrics.csv")), "it had not begun"


def test_a_stop_while_ray_starts_ends_the_run(small_config, tmp_path, monkeypatch):
    @contextlib.contextmanager
    def slow_start(*arguments, **named):
        os.kill(os.getpid(), signal.SIGINT)  # the user's Ctrl-C
        yield

    monkeypatch.setattr(ray_cluster, "connection", slow_start)
    monkeypatch.setattr(driver, "Driver", lambda *_: pytest.fail("it started actors"))
    settings = small_config(env_name="Line")
    run = open_run(tmp_path, settings)
    with pytest.raises(KeyboardInterrupt, match=r"^before its first checkpoint$"):
        labkit.train_on_ray(settings, run=run, make_env=Line)


@pytest.fixture
def watching(small_config, tmp_path, monkeypatch):
    """A driver without Ray, whose learner has a status that the test sets."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(driver.time, "monotonic", lambda: clock.now)
    asked = []
    handle = SimpleNamespace(stop=SimpleNamespace(remote=lambda: asked.append(clock.now)))
    learner = SimpleNamespace(status={}, answered_at=100.0, handle=handle)
    made = driver.Driver.__new__(driver.Driver)
    made.supervisor = SimpleNamespace(actors={"learner": learner})
    made._deadline, made._saving = None, False
    return made, learner, clock, asked


@pytest.mark.parametrize("status", [{}, {"phase": "starting"}, {"phase": "warm-up"}])
def test_a_stop_with_nothing_to_save_waits_for_nothing(watching, status):
    made, learner, _, asked = watching
    learner.status = status
    assert made._has_stopped()
    assert asked == []


def test_a_stop_waits_as_long_as_the_learner_saves(watching, capsys):
    made, learner, clock, asked = watching
    learner.status = {"phase": "training"}
    assert not made._has_stopped()
    assert asked == [100.0]
    learner.status = {"phase": "saving"}
    for second in range(101, 160):  # a large table
        clock.now = learner.answered_at = float(second)
        assert not made._has_stopped()
    line = "saving the last checkpoint; interrupt once more to stop without it\n"
    assert capsys.readouterr().out == line
    clock.now += driver.STOP_SECONDS + 1  # it no longer answers
    assert made._has_stopped()
    assert asked == [100.0], "once"


def test_a_learner_that_does_not_stop_is_not_waited_for(watching):
    made, learner, clock, _ = watching
    learner.status = {"phase": "training"}
    assert not made._has_stopped()
    clock.now += driver.STOP_SECONDS + 1
    assert made._has_stopped()


class FullTable:
    """A replay client without Ray: a table whose limiter blocks samples after so many."""

    sample_timeout = 1

    def __init__(self, samples):
        self.samples = samples

    def state(self):
        return rate_limiter.LimiterState("t", 400, 900, 400, self.samples, 32, 6_400, 16_000, 300)


@pytest.fixture
def waiting(small_config):
    return lambda samples: SimpleNamespace(
        _config=small_config(recent_transitions=0),
        _stop=threading.Event(),
        _replay=FullTable(samples),
    )


def test_the_learner_waits_for_batches_where_a_stop_reaches_it(waiting):
    """TensorFlow's own wait cannot be interrupted."""
    wait = LearnerActor._wait_for_batches
    allowed = 400 * 32 - 6_400  # samples until the limiter blocks, 200 batches
    assert wait(waiting(allowed - 10 * 32), 10)
    assert not replay_actor.batches_allowed(FullTable(allowed).state(), waiting(0)._config)
    blocked = waiting(allowed - 9 * 32)
    threading.Timer(0.2, blocked._stop.set).start()
    assert not wait(blocked, 10), "asked to stop"
    with pytest.raises(StalledError, match=r"than the 400 transitions .* none arrived for 1 s"):
        wait(waiting(allowed), 1)
    warming_up = waiting(0)
    threading.Timer(0.2, warming_up._stop.set).start()
    assert not wait(warming_up, 1, first=401)


def test_a_stall_names_free_gpus(monkeypatch):
    monkeypatch.setattr(supervisor.ray, "available_resources", lambda: {"CPU": 8.0})
    monkeypatch.setattr(supervisor.ray, "cluster_resources", lambda: {"CPU": 8.0, "GPU": 1.0})
    expected = "8 CPUs, 8 of them free, and 1 GPUs, 0 of them free"
    assert supervisor._free_devices() == expected


def test_a_run_continues_without_a_worker_as_long_as_another_answers(monkeypatch, capsys):
    from labkit.distributed import supervisor

    monkeypatch.setattr(supervisor.ray, "available_resources", lambda: {"CPU": 0.0})
    monkeypatch.setattr(supervisor.ray, "cluster_resources", lambda: {"CPU": 8.0})
    found = supervisor.ActorSupervisor(timeout=100)
    workers = {"rollout worker 0": True, "rollout worker 1": True}
    for name, redundant in {"learner": False, **workers}.items():
        found.actors[name] = supervisor.SupervisedActor(
            name, None, status={"process": 1}, redundant=redundant
        )
    found.actors["rollout worker 1"].answered_at -= 101
    found._check_silence()
    found._check_silence()
    line = "rollout worker 1 has not answered for 100 s; Ray has 8 CPUs, 0 of them free; the run"
    assert capsys.readouterr().out == f"{line} continues without it\n"
    found.actors["rollout worker 0"].answered_at -= 101
    with pytest.raises(StalledError, match="rollout worker 0 has not answered"):
        found._check_silence()
    found.actors["rollout worker 0"].answered_at += 101
    found.actors["learner"].answered_at -= 101
    with pytest.raises(StalledError, match="learner has not answered"):
        found._check_silence()


def test_a_driver_that_was_suspended_does_not_blame_the_actors(monkeypatch):
    """As by Ctrl-Z: the actors answered, but nobody asked."""
    now = time.monotonic() + 1_000
    found = supervisor.ActorSupervisor(timeout=100)
    learner = supervisor.SupervisedActor("learner", None, status={"process": 1})
    found.actors["learner"] = learner
    monkeypatch.setattr(supervisor.time, "monotonic", lambda: now)
    monkeypatch.setattr(supervisor, "head_answers", lambda: False)
    found._forgive_absence()
    found._check_head()
    found._check_silence()
    learner.answered_at = now - 101
    found._forgive_absence()
    monkeypatch.setattr(supervisor, "_free_devices", lambda: "8 CPUs")
    with pytest.raises(StalledError, match="learner has not answered"):
        found._check_silence()


def test_the_learner_s_messages_are_printed_once_in_the_order_of_each_process(capsys):
    made = driver.Driver.__new__(driver.Driver)
    learner = SimpleNamespace(status={})
    made._told, made.supervisor = set(), SimpleNamespace(actors={"learner": learner})
    for process, messages in ((1, []), (1, ["a"]), (1, ["a", "b"]), (2, []), (2, ["a"])):
        made._print_messages()
        learner.status = {"process": process, "messages": messages}
    made._print_messages()
    assert capsys.readouterr().out == "a\nb\na\n"


def test_a_worker_that_fails_too_often_is_dropped_while_another_answers(monkeypatch):
    """Without Ray: its `get` raises what it would for an actor that is not restarted any more."""

    def get(_ref):
        raise RayActorError(error_msg="The actor died.\nIt was restarted 10 times.")

    monkeypatch.setattr(supervisor.ray, "get", get)
    found = supervisor.ActorSupervisor()
    for number in (0, 1, 2):
        name = f"rollout worker {number}"
        made = supervisor.SupervisedActor(name, None, "work", status={"cpu_seconds": 3.0})
        made.redundant, made.reported = True, number == 2  # the last one is silent
        found.actors[name] = made
    first, second, _ = found.actors.values()
    loss = found._take(first, "work")
    line = "rollout worker 0 was lost and could not be restarted: It was restarted 10 times."
    assert (loss.actor, loss.dropped, first.watched) == (first, line, False)
    with pytest.raises(ActorLostError, match=r"^rollout worker 1 was lost"):
        found._take(second, "work")
    assert found.failed == "rollout worker 1"


@pytest.mark.parametrize(
    ("failed", "saves"), [("evaluator", True), ("learner", False), ("replay", False)]
)
def test_an_error_comes_after_a_checkpoint_if_there_can_be_one(failed, saves):
    asked = []
    made = driver.Driver.__new__(driver.Driver)
    names = ("learner", "evaluator")
    actors = {name: SimpleNamespace(name=name, watched=True, status={}) for name in names}
    made.supervisor = SimpleNamespace(failed=failed, actors=actors)

    def watch(stop):
        asked.append((stop, [name for name, actor in actors.items() if actor.watched]))
        raise ActorLostError("the first error" if stop is False else "another one")

    made._watch = watch
    with pytest.raises(ActorLostError, match="the first error"):
        made.watch(False)
    assert asked[1:] == ([(True, ["learner"])] if saves else [])


@pytest.fixture
def reporting(tmp_path, monkeypatch):
    """A driver without Ray that has faults to report, and the actors that it kills."""
    killed = []
    monkeypatch.setattr("ray.kill", lambda handle, no_restart: killed.append(handle))
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "10.0.0.1")
    seen = {("a", 7): ("10.0.0.2", "it hung"), ("b", 8): ("10.0.0.1", "")}
    monkeypatch.setattr(driver.failure_log, "record", lambda run, actor, process: seen[process])
    made = driver.Driver.__new__(driver.Driver)
    made.config, made.run = labkit.SACConfig(action_repeat=1), SimpleNamespace(path=tmp_path)
    learner = supervisor.SupervisedActor("learner", "the learner's handle", status={"step": 250})
    made.supervisor = SimpleNamespace(actors={"learner": learner})
    made.faults, made._replay_fault, made._deadline = [], None, None
    return made, killed


def failure(name, before, after, **more):
    actor = supervisor.SupervisedActor(name, handle=None)
    return supervisor.Restart(actor, before, after, seconds=4.4, **more)


def test_a_failure_of_the_replay_is_one_fault(reporting, capsys):
    """The driver itself restarts the learner with it."""
    made, killed = reporting
    made._report_restart(failure("replay", {"inserts": 500}, {"restored": 440}))
    assert killed == ["the learner's handle"]
    made._report_restart(failure("learner", {"step": 250}, {"first_step": 200}))
    lost = {"env_steps_lost": 60, "gradient_steps_lost": 50}
    assert made.faults == [{"actor": "replay", "seconds": 4.4, **lost, "node": ""}]
    assert capsys.readouterr().out.splitlines() == [
        "replay failed and was restarted: its new process answered after 4 s, 60 env steps lost",
        "the learner resumed with it: at least 50 gradient steps lost",
    ]
    made._report_restart(failure("learner", {"step": 300}, {"first_step": 200}))
    assert made.faults[1]["gradient_steps_lost"] == 100, "this one failed by itself"


def test_a_failure_on_another_machine_names_it_and_the_watchdog_s_reason(reporting, capsys):
    made, _ = reporting
    made._report_restart(failure("evaluator", {"process": ("a", 7)}, {}))
    made._report_restart(failure("evaluator", {"process": ("b", 8)}, {}))
    rest = "its new process answered after 4 s, 0 env steps lost"
    assert capsys.readouterr().out.splitlines() == [
        f"evaluator on 10.0.0.2 failed and was restarted (it hung): {rest}",
        f"evaluator failed and was restarted: {rest}",
    ]
    assert [fault["node"] for fault in made.faults] == ["10.0.0.2", "10.0.0.1"]


def test_a_stop_does_not_wait_for_the_log_of_another_machine(reporting, monkeypatch):
    made, _ = reporting
    made._deadline = 1.0
    monkeypatch.setattr(driver.failure_log, "record", None)  # it may take 20 s
    monkeypatch.setattr(driver.failure_log, "address_of", lambda node: f"10.0.0.{node}")
    made._report_restart(failure("evaluator", {"process": (2, 7)}, {}))
    assert made.faults[0]["node"] == "10.0.0.2"


def test_a_learner_that_had_not_answered_is_not_waited_for_after_a_replays_failure(reporting):
    """Its next failure is another one."""
    made, _ = reporting
    made.supervisor.actors["learner"].status = {}
    made._report_restart(failure("replay", {"inserts": 500}, {"restored": 440}))
    made._report_restart(failure("learner", {"step": 300}, {"first_step": 200}))
    assert [fault["actor"] for fault in made.faults] == ["replay", "learner"]


def test_a_replay_that_still_loads_its_table_is_not_reported_yet():
    found = supervisor.ActorSupervisor(timeout=100)
    before = {"process": ("a", 1), "cpu_seconds": 5.0, "inserts": 900}
    replay = supervisor.SupervisedActor("replay", handle=None, status=before)
    loading = {"process": ("a", 2), "cpu_seconds": 1.0}
    assert found._answered(replay, loading) is None
    assert replay.status == before, "what the table held is not forgotten"
    restart = found._answered(replay, {**loading, "inserts": 800, "restored": 800})
    assert (restart.before["inserts"], restart.after["restored"]) == (900, 800)


def test_a_dropped_worker_is_recorded(reporting, capsys):
    made, _ = reporting
    made._report_restart(failure("rollout worker 7", {}, {}, dropped="rollout worker 7 was lost"))
    assert (made.faults[0]["actor"], made.faults[0]["dropped"]) == ("rollout worker 7", True)
    assert capsys.readouterr().out == "rollout worker 7 was lost; the run continues without it\n"


@pytest.mark.parametrize(("episodes", "waiting", "facts"), [(0, 3, 1), (2, 0, 0)])
def test_the_progress_of_the_final_evaluation_counts_no_other(episodes, waiting, facts):
    shown = []
    display = SimpleNamespace(
        reached=lambda *_: None, show=lambda *given, **facts: shown.append((given, facts))
    )
    evaluator = workers.Evaluator(None)
    evaluator._episodes, evaluator._final = 2, waiting == 0  # else it plays an interim evaluation
    statuses = {
        "learner": {"phase": "evaluation", "step": 20, "waiting": waiting},
        "evaluator": evaluator.status(),
        "replay": {},
    }
    made = driver.Driver.__new__(driver.Driver)
    made.config = labkit.SACConfig(num_eval_episodes=5)
    actors = {name: SimpleNamespace(status=status) for name, status in statuses.items()}
    made.supervisor = SimpleNamespace(actors=actors)
    made._show(display)
    expected = {"evaluations_waiting": 3} if facts else {}
    assert shown == [(("evaluation", 5, "episodes", episodes), expected)]


class Spy(threading.Thread):
    """Records the sockets of a run."""

    def __init__(self, run):
        super().__init__(daemon=True)
        self.run_path, self.sockets, self.kinds, self.replay = run.path, {}, set(), set()
        self.over = threading.Event()
        self.seen = {}

    def run(self):
        while not self.over.wait(0.5):
            below = descendants(os.getpid())
            self.seen |= below
            self.sockets |= listening([os.getpid(), *below])
            self.replay |= set(actor_pids(os.getpid(), "ReplayActor"))
            self.kinds |= {kind for kind in ACTORS if actor_pids(os.getpid(), kind)}


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (RayTaskError("work", "", DivergedError("a loss is NaN")), DivergedError, "a loss is NaN"),
        (RayTaskError("work", "", ParameterError("no")), ParameterError, "no"),
        (
            RayActorError(error_msg="The actor died.\nThe node was lost."),
            ActorLostError,
            "learner was lost and could not be restarted: The node was lost.",
        ),
        (GetTimeoutError("no answer"), ActorLostError, "learner failed: no answer"),
    ],
)
def test_an_actor_s_error_is_one_line(monkeypatch, error, expected, message):
    """Without Ray: its `get` raises what it would for a lost or failed actor."""

    def get(_ref):
        raise error

    monkeypatch.setattr(supervisor.ray, "get", get)
    actor = SimpleNamespace(name="learner")
    with pytest.raises(expected) as caught:
        supervisor.fetch(actor, "reference")
    assert type(caught.value) is expected
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "before", "after", "lost"),
    [
        ("rollout worker 3", {"inserts": 9}, {}, (2 * reverb_replay.UNCONFIRMED - 1 + 4, 0)),
        ("replay", {"inserts": 500}, {"restored": 440}, (80, 0)),  # the learner saw 520
        ("replay", {"inserts": 530}, {"restored": 440}, (90, 0)),
        ("learner", {"step": 250}, {"first_step": 200}, (0, 50)),
        ("learner", {"step": 200}, {"first_step": 200}, (0, 0)),
        ("evaluator", {"final_episodes": 3}, {"final_episodes": 0}, (0, 0)),
    ],
)
def test_restart_cost(name, before, after, lost):
    restart = supervisor.Restart(
        supervisor.SupervisedActor(name, handle=None), before, after, seconds=1.0
    )
    cost = supervisor.restart_cost(
        restart, labkit.SACConfig(n_step=5, action_repeat=1), env_step=520
    )
    assert (cost["env_steps_lost"], cost["gradient_steps_lost"]) == lost


def test_an_action_of_two_env_steps_doubles_the_cost_of_a_restart():
    config = labkit.SACConfig(n_step=5, action_repeat=2)
    for name, before, after, lost in (
        ("rollout worker 0", {}, {}, 2 * (2 * reverb_replay.UNCONFIRMED - 1 + 5) - 1),
        ("replay", {"inserts": 500}, {"restored": 440}, 120),
    ):
        actor = supervisor.SupervisedActor(name, handle=None)
        restart = supervisor.Restart(actor, before, after, seconds=1.0)
        assert supervisor.restart_cost(restart, config, env_step=0)["env_steps_lost"] == lost


def test_each_rollout_worker_has_its_own_random_numbers(small_config, monkeypatch):
    env, seeds = make_environment("Pendulum-v1"), []

    def environment(seed, collect):
        assert collect
        seeds.append(("environment", seed))
        return env

    def policy(kind):
        return lambda *given: seeds.append((kind, given[2] if kind == "policy" else given[1]))

    monkeypatch.setattr(workers, "actor_policy", policy("policy"))
    monkeypatch.setattr(workers, "random_policy", policy("warm-up"))
    context = SimpleNamespace(config=small_config(env_name="Pendulum-v1"), environment=environment)
    for number in (0, 1):
        workers.RolloutWorker(context, number, 300, 2)._prepare(0)
    assert len(seeds) == len(set(seeds)) == 6


def test_the_address_auto_is_that_of_the_environment_variable(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "localhost:1")
    with pytest.raises(ParameterError, match=r"`address` must be .*, got 'localhost:1'"):
        ray_cluster.check_address("auto")
    monkeypatch.delenv("RAY_ADDRESS")
    ray_cluster.check_address("auto")


SLOW_AGENTS = """
import sys, time
if "agent" in " ".join(sys.orig_argv):
    time.sleep(25)
"""
STARTED = """
from labkit.distributed.ray_cluster import connection
with connection(None, 1):
    print('started')
"""


@pytest.mark.slow
def test_ray_starts_on_a_machine_too_busy_to_load_its_agents_in_time(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SLOW_AGENTS)  # each Python begins with it
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", STARTED]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert done.stdout == "started\n", done.stderr


def test_a_small_run(small_config, tmp_path, capfd, monkeypatch):
    """All actors run; only Reverb can be reached from outside; no process is left."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))  # where `Line` is
    # The learner may be 100 steps ahead of the worker: a longer run uses its later weights.
    settings = small_config(env_name="Line", num_iterations=150, log_interval=30, eval_interval=75)
    run = open_run(tmp_path, settings)
    spy = Spy(run)
    before = set(descendants(os.getpid()))
    spy.start()
    assert labkit.train_on_ray(settings, run=run, make_env=Line) is run
    spy.over.set()
    spy.join()

    table = run.metrics()
    logged, evaluated = table[table.critic_loss.notna()], table[table.eval_return.notna()]
    assert logged.gradient_step.tolist() == [30, 60, 90, 120, 150]
    assert logged.env_step.is_monotonic_increasing
    assert (
        300 <= logged.env_step.iloc[0] <= logged.env_step.iloc[-1] <= 300 + 150 + 100 + 10
    )  # the limiter's buffer, batches fetched ahead
    assert evaluated.gradient_step.iloc[-1] == 150
    assert len(evaluated.eval_returns.iloc[-1]) == 2
    assert (run.path / "policy" / "saved_model.pb").exists()
    assert (run.path / "checkpoints" / "000000150" / "replay" / "DONE").exists()
    summary = json.loads((run.path / "ray.json").read_text())
    assert summary["faults"] == []
    assert summary["staleness_max"] >= summary["staleness_median"] >= 0
    printed = capfd.readouterr()
    assert f"{summary['samples_per_insert']:.1f} samples per insert" in printed.out
    assert "ray" not in printed.err.lower(), printed.err

    assert spy.kinds == set(ACTORS)
    outward = {key: pid for key, pid in spy.sockets.items() if key[0] not in LOOPBACK}
    assert len(spy.sockets) > len(outward)
    assert set(outward.values()) <= spy.replay, outward
    assert len({port for _, port in outward}) == 1, "only Reverb's"
    alive = set(descendants(os.getpid())) - before
    assert not {pid: spy.seen.get(pid) for pid in alive}
    with pytest.raises(ParameterError, match=r"labkit\.train_on_ray started this one"):
        labkit.train(settings, run=run, make_env=Line)


def test_stopped_in_its_warm_up_it_returns_no_run_without_a_policy(
    small_config, tmp_path, monkeypatch
):
    (tmp_path / "stop").touch()  # as `labkit run` does at the first Ctrl-C
    monkeypatch.setenv("LABKIT_STOP", str(tmp_path / "stop"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))  # where `Line` is
    settings = small_config(env_name="Line", initial_collect_steps=1_000_000)
    run = open_run(tmp_path / "run", settings)
    with pytest.raises(KeyboardInterrupt, match=r"^before its first checkpoint$"):
        labkit.train_on_ray(settings, run=run, make_env=Line)
    assert not (run.path / "policy").exists()


@pytest.mark.timeout(200)
def test_the_optimum_of_a_small_environment_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))  # where the environment is
    settings = labkit.SACConfig(**known_optimum.SETTINGS)
    run = open_run(tmp_path, settings)
    labkit.train_on_ray(settings, run=run, make_env=known_optimum.make)
    known_optimum.check(run)
    summary = json.loads((tmp_path / "ray.json").read_text())
    # 64 samples an insert, but for the limiter's buffer of 100 batches and those fetched ahead
    counted = summary["inserts"] - settings.initial_collect_steps
    assert abs(64 * counted - summary["samples"]) <= 64 * (100 + 16)
    assert summary["samples_per_insert"] == pytest.approx(summary["samples"] / counted)
    assert 1_500 * 64 <= summary["samples"] <= 64 * (1_500 + 16)


def test_our_token_does_not_outlive_our_ray(monkeypatch):
    ray_cluster.forget_token()  # of an earlier test in this process
    for name in ("RAY_AUTH_MODE", *ray_cluster.TOKEN_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/a/user's")
    ray_cluster.require_token()
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert "RAY_AUTH_TOKEN" not in os.environ, "the user has one"
    ray_cluster.forget_token()
    assert "RAY_AUTH_MODE" not in os.environ
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH")
    ray_cluster.require_token()
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64
    ray_cluster.forget_token()
    assert not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"} & set(os.environ)
    ray_cluster.require_token()
    monkeypatch.setenv("RAY_AUTH_MODE", "token")  # a cluster's, named after our own Ray had run
    monkeypatch.setenv("RAY_AUTH_TOKEN", "1" * 64)
    ray_cluster.forget_token()
    assert (os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"]) == ("token", "1" * 64)


def test_a_ray_that_does_not_answer_is_said_and_ended(monkeypatch):
    from ray._private import services

    started = []

    def no_answer(*arguments):
        started.append(descendants(os.getpid()))
        raise OSError("no answer")

    monkeypatch.setattr(services, "get_node", no_answer)
    before = set(descendants(os.getpid()))
    with (
        pytest.raises(StalledError, match="Ray could not be started on this machine: no answer"),
        ray_cluster.connection(None, cpus=1),
    ):
        pytest.fail("it is not there")
    assert any("raylet" in title for title in started[-1].values())
    # A process that is killed takes a moment to go.
    wait_until(lambda: not set(descendants(os.getpid())) - before, 10, "end of all processes")


@pytest.mark.slow
def test_ray_without_a_token_is_turned_away(tmp_path):
    import ray

    script = "import ray, sys; ray.init(address=sys.argv[1], logging_level='ERROR'); print('in')"
    outside = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    outside |= {"HOME": str(tmp_path), "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    with ray_cluster.connection(None, cpus=1):
        address = ray.get_runtime_context().gcs_address
        ray_cluster.check_address(address)  # this one answers
        assert ray_cluster.head_answers()
        # The folder of its sockets and logs is this user's alone.
        session = Path(ray._private.worker.global_worker.node.get_session_dir_path())
        (folder,) = [f for f in session.parents if f.name.startswith("labkit-ray-")]
        assert folder.stat().st_mode & 0o777 == 0o700
        tokens = (
            {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.environ["RAY_AUTH_TOKEN"]},
            {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64},
            {"RAY_AUTH_MODE": "disabled"},
        )
        tries = [
            subprocess.Popen(
                [sys.executable, "-c", script, address],
                env={**outside, **token},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for token in tokens
        ]
        said = [one.communicate(timeout=100) for one in tries]
    assert [out.strip() for out, _ in said] == ["in", "", ""], said
