"""The Ray executor: the same configuration, agent, rows and run directory, in many processes.

Replay, parameter server and learner run on the driver's machine, which holds the run directory.
Rollout workers and the evaluator run wherever Ray has CPUs.
"""

import contextlib
import json
import os
import sys
import time
from typing import Any

import ray

from labkit.config import SACConfig, check_config
from labkit.distributed import cluster
from labkit.distributed.learner_actor import LearnerActor
from labkit.distributed.replay_actor import ReplayActor
from labkit.distributed.workers import Evaluator, RolloutWorker, RunContext, silence_limit
from labkit.errors import first_line, storage
from labkit.parameters import check_int, invalid
from labkit.replay.reverb_replay import UNCONFIRMED
from labkit.replay.server import free_port, warn_once
from labkit.replay.transitions import Layout, layout_of
from labkit.strategy import learner_gpus
from labkit.training import checkpoint
from labkit.training.components import MakeEnv, open_training
from labkit.training.progress import Phases, StopRequest
from labkit.training.records import is_finished
from labkit.training.run import Run


def train_on_ray(
    config: SACConfig,
    num_collectors: int = 1,
    address: str | None = None,
    run: Run | None = None,
    make_env: MakeEnv | None = None,
    *,
    max_episode_steps: int | None = None,
) -> Run:
    """As `labkit.train`, with collection, learning and evaluation in separate processes.

    A rate limiter in the replay table enforces the configured ratio of gradient steps to env steps.
    Ray restarts processes that fail; each failure and its cost are printed and written to
    `ray.json`.

    Arguments, result and errors that are not listed are those of `labkit.train`.

    Args:
        config: its `replay` must be 'reverb'.
        num_collectors: rollout workers, one environment each.
        address: of a running Ray cluster, or None to start Ray here; see `cluster.connection`.
        run: only this executor resumes its runs.
        make_env: must be picklable.
        max_episode_steps: env steps until the time limit.

    Raises:
        ActorLostError: a process fails again and again.
    """
    num_collectors = check_int("num_collectors", num_collectors, 1, 10_000, "rollout workers")
    check_config(config)
    if config.replay != "reverb":
        allowed = "'reverb' on Ray, where other processes write to the table"
        raise invalid("replay", config.replay, allowed)
    try:
        pickled = None if make_env is None else ray.cloudpickle.dumps(make_env)
    except Exception as error:  # of any kind: a user's object may define how it is pickled
        allowed = "a class or a function that Ray can pickle for its processes"
        raise invalid("make_env", make_env, f"{allowed} ({first_line(error)})") from None
    with contextlib.ExitStack() as stack:
        training = open_training("ray", config, run, make_env, max_episode_steps)
        opened, environments = stack.enter_context(training)
        if is_finished(opened.path, config):
            return opened
        warn_once()
        stack.enter_context(cluster.connection(address, cpus=num_collectors + 1))
        server = f"{ray.util.get_node_ip_address()}:{free_port()}"
        paths, folder = list(map(os.path.abspath, sys.path)), opened.path.resolve() / "checkpoints"
        context = RunContext(config, pickled, paths, folder, server, max_episode_steps)
        driver = Driver(context, opened, num_collectors, layout_of(environments[0]))
        with StopRequest() as stop:
            driver.watch(stop)
    saved = checkpoint.steps(folder)
    if stop and not saved:
        raise KeyboardInterrupt("before its first checkpoint")
    print(checkpoint.summary(opened.path / "checkpoints"))
    if stop:
        print(f"stopped at gradient step {saved[-1]}; run this again to resume")
    return opened


