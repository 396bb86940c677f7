"""The Ray executor when things die, with real processes: `make test ARGS='-m slow -k ray'`."""

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import old_runs
import pytest
from ray_processes import Line, actor_pids, descendants, listening, wait_until

import labkit
from labkit.distributed import driver
from labkit.replay.reverb_replay import UNCONFIRMED
from labkit.training import checkpoint
from labkit.training.run import open_run, read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
HERE = os.pathsep.join(map(str, [Path(__file__).parent, Path(__file__).parents[1]]))
ENDLESS = {
    "env_name": "Line",
    "num_iterations": 1_000_000,
    "log_interval": 50,
    "eval_interval": 0,
    "checkpoint_interval": 100,
    "replay_buffer_capacity": 50_000,
}


def last_step(path) -> int:
    steps = read_metrics(path).gradient_step
    return int(steps.max()) if len(steps) else 0


def last_saved(path) -> int:
    return max(checkpoint.steps(path / "checkpoints"), default=0)


class Killer(threading.Thread):
    """Kills one part after the other, each when training goes on again, then asks to stop.

    A new checkpoint lies between two kills: a replay killed before it, when the learner has just
    repeated its steps, would lose the env steps of those and of the first ones too.
    """

    def __init__(self, run, stop, kinds):
        super().__init__(daemon=True)
        self.run_path, self.stop, self.kinds, self.failure = run.path, stop, kinds, None

    def run(self):
        try:
            self.goes_on(150)  # beyond the first checkpoint
            for kind in self.kinds:
                saved = last_saved(self.run_path)
                (pid,) = actor_pids(os.getpid(), kind)
                os.kill(pid, signal.SIGKILL)
                wait_until(
                    lambda kind=kind, pid=pid: set(actor_pids(os.getpid(), kind)) - {pid},
                    120,
                    f"another {kind}",
                )
                newer = lambda saved=saved: last_saved(self.run_path) > saved  # noqa: E731
                wait_until(newer, 200, "a new checkpoint")
                self.goes_on(50)  # or there were nothing to lose
        except BaseException as failure:
            self.failure = failure
        finally:
            self.stop.touch()

    def goes_on(self, steps):
        """Waits until so many gradient steps were logged since the file was last cut."""
        seen = [last_step(self.run_path)]

        def enough():
            now = last_step(self.run_path)
            seen[0] = min(seen[0], now)  # it is cut where a checkpoint was gone back to
            return now >= seen[0] + steps

        wait_until(enough, 200, f"{steps} more gradient steps")


KILLED = ["RolloutWorker", "Evaluator", "ParameterServer", "LearnerActor", "ReplayActor"]


@pytest.fixture(scope="module")
def survived(tmp_path_factory):
    """A run in which every part was killed once."""
    from conftest import SMALL

    folder = tmp_path_factory.mktemp("faults")
    config = labkit.SACConfig(**{**SMALL, **ENDLESS})
    run = open_run(folder / "run", config)
    stop = folder / "stop"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", HERE)
        patch.setenv("LABKIT_STOP", str(stop))
        killer = Killer(run, stop, KILLED)
        killer.start()
        labkit.train_on_ray(config, run=run, make_env=Line)
    killer.join(10)
    if killer.failure:
        raise killer.failure
    return run, json.loads((run.path / "ray.json").read_text())["faults"]


def fault(faults, part):
    (found,) = [one for one in faults if one["actor"] == part]
    return found


def test_a_killed_worker_is_restarted(survived):
    _, faults = survived
    assert fault(faults, "rollout worker 0")["env_steps_lost"] == 2 * UNCONFIRMED - 1


def test_a_killed_evaluator_or_parameter_server_loses_nothing(survived):
    _, faults = survived
    for part in ("evaluator", "parameter server"):
        lost = fault(faults, part)
        assert (lost["env_steps_lost"], lost["gradient_steps_lost"]) == (0, 0)


def test_a_killed_learner_goes_on_from_its_checkpoint(survived):
    _, faults = survived
    first = fault(faults, "learner")
    assert first["gradient_steps_lost"] <= 100 + 60  # a checkpoint every 100, answers lag
    assert first["env_steps_lost"] == 0


def test_a_killed_replay_is_restored_with_the_learner_s_checkpoint(survived):
    _, faults = survived
    names = [one["actor"] for one in faults]
    found = fault(faults, "replay")
    assert found["env_steps_lost"] <= 100 + 202  # and the limiter's buffer
    assert found["gradient_steps_lost"] <= 100 + 60, "the learner was restarted with the table"
    assert len(names) == len(set(names)) == len(KILLED), "each failure counts once"


