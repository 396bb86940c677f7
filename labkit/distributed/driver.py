"""The Ray executor: the same configuration, agent, rows and run directory, in many processes.

    config = labkit.SACConfig(num_iterations=100_000)
    run = labkit.train_on_ray(config, num_collectors=2)                    # this machine
    run = labkit.train_on_ray(config, num_collectors=64, address="auto")   # a cluster

Replay, parameter server and learner live on the driver's machine, where the run directory is;
rollout workers and the tester live wherever Ray has CPUs.
"""

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

from labkit.config import SACConfig
from labkit.distributed import ray_cluster
from labkit.environments import watchdog
from labkit.environments.make import check_specs, make_environment
from labkit.errors import START_SECONDS
from labkit.parameters import check_int, invalid
from labkit.replay import ports
from labkit.replay.ports import free_port
from labkit.replay.transitions import layout_of
from labkit.strategy import gpus
from labkit.training import checkpoint, run_directory
from labkit.training.learner import name_last_checkpoint
from labkit.training.progress import Phases
from labkit.training.signals import StopRequest, stop_request

STOP_SECONDS = 6.0  # for the last checkpoint of a run that is asked to end
SUMMARY = "ray.json"


def train_on_ray(
    config: SACConfig,
    num_collectors: int = 1,
    address: str | None = None,
    run: run_directory.Run | None = None,
    make_env: Callable | None = None,
) -> run_directory.Run:
    """Trains SAC as configured, collecting, learning and testing in processes of their own.

    A rate limiter in the replay table keeps the ratio of gradient steps to env steps that the
    configuration asks for. Actors that fail are restarted; each failure and its cost are printed and
    written to `ray.json`. A run directory that holds a checkpoint of this executor is resumed.
    Ctrl-C, the kernel's stop button and SIGTERM end the run within ten seconds, with a checkpoint if one
    can be written in that time.

    Args:
        config: the configuration, the same as for `labkit.train`; `replay` is Reverb.
        num_collectors: rollout workers, one environment each.
        address: of a running Ray cluster, `host:port` or 'auto'; None starts a Ray on this
            machine, on the loopback interface and with a token, and stops it in the end.
        run: where results go; None makes a new numbered directory under `runs/`.
        make_env: one's own Gym environment; it must be picklable.

    Returns:
        The run; `run.metrics()` is the table of everything measured.

    Raises:
        RunError: as `labkit.train`, and `ActorLostError` for a part that dies again and again.
        ParameterError: a value is refused, before any work.
    """
    num_collectors = check_int("num_collectors", num_collectors, 1, 10_000, "rollout workers")
    ray_cluster.check_installed()
    if config.replay != "reverb":
        raise invalid("replay", config.replay, "'reverb' on Ray: other processes write to it")
    run = run or run_directory.open_run("", config)
    env = make_environment(make_env or config.env_name, seed=config.seed)
    check_specs(env)
    layout = layout_of(env)
    ports.warn_once()
    begin = time.monotonic()
    with stop_request() as stop, ray_cluster.connection(address, cpus=num_collectors + 1):
        driver = Driver(config, run, num_collectors, make_env, layout)
        with name_last_checkpoint(run.path / "checkpoints"), driver:
            driver.watch(stop)
    driver.report(stop, time.monotonic() - begin)
    return run


