"""The Ray actors of a run, watched: whether each answers, which was replaced, what that cost."""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import attrs
import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from labkit.distributed.parameter_server import NAMESPACE
from labkit.errors import START_SECONDS, ActorLostError, ParameterError, RunError, StalledError

ASK_SECONDS = 0.3  # between two questions to the same part
MOST_RESTARTS = 10  # of one part; what dies more often has a reason


@attrs.define
class Part:
    """One actor, its work without end, and what it last said of itself."""

    name: str
    handle: Any
    work: Any = None  # the reference of `run` or `train`
    asked: Any = None  # the reference of an unanswered question
    heard_at: float = attrs.field(factory=time.monotonic)
    status: dict[str, Any] = attrs.field(factory=dict)
    cpu_before: float = 0.0  # seconds of earlier lives
    spare: bool = False  # whether the run can do without it while another spare one answers
    missed: bool = False  # that was said

    @property
    def cpu_seconds(self) -> float:
        """Of all its lives; what a life took after its last answer is not known."""
        return self.cpu_before + self.status.get("cpu_seconds", 0.0)


@attrs.frozen
class Restart:
    """A part that died and was replaced by Ray."""

    part: Part
    before: dict[str, Any]  # its last answer
    after: dict[str, Any]  # the first answer of the new process
    seconds: float  # between the two


def cost_of(restart: Restart, n_step: int, env_step: int) -> dict[str, int]:
    """What the death of a part costs at most: `env_steps_lost`, `gradient_steps_lost`.

    Args:
        restart: the death, with the part's last words and its successor's first.
        n_step: env steps in a row.
        env_step: the newest that the learner has seen in the table.
    """
    from labkit.replay.reverb_replay import UNCONFIRMED

    name, before, after = restart.part.name, restart.before, restart.after
    lost = {"env_steps_lost": 0, "gradient_steps_lost": 0}
    if name.startswith("rollout worker"):
        # Rows on their way, and those that waited for the rest of their window.
        lost["env_steps_lost"] = 2 * UNCONFIRMED - 1 + n_step - 1
    elif name == "replay":
        seen = max(before.get("inserts", 0), env_step)
        lost["env_steps_lost"] = max(0, seen - after.get("restored", 0))
    elif name == "learner":
        lost["gradient_steps_lost"] = max(0, before["step"] - after["began"])
    return lost


class ActorSupervisor:
    """All parts of a run.

    Args:
        patience: seconds without an answer, after the first, until a part counts as stalled.
    """

    def __init__(self, patience: float = START_SECONDS) -> None:
        self.patience = patience
        self.parts: dict[str, Part] = {}
        self.names = f"labkit {uuid.uuid4().hex[:8]} "  # of this run's actors begin so

    def start_actor(
        self,
        name: str,
        kind: type,
        *arguments: Any,
        work: str = "run",
        spare: bool = False,
        **options: Any,
    ) -> Any:
        """Makes an actor and sets it to work; Ray starts it anew when it dies.

        Args:
            name: unique, for messages.
            kind: the class.
            arguments: of the class.
            work: the method that never returns; empty for none.
            spare: whether its silence is only said, as long as another spare part answers.
            options: of the actor, such as `num_cpus`.

        Returns:
            The actor's handle.
        """
        again = {"max_restarts": MOST_RESTARTS, "max_task_retries": -1}
        known = {"name": self.names + name, "namespace": NAMESPACE}
        actor: Any = ray.remote(kind).options(max_concurrency=4, **known, **again, **options)
        handle = actor.remote(*arguments)
        part = self.parts[name] = Part(name, handle, spare=spare)
        if work:
            part.work = getattr(handle, work).remote()
        return handle

    def look(self, seconds: float) -> Iterator[Restart]:
        """Asks every part how it is, waits a little for answers, and tells who was replaced.

        Raises:
            RunError, ParameterError: what ended a part's work.
            ActorLostError: a part died more often than it is replaced.
            StalledError: a part does not answer.
        """
        now = time.monotonic()
        for part in self.parts.values():
            if part.asked is None and now - part.heard_at > ASK_SECONDS:
                part.asked = part.handle.status.remote()
        waiting = {
            ref: part for part in self.parts.values() for ref in (part.asked, part.work) if ref
        }
        ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=seconds)
        for ref in ready:
            part = waiting[ref]
            answer = result(part, ref)
            if ref == part.asked and (restart := self._heard(part, answer)):
                yield restart
        self._judge_silence()

    def _judge_silence(self) -> None:
        now = time.monotonic()
        limits = {
            name: self.patience if part.status else START_SECONDS
            for name, part in self.parts.items()
        }
        silent = [part for part in self.parts.values() if now - part.heard_at > limits[part.name]]
        others = any(part.spare and part not in silent for part in self.parts.values())
        for part in silent:
            if not (part.spare and others):
                raise StalledError(_silence(part, limits[part.name]))
            if not part.missed:
                print(f"{_silence(part, limits[part.name])}; the run goes on without it")
                part.missed = True

    def _heard(self, part: Part, answer: dict[str, Any]) -> Restart | None:
        now = time.monotonic()
        before, waited = part.status, now - part.heard_at
        part.status, part.heard_at, part.asked, part.missed = answer, now, None, False
        if not before or before["process"] == answer["process"]:
            return None
        part.cpu_before += before["cpu_seconds"]
        return Restart(part, before, answer, waited)

    def finished(self, name: str) -> Any:
        """What a part's work returned; None while it goes on."""
        part = self.parts[name]
        ready, _ = ray.wait([part.work], timeout=0)
        return result(part, part.work) if ready else None

    def wait(self, name: str, seconds: float) -> Any:
        """What a part's work returns, or None when it takes longer."""
        part = self.parts[name]
        ready, _ = ray.wait([part.work], timeout=seconds)
        return result(part, part.work) if ready else None

    def stop_actors(self, *names: str) -> None:
        """Ends parts, all of them if none is named; Ray does not replace these."""
        for name in names or list(self.parts):
            ray.kill(self.parts.pop(name).handle, no_restart=True)


def result(part: Part, ref: Any) -> Any:
    """What a reference holds; errors of labkit as themselves, Ray's as one line."""
    try:
        return ray.get(ref)
    except RayTaskError as error:
        if isinstance(error.cause, RunError | ParameterError):
            raise type(error.cause)(str(error.cause)) from None
        raise
    except RayActorError as error:
        raise ActorLostError(
            f"{part.name} was lost and could not be replaced: {_last_line(error)}"
        ) from None
    except RayError as error:
        raise ActorLostError(f"{part.name} failed: {_last_line(error)}") from None


def _last_line(error: Exception) -> str:
    """Where Ray's paragraphs say what went wrong."""
    return (str(error).strip() or "no reason given").splitlines()[-1].strip()


def _silence(part: Part, limit: float) -> str:
    said = "has not answered for" if part.status else "was not started within"
    free = ray.available_resources().get("CPU", 0)
    total = ray.cluster_resources().get("CPU", 0)
    return f"{part.name} {said} {limit:g} s; Ray has {total:g} CPUs, {free:g} of them free"