def test_the_run_that_survived_is_whole(survived):
    run, _ = survived
    table = run.metrics()
    logged = table[table.critic_loss.notna()]
    assert logged.gradient_step.is_monotonic_increasing
    assert logged.gradient_step.is_unique
    _, state = checkpoint.load(checkpoint.latest(run.path / "checkpoints"))
    assert state["executor"] == "ray"
    assert state["step"] >= logged.gradient_step.max()


def test_a_killed_head_of_ray_ends_the_run_in_one_line(tmp_path, monkeypatch, small_config):
    """Ray itself would end this process after 60 s."""
    from labkit.distributed import supervisor

    monkeypatch.setenv("PYTHONPATH", HERE)
    monkeypatch.setattr(supervisor, "HEAD_SECONDS", 3)
    config = small_config(**ENDLESS)
    run = open_run(tmp_path / "run", config)
    earlier = {"faults": [{"actor": "learner"}]}
    (run.path / "ray.json").write_text(json.dumps(earlier))

    def kill():
        wait_until(lambda: last_saved(run.path) > 0, 150, "a checkpoint")
        for pid, title in descendants(os.getpid()).items():
            if "gcs_server" in title.split()[0]:
                os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    expected = r"^Ray's head \(its process gcs_server\) has not answered for 3 s; .*; last good "
    with pytest.raises(labkit.RunError, match=f"{expected}checkpoint: /.*00$") as caught:
        labkit.train_on_ray(config, run=run, make_env=Line)
    assert "\n" not in str(caught.value)
    assert not [pid for pid, title in descendants(os.getpid()).items() if "ray" in title]
    assert json.loads((run.path / "ray.json").read_text())["faults"][:1] == earlier["faults"]


INTERRUPTED = """
import sys
sys.path[:0] = sys.argv[1].split(':')
import labkit
from conftest import SMALL
from ray_processes import Line
from test_faults import ENDLESS

config = labkit.SACConfig(**{**SMALL, **ENDLESS, "num_iterations": int(sys.argv[3])})
labkit.train_on_ray(config, run=labkit.open_run(sys.argv[2], config), make_env=Line)
"""


def start(folder, iterations):
    """A driver in a process group of its own, as a shell makes one."""
    command = [sys.executable, "-c", INTERRUPTED, HERE, str(folder), str(iterations)]
    pipe = subprocess.PIPE
    env = {**os.environ, "PYTHONPATH": HERE}
    return subprocess.Popen(
        command, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )


def goes_on(folder, beyond):
    def enough():
        return (Path(folder) / "metrics.csv").exists() and last_step(folder) > beyond

    wait_until(enough, 200, f"gradient step {beyond}")


def nothing_left(below, ports):
    alive = {pid for pid in below if Path(f"/proc/{pid}").exists()}
    assert not {pid: below[pid] for pid in alive}
    everybody = [int(p.name) for p in Path("/proc").glob("[0-9]*")]
    assert not ports & {port for _, port in listening(everybody)}


def test_an_interrupted_driver_leaves_nothing_but_a_run_that_resumes(tmp_path):
    driver = start(tmp_path / "run", 1_000_000)
    goes_on(tmp_path / "run", 120)
    below = descendants(driver.pid)
    ports = {port for _, port in listening(below)}
    assert len(ports) > 5
    begin = time.monotonic()
    os.killpg(driver.pid, signal.SIGINT)  # what Ctrl-C in a terminal does
    out, err = driver.communicate(timeout=60)
    assert time.monotonic() - begin < 30
    assert driver.returncode == 0, err
    assert "stopped at gradient step" in out
    nothing_left(below, ports)
    reached = max(checkpoint.steps(tmp_path / "run" / "checkpoints"))
    driver = start(tmp_path / "run", reached + 30)
    out, err = driver.communicate(timeout=200)
    assert driver.returncode == 0, err
    assert last_step(tmp_path / "run") == reached + 30
    assert len(read_metrics(tmp_path / "run").eval_returns.iloc[-1]) == 2


