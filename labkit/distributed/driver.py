"""The Ray executor: the same configuration, agent, rows and run directory, in many processes.

    config = labkit.SACConfig(num_iterations=100_000)
    run = labkit.train_on_ray(config, num_collectors=2)                    # this machine
    run = labkit.train_on_ray(config, num_collectors=64, address="auto")   # a cluster

Replay, parameter server and learner run on the driver's machine, which holds the run directory.
Rollout workers and the evaluator run wherever Ray has CPUs.
"""

import contextlib
import time
from typing import TYPE_CHECKING, Any

from labkit.config import SACConfig
from labkit.distributed import failure_log, ray_cluster, ray_summary
from labkit.distributed.checks import check_picklable, checked_environment
from labkit.errors import (
    START_SECONDS,
    BrokenEnvironmentError,
    DivergedError,
    ParameterError,
    StorageError,
)
from labkit.parameters import check_int, invalid
from labkit.replay.server import free_port, warn_once
from labkit.replay.transitions import Layout, layout_of
from labkit.strategy import learner_gpus
from labkit.training import checkpoint
from labkit.training.components import MakeEnv, check_config_and_run
from labkit.training.learner import check_executor, name_last_checkpoint
from labkit.training.progress import Phases, StopRequest, stop_request
from labkit.training.run import (
    Run,
    check_free,
    check_same,
    describe,
    open_run,
    removed_if_rejected,
)

if TYPE_CHECKING:  # Ray may not be installed
    from labkit.distributed.supervisor import Restart, SupervisedActor

STOP_SECONDS = 6.0  # until the learner begins the last checkpoint of a run that is asked to end
# These name their reason; any other error is explained by the log of the process.
NOT_OF_A_PROCESS = (ParameterError, BrokenEnvironmentError, DivergedError, StorageError)
NEEDED_TO_SAVE = ("learner", "parameter server", "replay", "head")  # Ray's head node
NOTHING_TO_SAVE = ("starting", "warm-up")  # phases of the learner


def train_on_ray(
    config: SACConfig,
    num_collectors: int = 1,
    address: str | None = None,
    run: Run | None = None,
    make_env: MakeEnv | None = None,
    *,
    max_episode_steps: int | None = None,
) -> Run:
    """Trains SAC as configured, with collection, learning and evaluation in separate processes.

    A rate limiter in the replay table enforces the configured ratio of gradient steps to env steps.
    Ray restarts actors that fail; each restart and its cost are printed and written to `ray.json`.
    A rollout worker that fails too often is dropped while another one answers.
    A run directory with a checkpoint of this executor is resumed. Ctrl-C, the kernel's stop button
    and SIGTERM end the run within ten seconds and the time that its last checkpoint takes.

    Args:
        config: the configuration, as for `labkit.train`; `replay` must be 'reverb'.
        num_collectors: rollout workers, one environment each.
        address: of a running Ray cluster, `host:port` or 'auto'; None starts Ray on this machine,
            on the loopback interface and with a token, and stops it at the end.
        run: an open run of this configuration; None makes a new numbered directory under `runs/`.
        make_env: returns an environment, as for `labkit.train`; it must be picklable.
        max_episode_steps: env steps until the time limit, as for `labkit.train`.

    Returns:
        The run; `run.metrics()` is the table of everything measured.

    Raises:
        RunError: as `labkit.train`, and `ActorLostError` for an actor that fails repeatedly.
        ParameterError: a value is not allowed; before any work.
        KeyboardInterrupt: the run was stopped before its first checkpoint, as in the warm-up, or
            while Ray started.
    """
    num_collectors = check_int("num_collectors", num_collectors, 1, 10_000, "rollout workers")
    ray_cluster.check_installed()
    check_config_and_run(config, run)
    if config.replay != "reverb":
        allowed = "'reverb' on Ray, where other processes write to the table"
        raise invalid("replay", config.replay, allowed)
    ray_cluster.check_address(address)
    ray_cluster.check_cpus(num_collectors)
    check_picklable(make_env)
    new = run is None
    with contextlib.closing(checked_environment(config, make_env, max_episode_steps, run)) as env:
        layout = layout_of(env)
        run = run or open_run("", config, environment=describe(env), executor="ray")
        check_free(run.path)
        check_same(run.path, run.config, config)
        check_executor(run.path, "ray")
        run.check_environment(env)
    warn_once()
    begin = time.monotonic()
    with (
        removed_if_rejected(run) if new else contextlib.nullcontext(),
        stop_request() as stop,
        ray_cluster.connection(address, cpus=num_collectors + 1),
    ):
        ray_cluster.check_cpus(num_collectors)  # those of a cluster are known now
        if stop:  # while Ray started
            return _stopped(run)
        driver = Driver(config, run, num_collectors, make_env, layout, max_episode_steps)
        try:
            with name_last_checkpoint(run.path / "checkpoints"), driver:
                driver.watch(stop)
        except BaseException:
            with contextlib.suppress(StorageError):  # the first error tells more
                driver.write_faults()
            raise
    driver.report(stop, time.monotonic() - begin)
    return _stopped(run) if stop else run


