"""The Ray executor with real processes; most tests share one Ray."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import known_optimum
import numpy as np
import psutil
import pytest
from ray_processes import (
    ACTORS,
    Line,
    actor_pids,
    alive,
    descendants,
    last_saved,
    listening,
    meanwhile,
    wait_until,
)

import labkit
from labkit.distributed import cluster
from labkit.errors import ActorLostError, ParameterError
from labkit.replay.reverb_replay import UNCONFIRMED

BEFORE: dict[tuple[str, int], int] = {}  # sockets that other tests of this process left open
LOOPBACK = ("127.0.0.1", "::ffff:127.0.0.1", "::1")
ENDLESS = {
    "env_name": "Line",
    "num_iterations": 1_000_000,
    "log_interval": 50,
    "eval_interval": 0,
    "checkpoint_interval": 100,
    "replay_buffer_capacity": 50_000,
}


@pytest.fixture(scope="module")
def ray():
    """A Ray with room for two rollout workers and the evaluator."""
    import ray

    BEFORE.update(listening([os.getpid()]))
    with cluster.connection(None, cpus=3):
        yield ray


def logged(run):
    """The gradient steps of the rows with losses."""
    table = run.metrics()
    return (
        table.dropna(subset="critic_loss").gradient_step.tolist() if "critic_loss" in table else []
    )


def goes_on(run, steps=50):
    """Waits until so many gradient steps were logged since the file was last cut."""
    seen = [max(logged(run), default=0)]

    def enough():
        now = max(logged(run), default=0)
        seen[0] = min(seen[0], now)
        return now >= seen[0] + steps

    wait_until(enough, 200, f"{steps} more gradient steps")


CLIENT = """
import ray, sys
ray.init(address=sys.argv[1], logging_level="ERROR")
print(ray.get(ray.remote(lambda: "in").remote()))
"""


def test_it_listens_on_loopback_and_rejects_clients_without_its_token(ray):
    ray.get(ray.remote(lambda: 1).remote())  # a worker process
    found = {*listening([os.getpid(), *descendants()])} - {*BEFORE}
    assert len(found) >= 5
    assert {address for address, _ in found} <= {*LOOPBACK}
    command = [sys.executable, "-c", CLIENT, ray.get_runtime_context().gcs_address]
    tokens = ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}, {"RAY_AUTH_MODE": "disabled"})
    pipe = subprocess.PIPE
    tries = [
        subprocess.Popen(command, env={**os.environ, **token}, stdout=pipe, stderr=pipe, text=True)
        for token in ({}, *tokens)
    ]
    printed = [one.communicate(timeout=100) for one in tries]
    assert [out.strip() for out, _ in printed] == ["in", "", ""], printed


def test_more_workers_than_cpus_are_rejected(ray, small_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = r"^`num_collectors` must be less than the 3 CPUs of the running Ray: .*, got 3$"
    with pytest.raises(ParameterError, match=expected):
        labkit.train_on_ray(small_config(env_name="Line"), 3, make_env=Line)
    assert not list(tmp_path.glob("runs/*")), "nothing was begun"


@pytest.mark.thorough
def test_a_small_run_resumes_and_its_environment_is_found(ray, small_config, tmp_path, monkeypatch):
    """The environment's module is on the `sys.path` of this process only."""
    (tmp_path / "modules").mkdir()
    source = "from ray_processes import Line\nclass Mine(Line):\n    pass\n"
    (tmp_path / "modules" / "only_here.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    from only_here import Mine

    # The learner may be 100 steps ahead of the worker: a longer run uses its later weights.
    changes = {"env_name": "Mine", "log_interval": 30, "eval_interval": 75}
    config = small_config(**changes, num_iterations=150)
    run = labkit.open_run(tmp_path / "run", config)
    kinds = set()

    def look():
        while not kinds >= {*ACTORS} and psutil.pid_exists(os.getpid()):
            kinds.update(kind for kind in ACTORS if actor_pids(kind))
            time.sleep(0.2)

    threading.Thread(target=look, daemon=True).start()
    assert labkit.train_on_ray(config, run=run, make_env=Mine) is run
    assert kinds == {*ACTORS}
    table = run.metrics()
    losses, scores = table[table.critic_loss.notna()], table[table.eval_return.notna()]
    assert losses.gradient_step.tolist() == [30, 60, 90, 120, 150]
    ends = losses.env_step.iloc[[0, -1]].tolist()
    assert 300 <= ends[0] <= ends[1] <= 300 + 150 + 100 + 10, "the limiter's buffer"
    assert scores.gradient_step.tolist() == [0, 75, 150]
    assert [len(returns) for returns in scores.eval_returns] == [1, 1, 2]
    assert (run.path / "policy" / "saved_model.pb").exists()
    summary = json.loads((run.path / "ray.json").read_text())
    assert summary["faults"] == []
    # The first weights do not count as old as the warm-up.
    assert 0 <= summary["staleness_median"] <= summary["staleness_max"] <= 150 + 100 + 10
    assert {*summary["cpu_seconds"]} >= {"replay", "learner", "rollout worker 0", "evaluator"}

    rows = (run.path / "metrics.csv").read_text()
    labkit.train_on_ray(config, run=run, make_env=Mine)
    assert (run.path / "metrics.csv").read_text() == rows, "a finished run stays as it is"
    with pytest.raises(ParameterError, match="executor: ray there and local here"):
        labkit.train(config, run=run, make_env=Mine)
    more = small_config(**changes, num_iterations=180)
    run = labkit.open_run(run.path, more)
    labkit.train_on_ray(more, run=run, make_env=Mine)
    assert logged(run) == [30, 60, 90, 120, 150, 180]
    assert wait_until(lambda: not actor_pids("LearnerActor"), 10, "end") is not None


@pytest.mark.slow
def test_an_error_of_the_environment_ends_the_run_with_a_checkpoint(ray, small_config, tmp_path):
    class Breaks(Line):
        def step(self, action):
            observation, reward, done, info = super().step(action)
            self.total = getattr(self, "total", 0) + 1
            return observation, np.nan if self.total > 450 else reward, done, info

    config = small_config(**{**ENDLESS, "env_name": "Breaks", "checkpoint_interval": 0})
    run = labkit.open_run(tmp_path / "run", config)
    expected = r"reward.*; last good checkpoint: .*/checkpoints/\d+$"
    with pytest.raises(labkit.RunError, match=expected) as caught:
        labkit.train_on_ray(config, run=run, make_env=Breaks)
    assert "\n" not in str(caught.value)
    assert last_saved(run.path) > 0


def test_ctrl_c_in_the_warm_up_ends_it(ray, small_config, tmp_path):
    config = small_config(env_name="Line", initial_collect_steps=1_000_000)
    run = labkit.open_run(tmp_path / "run", config)
    with (
        pytest.raises(KeyboardInterrupt, match=r"^before its first checkpoint$"),
        meanwhile(lambda: wait_until(lambda: actor_pids("ParameterServer"), 60, "an actor")),
    ):
        labkit.train_on_ray(config, run=run, make_env=Line)
    assert not (run.path / "policy").exists()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_optimum_of_a_small_environment_is_found(ray, tmp_path):
    config = labkit.SACConfig(**known_optimum.SETTINGS)
    run = labkit.open_run(tmp_path, config)
    labkit.train_on_ray(config, 2, run=run, make_env=known_optimum.make)
    known_optimum.check(run)
    summary = json.loads((tmp_path / "ray.json").read_text())
    # 64 samples an insert, but for the limiter's buffer of 100 batches and those fetched ahead
    counted = summary["inserts"] - config.initial_collect_steps
    assert abs(64 * counted - summary["samples"]) <= 64 * (100 + 16)
    assert summary["samples_per_insert"] == pytest.approx(summary["samples"] / counted)
    assert 1_500 * 64 <= summary["samples"] <= 64 * (1_500 + 16)


KILLED = {
    "RolloutWorker": "rollout worker 0",
    "Evaluator": "evaluator",
    "ParameterServer": "parameter server",
    "LearnerActor": "learner",
    "ReplayActor": "replay",
}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_process_that_is_killed_is_restarted(ray, small_config, tmp_path):
    """A new checkpoint lies between two kills: so a later failure loses none of the first steps."""
    config = small_config(**ENDLESS)
    run = labkit.open_run(tmp_path / "run", config)

    def kill_all():
        goes_on(run, 150)
        for kind in KILLED:
            saved = last_saved(run.path)
            (pid,) = actor_pids(kind)
            os.kill(pid, signal.SIGKILL)
            again = lambda k=kind, p=pid: {*actor_pids(k)} - {p}  # noqa: E731
            wait_until(again, 120, f"another {kind}")
            wait_until(lambda s=saved: last_saved(run.path) > s, 200, "a new checkpoint")
            goes_on(run)

    with meanwhile(kill_all):
        labkit.train_on_ray(config, run=run, make_env=Line)
    faults = json.loads((run.path / "ray.json").read_text())["faults"]
    assert [fault["actor"] for fault in faults][:5] == [*KILLED.values()], "each failure counts"
    lost = {f["actor"]: (f["env_steps_lost"], f["gradient_steps_lost"]) for f in faults}
    assert lost["rollout worker 0"] == (2 * UNCONFIRMED - 1, 0)
    assert lost["evaluator"] == lost["parameter server"] == (0, 0)
    assert lost["learner"][0] == 0
    assert lost["replay"][0] <= 100 + 202  # and the limiter's buffer
    # a checkpoint every 100 steps; answers lag
    assert max(lost["learner"][1], lost["replay"][1]) <= 100 + 60
    assert logged(run) == sorted({*logged(run)})
    assert last_saved(run.path) >= logged(run)[-1]


# --- a driver in a process of its own

RUN = "runs/0001"
HERE = os.pathsep.join(map(str, [Path(__file__).parent, Path(__file__).parents[1]]))
DRIVER = """
import sys
sys.path[:0] = sys.argv[1].split(':')
import labkit
from small import SMALL
from ray_processes import Line
from test_on_ray import ENDLESS

labkit.train_on_ray(labkit.SACConfig(**{**SMALL, **ENDLESS}), make_env=Line)
"""


def start(folder):
    """A driver in a process group of its own, as a shell makes one."""
    command = [sys.executable, "-c", DRIVER, HERE]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": folder}
    return subprocess.Popen(command, start_new_session=True, **options)


@pytest.fixture
def driver(tmp_path):
    """A driver that has saved a checkpoint."""
    started = start(tmp_path)
    saved = lambda: started.poll() is not None or last_saved(tmp_path / RUN)  # noqa: E731
    wait_until(saved, 200, "a checkpoint")
    yield started
    started.kill()


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_ctrl_c_leaves_a_checkpoint_and_the_same_script_resumes(driver, tmp_path):
    for _ in range(2):
        below = descendants(driver.pid)
        begin = time.monotonic()
        os.killpg(driver.pid, signal.SIGINT)  # what Ctrl-C in a terminal does
        out, err = driver.communicate(timeout=60)
        assert time.monotonic() - begin < 30
        assert driver.returncode == 0, err
        reached = last_saved(tmp_path / RUN)
        assert f"stopped at gradient step {reached}; run this again to resume" in out
        assert not alive(below)
        driver = start(tmp_path)
        wait_until(lambda before=reached: last_saved(tmp_path / RUN) > before, 200, "a checkpoint")
    assert f"{RUN} is an unfinished run of this configuration: it resumes from gradient" in out
    driver.kill()


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_killed_driver_leaves_nothing_running(driver):
    below = descendants(driver.pid)
    driver.kill()
    wait_until(lambda: not alive(below), 120, "end of all processes")


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_killed_raylet_ends_the_run_with_one_line(driver):
    below = descendants(driver.pid)
    (raylet,) = [pid for pid, title in below.items() if "/raylet " in title]
    os.kill(raylet, signal.SIGKILL)
    _, err = driver.communicate(timeout=200)
    last = err.strip().splitlines()[-1]
    assert ActorLostError.__name__ in last, err
    assert "failed and could not be restarted: " in last
    assert "; last good checkpoint: " in last
    wait_until(lambda: not alive(below), 120, "end of all processes")