def test_evaluations_that_waited_at_the_stop_are_played_after_it(
    tmp_path, monkeypatch, small_config
):
    """Each belongs to its own gradient step: `compare.evaluation_at` looks for exact ones."""
    monkeypatch.setenv("PYTHONPATH", HERE)
    monkeypatch.setenv("LABKIT_STOP", str(tmp_path / "stop"))
    slow = {"eval_interval": 50, "interim_eval_episodes": 20, "num_eval_episodes": 21}
    config = small_config(**{**ENDLESS, **slow})
    run = open_run(tmp_path / "run", config)

    def stop():
        goes_on(run.path, 220)
        (tmp_path / "stop").touch()

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    labkit.train_on_ray(config, run=run, make_env=Line)
    thread.join(10)
    saved = checkpoint.latest(run.path / "checkpoints")
    assert len(checkpoint.load_evaluations(saved)["versions"]) > 1, "the evaluator was not behind"
    (tmp_path / "stop").unlink()
    total = last_saved(run.path) + 20
    longer = small_config(**{**ENDLESS, **slow, "num_iterations": total})
    labkit.train_on_ray(longer, run=labkit.open_run(run.path, longer), make_env=Line)
    table = read_metrics(run.path)
    played = table.gradient_step[table.eval_return.notna()].tolist()
    assert played == [*range(0, total, 50), total]
    in_order = table.sort_values("gradient_step", kind="stable")
    assert in_order.wall_seconds.is_monotonic_increasing, "those of the weights, not of the answer"


def test_a_killed_driver_leaves_nothing_running(tmp_path):
    driver = start(tmp_path / "run", 1_000_000)
    goes_on(tmp_path / "run", 20)
    below = descendants(driver.pid)
    driver.kill()
    driver.communicate()
    gone = lambda: not any(Path(f"/proc/{pid}").exists() for pid in below)  # noqa: E731
    wait_until(gone, 30, "end of all processes")
    summary = json.loads((tmp_path / "run" / "ray.json").read_text())
    assert summary == {"faults": []}, "no summary yet, but it counts as a run on Ray"


def test_a_lost_node(tmp_path, monkeypatch):
    """The raylet of a worker or of the evaluator is killed; the actor restarts elsewhere."""
    from conftest import SMALL
    from ray.cluster_utils import Cluster

    from labkit.distributed import ray_cluster
    from labkit.distributed import ray_cluster as labkit_cluster

    monkeypatch.setenv("PYTHONPATH", HERE)
    monkeypatch.setenv("LABKIT_STOP", str(tmp_path / "stop"))
    # The cluster's own token, which its users name: labkit drops one that it made for itself.
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    quick = {"health_check_period_ms": 500, "health_check_initial_delay_ms": 1_000}
    with ray_cluster.on_loopback():
        ray_cluster.require_token()
        cluster = Cluster(
            initialize_head=True,
            # Of the three parts that may go anywhere two live elsewhere, and find room there again.
            head_node_args={"num_cpus": 1, "_system_config": {**labkit_cluster.SYSTEM, **quick}},
        )
        others = [cluster.add_node(num_cpus=3) for _ in range(2)]
        config = labkit.SACConfig(**{**SMALL, **ENDLESS})
        run = open_run(tmp_path / "run", config)
        failure, noticed = [], threading.Event()
        report = driver.Driver._report_restart
        monkeypatch.setattr(
            driver.Driver,
            "_report_restart",
            lambda self, restart: (report(self, restart), noticed.set()),
        )

        def hosts_a_part(node):
            (raylet,) = node.all_processes["raylet"]
            return any(
                actor_pids(raylet.process.pid, kind) for kind in ("RolloutWorker", "Evaluator")
            )

        def kill_node():
            try:
                goes_on(run.path, 60)
                cluster.remove_node(next(filter(hosts_a_part, others)), allow_graceful=False)
                assert noticed.wait(200), "no restart was reported"
                goes_on(run.path, last_step(run.path) + 400)
            except BaseException as error:
                failure.append(error)
            finally:
                (tmp_path / "stop").touch()

        thread = threading.Thread(target=kill_node, daemon=True)
        thread.start()
        try:
            labkit.train_on_ray(config, 2, address=cluster.address, run=run, make_env=Line)
        finally:
            cluster.shutdown()
        thread.join(10)
    assert not failure, failure
    summary = json.loads((run.path / "ray.json").read_text())
    faults = summary["faults"]
    assert {"rollout worker 0", "rollout worker 1"} <= set(summary["cpu_seconds"])
    lost = [one["actor"] for one in faults]
    assert any(part.startswith("rollout worker") or part == "evaluator" for part in lost), faults
    assert last_step(run.path) > 400


@pytest.mark.timeout(300)
def test_a_ray_run_of_version_0_1_resumes(tmp_path):
    """Its checkpoint was written before labkit's modules became packages."""
    config = old_runs.copy("ray", tmp_path / "run", num_iterations=80)
    run = labkit.train_on_ray(config, 1, run=labkit.open_run(tmp_path / "run", config))
    table = run.metrics()
    assert table.gradient_step.max() == 80
    logged = table.gradient_step[table.critic_loss.notna()]
    assert logged.tolist() == list(range(5, 81, 5))
