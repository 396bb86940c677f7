"""The actor supervisor: starts the Ray actors of a run, watches them and reports restarts."""

import functools
import time
import uuid
from collections.abc import Iterator
from typing import Any

import attrs
import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from labkit.config import SACConfig
from labkit.distributed.context import NAMESPACE
from labkit.distributed.ray_cluster import head_answers
from labkit.errors import START_SECONDS, ActorLostError, ParameterError, RunError, StalledError
from labkit.replay.reverb_replay import UNCONFIRMED

STATUS_SECONDS = 0.3  # between two status calls to the same actor
HEAD_CHECK_SECONDS = 2.0  # between two looks at Ray's head
HEAD_SECONDS = 20.0  # without an answer; after 60 s Ray ends this process, message or not
ABSENT_SECONDS = 10.0  # between two looks: this process was suspended
MAX_RESTARTS = 10  # of one actor; one that fails more often has a persistent cause


@attrs.define
class SupervisedActor:
    """One actor, its running method, and its last status."""

    name: str
    handle: Any
    work: Any = None  # the reference of `run` or `train`
    pending: Any = None  # the reference of an unanswered status call
    answered_at: float = attrs.field(factory=time.monotonic)
    status: dict[str, Any] = attrs.field(factory=dict)
    cpu_before: float = 0.0  # seconds before its last restart
    redundant: bool = False  # the run can do without it while another redundant one answers
    watched: bool = True  # False for one that was dropped
    timeout: float | None = None  # seconds of silence; None for the supervisor's
    reported: bool = False  # its silence was printed

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all its processes, each up to its last answer."""
        return self.cpu_before + self.status.get("cpu_seconds", 0.0)


@attrs.frozen
class Restart:
    """An actor that failed and was restarted by Ray, or was dropped."""

    actor: SupervisedActor
    before: dict[str, Any]  # its last status
    after: dict[str, Any]  # the first status of the new process; empty if there is none
    seconds: float  # between the two
    dropped: str = ""  # why the run continues without it


def restart_cost(restart: Restart, config: SACConfig, env_step: int) -> dict[str, int]:
    """What a failure cost; `env_step` is the newest that the learner saw in the table.

    Env steps of a rollout worker are an upper bound. Gradient steps are a lower bound, because the
    learner took more after its last status.
    """
    name, before, after = restart.actor.name, restart.before, restart.after
    lost = {"env_steps_lost": 0, "gradient_steps_lost": 0}
    if name.startswith("rollout worker"):
        # Unconfirmed rows, and those of windows that were still open.
        lost["env_steps_lost"] = 2 * UNCONFIRMED - 2 + config.n_step
    elif name == "replay":
        had, has = before.get("inserts", 0), after.get("restored", 0)
        seen = max(had, env_step)
        lost["env_steps_lost"] = max(0, seen - has)
    elif name == "learner":
        lost["gradient_steps_lost"] = max(0, before["step"] - after["first_step"])
    return lost


def prefix_of_job() -> str:
    """The prefix of the names of all actors that this process has started on its cluster."""
    return f"labkit {ray.get_runtime_context().get_job_id()} "


class ActorSupervisor:
    """All actors of a run; after its first answer, each may be silent for `timeout` seconds."""

    def __init__(self, timeout: float = START_SECONDS) -> None:
        self.timeout = timeout
        self.actors: dict[str, SupervisedActor] = {}
        self.head_lost = False
        self.failed = ""  # the actor, or "head", whose failure `poll` or `result` has raised
        self._head_checked_at = self._head_seen_at = self._polled_at = time.monotonic()

    @functools.cached_property
    def prefix(self) -> str:
        """The prefix of the names of this run's actors."""
        return f"{prefix_of_job()}{uuid.uuid4().hex[:8]} "

    def start_actor(
        self,
        name: str,
        kind: type,
        *arguments: Any,
        work: str = "run",
        redundant: bool = False,
        timeout: float | None = None,
        **options: Any,
    ) -> Any:
        """Starts an actor and its work; Ray restarts it when it fails. Returns its handle.

        Args:
            name: unique, for messages.
            kind: the class.
            *arguments: of the class.
            work: the method that runs for as long as the actor is needed; empty for none.
            redundant: the run continues without it, as long as another redundant actor answers.
            timeout: seconds that it may be silent; None for the supervisor's `timeout`.
            **options: of the actor, such as `num_cpus`.
        """
        restarts = {"max_restarts": MAX_RESTARTS, "max_task_retries": -1}
        named = {"name": self.prefix + name, "namespace": NAMESPACE}
        remote: Any = ray.remote(kind).options(max_concurrency=4, **named, **restarts, **options)
        handle = remote.remote(*arguments)
        actor = self.actors[name] = SupervisedActor(
            name, handle, redundant=redundant, timeout=timeout
        )
        if work:
            actor.work = getattr(handle, work).remote()
        return handle

    def poll(self, seconds: float) -> Iterator[Restart]:
        """Asks each actor for its status, waits `seconds` for answers, yields those that failed.

        Raises:
            RunError, ParameterError: what ended an actor's work.
            ActorLostError: an actor failed more often than it is restarted, and is not redundant;
                or Ray's head is gone.
            StalledError: an actor does not answer.
        """
        self._forgive_absence()
        self._check_head()
        now = time.monotonic()
        watched = [actor for actor in self.actors.values() if actor.watched]
        for actor in watched:
            if actor.pending is None and now - actor.answered_at > STATUS_SECONDS:
                actor.pending = actor.handle.status.remote()
        waiting = {ref: a for a in watched for ref in (a.pending, a.work) if ref}
        ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=seconds)
        for ref in ready:
            actor = waiting[ref]
            if actor.watched and (failure := self._take(actor, ref)):
                yield failure
        self._forgive_absence()
        self._check_silence()

    def _forgive_absence(self) -> None:
        """Does not count the time in which nothing was polled as silence of the actors."""
        now = time.monotonic()
        absent, self._polled_at = now - self._polled_at, now
        if absent > ABSENT_SECONDS:
            self._head_seen_at = min(now, self._head_seen_at + absent)
            for actor in self.actors.values():
                actor.answered_at = min(now, actor.answered_at + absent)

    def _take(self, actor: SupervisedActor, ref: Any) -> Restart | None:
        """Takes an answer; the actor's failure if it tells of one."""
        try:
            answer = self._fetch(actor, ref)
        except ActorLostError as error:
            if not (actor.redundant and self._others({actor.name})):
                raise
            actor.watched = False
            waited = time.monotonic() - actor.answered_at
            return Restart(actor, actor.status, {}, waited, dropped=str(error))
        return self._answered(actor, answer) if ref == actor.pending else None

    def _fetch(self, actor: SupervisedActor, ref: Any) -> Any:
        try:
            return fetch(actor, ref)
        except Exception:
            self.failed = actor.name
            raise

    def _others(self, names: set[str]) -> bool:
        """Whether a redundant actor that has none of these names answers."""
        others = (a for a in self.actors.values() if a.redundant and a.watched)
        return any(a.name not in names and not a.reported for a in others)

    def _check_head(self) -> None:
        now = time.monotonic()
        if now - self._head_checked_at < HEAD_CHECK_SECONDS:
            return
        self._head_checked_at = now
        if head_answers():
            self._head_seen_at = now
        elif now - self._head_seen_at > HEAD_SECONDS:
            self.head_lost, self.failed = True, "head"
            raise ActorLostError(
                f"Ray's head (its process gcs_server) has not answered for {HEAD_SECONDS:g} s; no "
                "actor can be started or stopped without it"
            )

    def _check_silence(self) -> None:
        now, actors = time.monotonic(), self.actors.values()
        limits = {a.name: self._limit(a) for a in actors if a.watched}
        silent = [a for a in actors if a.watched and now - a.answered_at > limits[a.name]]
        others = self._others({a.name for a in silent})
        for actor in silent:
            what = "has not answered for" if actor.status else "did not start within"
            message = f"{actor.name} {what} {limits[actor.name]:g} s; Ray has {_free_devices()}"
            if not (actor.redundant and others):
                self.failed = actor.name
                raise StalledError(message)
            if not actor.reported:
                print(f"{message}; the run continues without it")
                actor.reported = True

    def _limit(self, actor: SupervisedActor) -> float:
        """Seconds that an actor may be silent."""
        if not actor.status:
            return START_SECONDS
        return self.timeout if actor.timeout is None else actor.timeout

    def _answered(self, actor: SupervisedActor, status: dict[str, Any]) -> Restart | None:
        now = time.monotonic()
        before, waited = actor.status, now - actor.answered_at
        if actor.name == "replay" and before and "restored" not in status:
            status = before  # a new process that still loads its table: what is lost is not known
        actor.status, actor.answered_at, actor.pending, actor.reported = status, now, None, False
        if not before or before["process"] == status["process"]:
            return None
        actor.cpu_before += before["cpu_seconds"]
        return Restart(actor, before, status, waited)

    def result(self, name: str) -> Any:
        """What an actor's work returned; None while it runs."""
        actor = self.actors[name]
        ready, _ = ray.wait([actor.work], timeout=0)
        return self._fetch(actor, actor.work) if ready else None

    def stop_actors(self) -> None:
        """Stops all actors; Ray does not restart these. Without its head they end by themselves."""
        for actor in () if self.head_lost else self.actors.values():
            ray.kill(actor.handle, no_restart=True)
        self.actors = {}


def _free_devices() -> str:
    """What Ray has and what is free of it: `8 CPUs, 0 of them free`, and GPUs if there are any."""
    total, free = ray.cluster_resources(), ray.available_resources()
    return ", and ".join(
        f"{total.get(kind, 0):g} {kind}s, {free.get(kind, 0):g} of them free"
        for kind in ("CPU", "GPU")
        if kind == "CPU" or total.get(kind)
    )


def fetch(actor: SupervisedActor, ref: Any) -> Any:
    """The value of a reference; errors of labkit as themselves, Ray's in one line."""
    try:
        return ray.get(ref)
    except RayTaskError as error:
        if isinstance(error.cause, RunError | ParameterError):
            raise type(error.cause)(str(error.cause)) from None
        raise
    except RayError as error:
        lost = isinstance(error, RayActorError)
        what = "was lost and could not be restarted" if lost else "failed"
        # The last line of Ray's message holds the reason.
        reason = (str(error).strip() or "no reason given").splitlines()[-1].strip()
        raise ActorLostError(f"{actor.name} {what}: {reason}") from None