class Driver:
    """Starts the actors, watches them, shows their progress, stops them, and writes `ray.json`.

    That file holds what the run measured on Ray since its last start: wall seconds; the CPU seconds
    of each actor's present process; inserts and samples of the replay table, and their ratio
    without the warm-up; the staleness in env steps, see `ParameterServer.status`; and of each
    failure the actor, the seconds until its new process answered and the steps lost. One of the
    replay table includes one of the learner, which is restarted with it.
    """

    def __init__(self, context: RunContext, run: Run, workers: int, layout: Layout):
        self.config, self.run, self._begin = context.config, run, time.monotonic()
        self.faults: list[dict[str, Any]] = []
        node = context.server_address.rpartition(":")[0]
        here: dict[str, Any] = {"num_cpus": 0, "resources": {f"node:{node}": 0.001}}
        anywhere: dict[str, Any] = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
        self.supervisor = cluster.ActorSupervisor(silence_limit(self.config))
        start = self.supervisor.start_actor
        replay = start("replay", ReplayActor, context, layout, **here).handle
        parameters = start("parameter server", cluster.ParameterServer, **here).handle
        evaluator = start("evaluator", Evaluator, context, **anywhere).handle
        here["num_gpus"] = learner_gpus(self.config.strategy)
        learner = start("learner", LearnerActor, context, **here)
        learner.work = learner.handle.train.remote(replay, parameters, evaluator)
        for number in range(workers):
            name = f"rollout worker {number}"
            worker = start(name, RolloutWorker, context, number, workers, **anywhere)
            worker.work = worker.handle.run.remote(parameters)
        self.actors = self.supervisor.actors

    def watch(self, stop: StopRequest) -> None:
        """Returns when the learner is done, or has stopped because the run is asked to end.

        An error comes after a checkpoint, if the processes that the learner needs still work.
        """
        learner = self.actors["learner"]
        try:
            with Phases() as display:
                while learner.result is None:
                    if stop and learner.status.get("phase", "warm-up") == "warm-up":
                        return  # there is nothing to save
                    if stop:
                        learner.handle.stop.remote()
                    for failed in self.supervisor.poll(0.2):
                        self._report(failed)
                    self._show(display)
        except Exception:
            with contextlib.suppress(Exception):  # the first error tells more
                learner.handle.stop.remote()
                ray.wait([learner.work], timeout=60)  # for its last checkpoint
            raise
        finally:
            with contextlib.suppress(Exception):  # a cluster that is gone has ended them
                for actor in self.actors.values():
                    ray.kill(actor.handle, no_restart=True)
            file = self.run.path / "ray.json"
            with storage(file):
                checkpoint.write_atomically(file, json.dumps(self._summary(), indent=2) + "\n")

    def _show(self, display: Phases) -> None:
        config, learner = self.config, self.actors["learner"].status
        env_steps = self.actors["replay"].status.get("inserts") or 0
        if learner.get("phase") == "warm-up":
            total = config.initial_collect_steps
            display.show("warm-up", total, "env steps", min(env_steps, total))
        elif learner.get("phase") == "training":
            facts = {"env_steps": env_steps, "last_return": learner["last_return"]}
            total, before = config.num_iterations, learner["first_step"]
            display.show("training", total, "it", learner["step"], before, **facts)

    def _report(self, failed: cluster.SupervisedActor) -> None:
        """Prints and records what a failure cost; restarts the learner with its replay table."""
        learner, env_steps, gradient_steps = self.actors["learner"], 0, 0
        status = learner.before if failed is learner else learner.status
        if failed.name.startswith("rollout"):  # unconfirmed rows, and those of open windows
            env_steps = 2 * UNCONFIRMED - 2 + self.config.n_step
        if failed.name in ("learner", "replay"):  # both resume from the last checkpoint
            gradient_steps = status.get("step", 0) - status.get("saved_step", 0)
        if failed.name == "replay":
            env_steps = max(0, (failed.before["inserts"] or 0) - status.get("saved_env_step", 0))
            ray.kill(learner.handle, no_restart=False)
        lost = {"env_steps_lost": env_steps, "gradient_steps_lost": gradient_steps}
        self.faults.append({"actor": failed.name, "seconds": round(failed.failed_for, 1), **lost})
        what = f"{failed.name} failed and was restarted after {failed.failed_for:.0f} s"
        found = f"at most {env_steps} env steps and about {gradient_steps} gradient steps lost"
        print(f"{what}: {found}")

    def _summary(self) -> dict[str, Any]:
        """What `ray.json` holds at the end."""
        table = self.actors["learner"].result or {"inserts": None, "samples": None}
        counted = (table["inserts"] or 0) - self.config.initial_collect_steps
        staleness = self.actors["parameter server"].status
        return {
            "seconds": round(time.monotonic() - self._begin, 1),
            "cpu_seconds": {n: one.status.get("cpu_seconds") for n, one in self.actors.items()},
            **table,
            "samples_per_insert": table["samples"] / counted if counted > 0 else None,
            **{name: staleness.get(name) for name in ("staleness_median", "staleness_max")},
            "faults": self.faults,
        }