class Driver:
    """Starts the parts, watches them, shows how far they are, and ends them."""

    def __init__(
        self, config: SACConfig, run: run_directory.Run, collectors: int, make_env, layout
    ):
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from labkit.distributed.learner_actor import LearnerActor
        from labkit.distributed.parameter_server import ParameterServer
        from labkit.distributed.replay_actor import ReplayActor
        from labkit.distributed.supervisor import ActorSupervisor
        from labkit.distributed.workers import Evaluator, RolloutWorker

        # An environment that hangs is the watchdog's business first.
        crew = ActorSupervisor(START_SECONDS + config.environment_timeout)
        self.config, self.run, self.crew = config, run, crew
        self.faults: list[dict[str, Any]] = []
        self.outcome: dict[str, Any] | None = None
        self.totals: dict[str, Any] = {}
        path = run.path.resolve()
        self.folder = path / "checkpoints"
        node = ray.get_runtime_context().get_node_id()
        here: dict[str, Any] = {
            "num_cpus": 0,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
        }
        anywhere: dict[str, Any] = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
        port = free_port()
        server = f"{ray.util.get_node_ip_address()}:{port}"
        hire, names = self.crew.start_actor, self.crew.names
        hire("replay", ReplayActor, config, layout, self.folder, port, **here)
        hire("parameter server", ParameterServer, path / "parameters.npz", work="", **here)
        common = (config, make_env, path)
        here["num_gpus"] = gpus(config.strategy)
        hire("learner", LearnerActor, *common, server, names, work="train", **here)
        for number in range(collectors):
            share = (config.initial_collect_steps, collectors)
            name = f"rollout worker {number}"
            worker = (number, *common, server, names, *share)
            hire(name, RolloutWorker, *worker, spare=True, **anywhere)
        hire("evaluator", Evaluator, *common, names, **anywhere)

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *error: object) -> None:
        self.totals = self._totals()
        with contextlib.suppress(Exception):  # a cluster that is gone has ended them
            self.crew.stop_actors()

    def watch(self, stop: StopRequest) -> None:
        """Returns when the learner is done, or a little after it was asked to stop."""
        deadline = None
        with Phases() as bar:
            while self.outcome is None:
                if stop and deadline is None:
                    deadline = time.monotonic() + STOP_SECONDS
                    self.crew.parts["learner"].handle.stop.remote()
                if deadline is not None and time.monotonic() > deadline:
                    return
                for restart in self.crew.look(0.2):
                    self._replaced(restart)
                self.outcome = self.crew.finished("learner")
                self._show(bar)

    def _show(self, bar: Phases) -> None:
        config = self.config
        learner, replay, tester = (
            self.crew.parts[name].status for name in ("learner", "replay", "evaluator")
        )
        inserts = replay.get("inserts", 0)
        match learner.get("phase"):
            case "random collection":
                total = config.initial_collect_steps
                bar.show("random collection", total, "env steps", min(inserts, total))
            case "training":
                bar.reached("random collection", config.initial_collect_steps)
                facts = {"env_steps": inserts, "last_return": learner["last_return"]}
                bar.show("training", config.num_iterations, "it", learner["step"], **facts)
            case "evaluation":
                bar.reached("training", learner["step"])
                done = tester.get("episodes", 0)
                bar.show("evaluation", config.num_eval_episodes, "episodes", done)

    def _replaced(self, restart) -> None:
        """Says what a death cost, and restarts the learner with the replay table it belongs to."""
        import ray

        from labkit.distributed.supervisor import cost_of

        name, learner = restart.part.name, self.crew.parts["learner"]
        lost = cost_of(restart, self.config.n_step, learner.status.get("env_step", 0))
        if name == "replay":
            # Its snapshot belongs to the learner's last checkpoint: both go on from there.
            ray.kill(learner.handle, no_restart=False)
        fault = {"part": name, "seconds": round(restart.seconds, 1), **lost}
        self.faults.append(fault)
        why = watchdog.read_kill_note(self.run.path)
        print(f"{name} died and was replaced{f' ({why})' if why else ''}: {describe(fault)}")

    def _totals(self) -> dict[str, Any]:
        parts = self.crew.parts
        return {
            "cpu_seconds": {name: round(part.cpu_seconds, 2) for name, part in parts.items()},
            "parameter server": parts["parameter server"].status,
            "learner": parts["learner"].status,
        }

    def report(self, stop: StopRequest, seconds: float) -> None:
        """Writes `ray.json` and says in a few lines how it went."""
        from labkit.distributed.replay_actor import limits

        outcome, weights = self.outcome or {}, self.totals["parameter server"]
        first = limits(self.config)[1]
        done = outcome.get("inserts", 0) - first
        content = {
            "seconds": round(seconds, 1),
            "inserts": outcome.get("inserts"),
            "samples": outcome.get("samples"),
            "samples_per_insert": outcome["samples"] / done if done > 0 else None,
            "staleness_median": weights.get("staleness_median"),
            "staleness_max": weights.get("staleness_max"),
            "cpu_seconds": self.totals["cpu_seconds"],
            "faults": self.faults,
        }
        (self.run.path / SUMMARY).write_text(json.dumps(content, indent=2) + "\n")
        if content["samples_per_insert"]:
            print(
                f"{content['samples_per_insert']:.1f} samples per insert; weights in use were "
                f"{content['staleness_median']:.0f} env steps older than the newest (median; "
                f"{content['staleness_max']:.0f} at most)"
            )
        print(checkpoint.whereabouts(self.run.path / "checkpoints"))
        if stop:
            reached = max(checkpoint.steps(self.folder), default=0)
            lost = self.totals["learner"].get("step", 0) - reached
            late = f" ({lost} later ones are lost: no time for a checkpoint)" if lost > 0 else ""
            print(
                f"stopped at gradient step {reached} of {self.config.num_iterations}{late}; "
                "run this again to go on"
            )


def describe(fault: dict[str, Any]) -> str:
    """One clause: how long a replacement took and what was lost."""
    if fault["part"].startswith("rollout worker"):
        lost = f"at most {fault['env_steps_lost']} env steps and the rest of an episode lost"
    elif fault["part"] == "learner":
        lost = f"{fault['gradient_steps_lost']} gradient steps lost"
    else:
        lost = f"{fault['env_steps_lost']} env steps lost"
    return f"{fault['seconds']:.0f} s without it, {lost}"
