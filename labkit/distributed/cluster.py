"""Ray: the connection to it, the supervisor of a run's actors, and the parameter server.

Nothing here loads TensorFlow, which the parameter server's process does not need.
"""

import contextlib
import logging
import os
import socket
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import ray
from ray._private import ray_constants, worker
from ray.exceptions import RayError, RayTaskError

from labkit import errors
from labkit.parameters import invalid
from labkit.runtime import quiet

# Ray gives its workers a lower priority than all other processes, so that they would starve, and
# gives up on workers that start slowly on a busy machine.
SYSTEM = {
    "worker_niceness": 0,
    "worker_register_timeout_seconds": errors.START_SECONDS,
    "agent_register_timeout_ms": 1000 * errors.START_SECONDS,
}
Weights = tuple[int, int, np.ndarray]  # version, env steps then, weights [parameters] float32


@contextlib.contextmanager
def connection(address: str | None, cpus: int) -> Iterator[None]:
    """A connection to Ray for the length of a block; one that exists is used as it is.

    Everyone who can reach a Ray cluster can run programs on it. So a Ray that is started here
    listens on the loopback interface only; it requires a token, which is Ray's own default.

    Args:
        address: `host:port` of a running cluster's head, or 'auto' for that of this machine; it
            stays running. None starts Ray on this machine and stops it.
        cpus: those that a Ray started here schedules on, without measuring them, or that another
            one must have: one for each rollout worker, and one for the evaluator.

    Raises:
        ParameterError: there is no such cluster, it requires another token, or has too few CPUs.
        StalledError: Ray could not be started here.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with contextlib.nullcontext() if ray.is_initialized() else _new_connection(address, cpus):
        if (total := ray.cluster_resources().get("CPU", 0)) < cpus:
            allowed = f"less than the {total:g} CPUs of the running Ray: the evaluator takes one"
            raise invalid("num_collectors", cpus - 1, allowed)
        yield


@contextlib.contextmanager
def _new_connection(address: str | None, cpus: int) -> Iterator[None]:
    # Ray listens on the outward address, unless its constant says that the firewall of this system
    # would ask the user. Its processes get it from the variable; this one may have read that.
    ray_constants.ENABLE_RAY_CLUSTER = address is not None
    os.environ[ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR] = str(int(address is not None))
    # Ray opens its folder to every user; the one above it is ours alone.
    folder = tempfile.TemporaryDirectory(None, "labkit-ray-", "/tmp", ignore_cleanup_errors=True)
    with folder, contextlib.ExitStack() as stack:
        stack.callback(setattr, worker, "_worker_logs_enabled", True)
        stack.callback(quiet()(ray.shutdown))
        with quiet():
            _start(f"{folder.name}/ray", cpus) if address is None else _connect(address)
        # Ray has no option to hide its paragraphs about each failed process, for which the driver
        # prints one line.
        worker._worker_logs_enabled = False
        yield


def _start(folder: str, cpus: int) -> None:
    try:
        ray.init(
            address="local",
            num_cpus=cpus,
            object_store_memory=200_000_000,  # for weights of about 0.3 MB
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=folder,
            _system_config=SYSTEM,
        )
    except Exception as error:  # Ray raises plain ones here
        reason = errors.first_line(error)
        raise errors.StalledError(f"Ray could not be started here: {reason}") from None


def _connect(address: str) -> None:
    try:
        if address != "auto":  # where nothing listens, Ray itself would wait minutes
            host, _, port = str(address).rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray's own names the address; the reason is in its cause
        reason = getattr(error, "strerror", None) or " ".join(str(error.__cause__ or error).split())
        allowed = "None, 'auto', or host:port of a Ray cluster's head whose token this node has"
        raise invalid("address", address, f"{allowed} ({reason})") from None


def process_status(_actor: Any = None) -> dict[str, Any]:
    """Which process an actor runs in, and the CPU seconds that it has used; may be its `status`."""
    return {"process": os.getpid(), "cpu_seconds": time.process_time()}


@attrs.define
class SupervisedActor:
    """One actor, its running method, its last status, and its last failure."""

    name: str
    handle: Any
    work: Any = None  # the reference of the call that runs for as long as it is needed
    result: Any = None  # what that returned; None while it runs
    pending: Any = None  # the reference of an unanswered status call
    status: dict[str, Any] = attrs.field(factory=dict)  # its last answer
    answered_at: float = attrs.field(factory=time.monotonic)
    before: dict[str, Any] = attrs.field(factory=dict)  # the last status before its failure
    failed_for: float = 0.0  # seconds from that to the first status of its new process


@attrs.define
class ActorSupervisor:
    """The actors of a run; each may be silent for `limit` seconds."""

    limit: float
    actors: dict[str, SupervisedActor] = attrs.field(factory=dict)

    def start_actor(self, name: str, kind: type, *args: Any, **options: Any) -> SupervisedActor:
        """Starts an actor with Ray's `options`; Ray restarts one that fails, and repeats its calls.

        Its method `status` is of the concurrency group `status`: it answers during other calls.
        """
        remote: Any = ray.remote(concurrency_groups={"status": 1})(kind)  # type: ignore[call-overload]
        # One that fails more often than ten times has a persistent cause.
        options |= {"max_restarts": 10, "max_task_retries": -1}
        full_name = f"{uuid.uuid4().hex[:8]} {name}"  # unique in this process
        handle = remote.options(name=full_name, **options).remote(*args)
        return self.actors.setdefault(name, SupervisedActor(name, handle))

    def poll(self, seconds: float) -> Iterator[SupervisedActor]:
        """Asks each actor for its status, waits `seconds` for answers, yields those that failed.

        Raises what `fetch` raises, or a `StalledError` for an actor that does not answer.
        """
        actors = list(self.actors.values())
        for actor in actors:
            actor.pending = actor.pending or actor.handle.status.remote()
        waiting = {ref: actor for actor in actors for ref in (actor.pending, actor.work) if ref}
        ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=seconds)
        for actor in actors:
            if any(self._has_failed(actor, ref) for ref in ready if waiting[ref] is actor):
                yield actor
            if time.monotonic() - actor.answered_at > self.limit:
                free = f"Ray has {ray.available_resources().get('CPU', 0):g} free CPUs"
                what = f"{actor.name} has not answered for {self.limit:g} s"
                raise errors.StalledError(f"{what}; {free}")

    def _has_failed(self, actor: SupervisedActor, ref: Any) -> bool:
        """Takes an answer; whether it tells of a failure."""
        answer, failed_for = fetch(actor.name, ref), time.monotonic() - actor.answered_at
        if ref == actor.work:
            actor.work, actor.result = None, answer
            return False
        actor.before, actor.status, actor.pending = actor.status, answer, None
        actor.answered_at, actor.failed_for = time.monotonic(), failed_for
        return bool(actor.before) and actor.before["process"] != answer["process"]


def fetch(name: str, ref: Any) -> Any:
    """The value of a reference to an actor's answer.

    Raises:
        RunError, ParameterError: as the actor raised it; `ActorLostError` if Ray lost the actor.
        RayTaskError: any other error of the actor, with its traceback.
    """
    try:
        return ray.get(ref)
    except RayError as error:
        cause = error.cause if isinstance(error, RayTaskError) else error
        if isinstance(cause, errors.RunError | errors.ParameterError):
            raise type(cause)(str(cause)) from None
        if not isinstance(cause, RayError):
            raise
        reason = str(cause).strip().splitlines()[-1].strip()  # Ray's message has several lines
        raise errors.ActorLostError(f"{name} failed and could not be restarted: {reason}") from None


class ParameterServer:
    """Keeps the newest actor weights, by gradient step, and measures how old those in use are."""

    def __init__(self) -> None:
        self._newest: Weights | None = None
        self._returns: dict[int, float] = {}  # of each worker
        self._gaps: Counter[int] = Counter()  # staleness → how often

    def push(self, version: int, env_step: int, weights: np.ndarray) -> float:
        """Takes newer `Weights`; returns the mean return of the rollout workers."""
        self._newest = (version, env_step, np.array(weights))  # a copy: Ray's memory is shared
        return float(np.mean([*self._returns.values()])) if self._returns else float("nan")

    def pull(
        self, known: int | None, env_step: int, worker: int, mean_return: float
    ) -> Weights | None:
        """The newest weights, or None if `worker`, by its number, uses them already.

        That is the version `known`, made at `env_step`; `mean_return` is of its latest episodes.
        """
        if not np.isnan(mean_return):
            self._returns[worker] = mean_return
        if self._newest is None:
            return None
        if known is not None:
            self._gaps[max(0, self._newest[1] - env_step)] += 1
        return None if known == self._newest[0] else self._newest

    @ray.method(concurrency_group="status")
    def status(self) -> dict[str, Any]:
        """As `process_status`, with the staleness of the rollout workers' weights at each pull.

        That is the env steps by which they are older than the newest; missing before the first.
        """
        if not self._gaps:
            return process_status()
        median = float(np.median(np.repeat([*self._gaps], [*self._gaps.values()])))
        return {**process_status(), "staleness_median": median, "staleness_max": max(self._gaps)}