def _stopped(run: Run) -> Run:
    """The run, which was asked to end, unless it has nothing to show."""
    if checkpoint.latest(run.path / "checkpoints") is None:
        raise KeyboardInterrupt("before its first checkpoint")
    return run


class Driver:
    """Starts the actors, watches them, shows their progress, and stops them."""

    def __init__(
        self,
        config: SACConfig,
        run: Run,
        workers: int,
        make_env: MakeEnv | None,
        layout: Layout,
        max_episode_steps: int | None,
    ):
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from labkit.distributed.context import RunContext, environment_seconds
        from labkit.distributed.learner_actor import LearnerActor
        from labkit.distributed.parameter_server import ParameterServer
        from labkit.distributed.replay_actor import ReplayActor
        from labkit.distributed.supervisor import ActorSupervisor
        from labkit.distributed.workers import Evaluator, RolloutWorker

        # Longer than the environment's limit, which should end a hanging environment first. Without
        # that limit (0), only actors that step an environment may be silent without end.
        self.supervisor = ActorSupervisor(START_SECONDS + config.environment_timeout)
        steps: dict[str, Any] = {"timeout": START_SECONDS + environment_seconds(config)}
        self.config, self.run = config, run
        self.faults = list(ray_summary.read(run.path).get("faults", []))
        self.outcome: dict[str, Any] | None = None
        self.totals: dict[str, Any] = {}
        self._replay_fault: dict[str, Any] | None = None  # while the learner restarts with it
        self._deadline: float | None = None  # of a stop that was requested
        self._saving = False  # after that
        self._told: set[tuple[Any, int]] = set()  # process and number of the learner's messages
        if not ray_summary.read(run.path):  # a run that is killed was on Ray, too
            ray_summary.write(run, {"faults": []})
        path, start = run.path.resolve(), self.supervisor.start_actor
        self.folder = path / "checkpoints"
        server = f"{ray.util.get_node_ip_address()}:{free_port()}"
        prefix = self.supervisor.prefix
        context = RunContext(config, make_env, path, server, prefix, max_episode_steps)
        node = ray.get_runtime_context().get_node_id()
        this_node = NodeAffinitySchedulingStrategy(node, soft=False)
        here: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": this_node}
        anywhere: dict[str, Any] = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
        start("replay", ReplayActor, context, layout, **here)
        start("parameter server", ParameterServer, path / "parameters.npz", work="", **here)
        here["num_gpus"] = learner_gpus(config.strategy)
        start("learner", LearnerActor, context, work="train", **here)
        for number in range(workers):
            arguments = (context, number, config.initial_collect_steps, workers)
            name = f"rollout worker {number}"
            start(name, RolloutWorker, *arguments, redundant=True, **steps, **anywhere)
        start("evaluator", Evaluator, context, **steps, **anywhere)

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *error: object) -> None:
        actors = self.supervisor.actors
        self.totals = {
            "cpu_seconds": {name: actor.cpu_seconds for name, actor in actors.items()},
            "staleness": actors["parameter server"].status,
            "learner": actors["learner"].status,
        }
        with contextlib.suppress(Exception):  # a cluster that is gone has ended them
            self.supervisor.stop_actors()

    def watch(self, stop: StopRequest) -> None:
        """Returns when the learner is done, or has stopped because the run is asked to end.

        An error comes after a checkpoint, unless a process that the learner needs has failed.
        """
        try:
            self._watch(stop)
        except Exception as error:
            failed = self.supervisor.actors.get(self.supervisor.failed)
            if failed and not isinstance(error, NOT_OF_A_PROCESS):
                self._look_for_reason(failed, failed.status)
            if self.supervisor.failed not in NEEDED_TO_SAVE:
                for actor in self.supervisor.actors.values():
                    actor.watched = actor.name == "learner"
                with contextlib.suppress(Exception):  # the first error tells more
                    self._watch(True)
            raise

    def _watch(self, stop: StopRequest | bool) -> None:
        with Phases() as display:
            while self.outcome is None:
                if stop and self._has_stopped():
                    return
                for restart in self.supervisor.poll(0.2):
                    self._report_restart(restart)
                self.outcome = self.supervisor.result("learner")
                self._print_messages()
                self._show(display)
            if not stop:  # the last episodes ended between two looks at the evaluator
                display.reached("evaluation", self.config.num_eval_episodes)

    def _has_stopped(self) -> bool:
        """Asks the learner to stop; whether it has nothing to save, or did not begin to in time."""
        learner = self.supervisor.actors["learner"]
        phase = learner.status.get("phase", NOTHING_TO_SAVE[0])
        if self._deadline is None:
            if phase in NOTHING_TO_SAVE:
                return True
            learner.handle.stop.remote()
            self._deadline = time.monotonic() + STOP_SECONDS
        if phase == "saving":  # the replay actor limits how long that takes
            if not self._saving:
                print("saving the last checkpoint; interrupt once more to stop without it")
            self._saving = True
            self._deadline = learner.answered_at + STOP_SECONDS
        return time.monotonic() > self._deadline

    def _print_messages(self) -> None:
        """Prints what the learner has said since the last look: its own output reaches nobody."""
        status = self.supervisor.actors["learner"].status
        for number, message in enumerate(status.get("messages", [])):
            if (key := (status["process"], number)) not in self._told:
                print(message)
                self._told.add(key)

    def _show(self, display: Phases) -> None:
        config, actors = self.config, self.supervisor.actors
        learner, replay = actors["learner"].status, actors["replay"].status
        env_steps = replay.get("inserts", 0)
        match learner.get("phase"):
            case "warm-up":
                total = config.initial_collect_steps
                display.show("warm-up", total, "env steps", min(env_steps, total))
            case "training":
                display.reached("warm-up", config.initial_collect_steps)
                facts = {"env_steps": env_steps, "last_return": learner["last_return"]}
                total, before = config.num_iterations, learner["first_step"]
                display.show("training", total, "it", learner["step"], before, **facts)
            case "evaluation":
                display.reached("training", learner["step"])
                done = actors["evaluator"].status.get("final_episodes", 0)
                facts = {"evaluations_waiting": learner["waiting"]} if learner["waiting"] else {}
                display.show("evaluation", config.num_eval_episodes, "episodes", done, **facts)

    def _report_restart(self, restart: "Restart") -> None:
        """Prints and records what a failure cost; restarts the learner with its replay table."""
        import ray

        from labkit.distributed.supervisor import restart_cost

        name, learner = restart.actor.name, self.supervisor.actors["learner"]
        lost = restart_cost(restart, self.config, learner.status.get("env_step", 0))
        steps = lost["gradient_steps_lost"]
        if name == "learner" and self._replay_fault is not None:
            self._replay_fault["gradient_steps_lost"], self._replay_fault = steps, None
            print(f"the learner resumed with it: at least {steps} gradient steps lost")
            return
        fault = {"actor": name, "seconds": round(restart.seconds, 1), **lost}
        self.faults.append(fault)
        fault["node"], note = self._look_for_reason(restart.actor, restart.before)
        if name == "replay":
            # Its snapshot belongs to the learner's last checkpoint: both resume from there.
            ray.kill(learner.handle, no_restart=False)
            self._replay_fault = fault if learner.status else None  # else it had not answered yet
        if restart.dropped:
            fault["dropped"] = True
            print(f"{restart.dropped}; the run continues without it")
            return
        if name.startswith("rollout worker"):
            cost = f"at most {lost['env_steps_lost']} env steps and the rest of an episode lost"
        elif name == "learner":
            cost = f"at least {steps} gradient steps lost"  # since its last answer, it took more
        else:
            cost = f"{lost['env_steps_lost']} env steps lost"
        where = "" if fault["node"] in ("", ray.util.get_node_ip_address()) else fault["node"]
        print(
            f"{name}{where and f' on {where}'} failed and was restarted{note and f' ({note})'}: "
            f"its new process answered after {fault['seconds']:.0f} s, {cost}"
        )

    def _look_for_reason(self, actor: "SupervisedActor", status: dict[str, Any]) -> tuple[str, str]:
        """The address of a failed process, and why it was killed; keeps the end of its log."""
        if "process" not in status:  # it never answered
            return "", ""
        if self._deadline is not None:  # another machine may take long to answer
            return failure_log.address_of(status["process"][0]), ""
        return failure_log.record(self.run, actor.name, status["process"])

    def write_faults(self) -> None:
        """Adds the faults of this start to `ray.json`, for a run that ends with an error."""
        earlier = ray_summary.read(self.run.path)
        if self.faults != earlier.get("faults", []):
            ray_summary.write(self.run, {**earlier, "faults": self.faults})

    def report(self, stop: StopRequest, seconds: float) -> None:
        """Writes `ray.json` and prints a summary."""
        earlier, outcome = ray_summary.read(self.run.path), self.outcome or {}
        summary = {**earlier, "faults": self.faults}
        trained = outcome.get("taken") != 0  # else a finished run was opened: nothing was measured
        if trained or "seconds" not in earlier:
            counted = outcome.get("inserts", 0) - self.config.initial_collect_steps
            measured = {
                "inserts": outcome.get("inserts"),
                "samples": outcome.get("samples"),
                "samples_per_insert": outcome["samples"] / counted if counted > 0 else None,
                **{key: self.totals["staleness"].get(key) for key in ray_summary.STALENESS},
            }
            cpu = self.totals["cpu_seconds"]
            summary = ray_summary.with_start(summary, seconds, cpu, measured)
        ray_summary.write(self.run, summary)
        if trained and summary["samples_per_insert"] and summary["staleness_median"] is not None:
            print(
                f"{summary['samples_per_insert']:.1f} samples per insert; weights in use were "
                f"{summary['staleness_median']:.0f} env steps older than the newest (median; "
                f"{summary['staleness_max']:.0f} at most)"
            )
        print(checkpoint.summary(self.run.path / "checkpoints"))
        if stop:
            reached = max(checkpoint.steps(self.folder), default=0)
            lost = self.totals["learner"].get("step", 0) - reached
            late = f" ({lost} later ones are lost: no time for a checkpoint)" if lost > 0 else ""
            print(
                f"stopped at gradient step {reached} of {self.config.num_iterations}{late}; "
                "run this again to resume"
            )
