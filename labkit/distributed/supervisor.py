"""The actor supervisor: starts the Ray actors of a run, watches them and reports restarts."""

import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

import attrs
import ray
from ray.exceptions import RayError, RayTaskError

from labkit.errors import START_SECONDS, ActorLostError, ParameterError, RunError, StalledError

PROCESS = uuid.uuid4().hex  # an id of this process
STATUS_SECONDS = 0.3  # between two status calls to the same actor
MAX_RESTARTS = 10  # of one actor; one that fails more often has a persistent cause


def process_status() -> dict[str, Any]:
    """Which process an actor runs in, and the CPU seconds that it has used."""
    return {"process": PROCESS, "cpu_seconds": time.process_time()}


@attrs.define
class SupervisedActor:
    """One actor, its running method, its last status, and its last failure."""

    name: str
    handle: Any
    redundant: bool  # the run can do without it while there is another redundant one
    work: Any = None  # the reference of the call that runs for as long as it is needed
    result: Any = None  # what that returned; None while it runs
    pending: Any = None  # the reference of an unanswered status call
    status: dict[str, Any] = attrs.field(factory=dict)  # its last answer
    answered_at: float = attrs.field(factory=time.monotonic)
    silent: float = 0.0  # seconds of polling without an answer; a suspended driver counts none
    cpu_seconds: float = 0.0  # of all its processes, each up to its last answer
    before: dict[str, Any] = attrs.field(factory=dict)  # the last status before its failure
    failed_for: float = 0.0  # seconds from that to the first status of its new process
    dropped: str = ""  # why it was not restarted


class ActorSupervisor:
    """The actors of a run; one that is not redundant may be silent for `limit` seconds.

    `failed` is the name of the actor whose failure `poll` has raised.
    """

    def __init__(self, limit: float = START_SECONDS) -> None:
        self.limit, self.failed = limit, ""
        self.actors: dict[str, SupervisedActor] = {}

    def start_actor(
        self, name: str, kind: type, *arguments: Any, redundant: bool = False, **options: Any
    ) -> SupervisedActor:
        """Starts an actor; Ray restarts it when it fails, and repeats the calls that it answers.

        The method `status` of its class `kind` is to be of the concurrency group `status`, so that
        it answers during other calls. `options` are Ray's, such as `num_cpus`.
        """
        remote: Any = ray.remote(concurrency_groups={"status": 1})(kind)  # type: ignore[call-overload]
        options |= {"max_restarts": MAX_RESTARTS, "max_task_retries": -1}
        full_name = f"{uuid.uuid4().hex[:8]} {name}"  # unique in this process
        handle = remote.options(name=full_name, **options).remote(*arguments)
        self.actors[name] = SupervisedActor(name, handle, redundant)
        return self.actors[name]

    def poll(self, seconds: float) -> Iterator[SupervisedActor]:
        """Asks each actor for its status, waits `seconds` for answers, yields those that failed.

        Raises what `fetch` raises, or a `StalledError` for an actor that does not answer.
        """
        actors = list(self.actors.values())
        for actor in actors:
            if actor.pending is None and time.monotonic() - actor.answered_at > STATUS_SECONDS:
                actor.pending = actor.handle.status.remote()
        waiting = {ref: actor for actor in actors for ref in (actor.pending, actor.work) if ref}
        ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=seconds)
        for actor in actors:
            self.failed = actor.name
            if any(self._has_failed(actor, ref) for ref in ready if waiting[ref] is actor):
                yield actor
            actor.silent += seconds if actor.pending else 0.0
            if actor.silent > self.limit and not actor.redundant:
                free = ray.available_resources().get("CPU", 0)
                what = f"{actor.name} has not answered for {self.limit:g} s"
                raise StalledError(f"{what}; Ray has {free:g} free CPUs")
        self.failed = ""

    def _has_failed(self, actor: SupervisedActor, ref: Any) -> bool:
        """Takes an answer; whether it tells of a failure."""
        failed_for = time.monotonic() - actor.answered_at
        try:
            answer = fetch(actor.name, ref)
        except ActorLostError as error:
            if not actor.redundant or sum(a.redundant for a in self.actors.values()) == 1:
                raise
            self.actors.pop(actor.name)
            actor.before, actor.failed_for, actor.dropped = actor.status, failed_for, str(error)
            return True
        if ref == actor.work:
            actor.work, actor.result = None, answer
            return False
        before, actor.status, actor.pending = actor.status, answer, None
        actor.answered_at, actor.silent = time.monotonic(), 0.0
        if same := before.get("process") == answer["process"]:
            actor.cpu_seconds -= before["cpu_seconds"]
        actor.cpu_seconds += answer["cpu_seconds"]
        actor.before, actor.failed_for = before, failed_for
        return bool(before) and not same

    def stop_actors(self) -> None:
        """Stops all actors; Ray does not restart these."""
        for actor in self.actors.values():
            ray.kill(actor.handle, no_restart=True)


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
        # The last line of Ray's message holds the reason, with ids of 56 digits.
        reason = re.sub(r"\b[0-9a-f]{32,}\b", "…", str(cause).strip().splitlines()[-1].strip())
        what = f"{name} failed and could not be restarted"
        raise ActorLostError(f"{what}. Ray's reason: {reason}") from None
