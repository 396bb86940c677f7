"""The actor supervisor: starts the Ray actors of a run, watches them and reports restarts."""

import os
import time
import uuid
from collections.abc import Iterator
from typing import Any

import attrs
import ray
from ray.exceptions import RayError, RayTaskError

from labkit.errors import START_SECONDS, ActorLostError, ParameterError, RunError, StalledError


def process_status() -> dict[str, Any]:
    """Which process an actor runs in, and the CPU seconds that it has used."""
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


class ActorSupervisor:
    """The actors of a run; each may be silent for `limit` seconds."""

    def __init__(self, limit: float = START_SECONDS) -> None:
        self.limit = limit
        self.actors: dict[str, SupervisedActor] = {}

    def start_actor(self, name: str, kind: type, *args: Any, **options: Any) -> SupervisedActor:
        """Starts an actor; Ray restarts it when it fails, and repeats the calls that it answers.

        The method `status` of its class `kind` is to be of the concurrency group `status`, so that
        it answers during other calls. `options` are Ray's, such as `num_cpus`.
        """
        remote: Any = ray.remote(concurrency_groups={"status": 1})(kind)  # type: ignore[call-overload]
        # One that fails more often than ten times has a persistent cause.
        options |= {"max_restarts": 10, "max_task_retries": -1}
        full_name = f"{uuid.uuid4().hex[:8]} {name}"  # unique in this process
        handle = remote.options(name=full_name, **options).remote(*args)
        self.actors[name] = SupervisedActor(name, handle)
        return self.actors[name]

    def poll(self, seconds: float) -> Iterator[SupervisedActor]:
        """Asks each actor for its status, waits `seconds` for answers, yields those that failed.

        Raises what `fetch` raises, or a `StalledError` for an actor that does not answer.
        """
        actors = list(self.actors.values())
        for actor in actors:
            if actor.pending is None:
                actor.pending = actor.handle.status.remote()
        waiting = {ref: actor for actor in actors for ref in (actor.pending, actor.work) if ref}
        ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=seconds)
        for actor in actors:
            if any(self._has_failed(actor, ref) for ref in ready if waiting[ref] is actor):
                yield actor
            if time.monotonic() - actor.answered_at > self.limit:
                free = ray.available_resources().get("CPU", 0)
                what = f"{actor.name} has not answered for {self.limit:g} s"
                raise StalledError(f"{what}; Ray has {free:g} free CPUs")

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
        if isinstance(cause, RunError | ParameterError):
            raise type(cause)(str(cause)) from None
        if not isinstance(cause, RayError):
            raise
        reason = str(cause).strip().splitlines()[-1].strip()  # Ray's message has several lines
        raise ActorLostError(f"{name} failed and could not be restarted: {reason}") from None
