"""Evaluation requests between learner and evaluator: repeated until answered, logged once.

Either process may fail and lose its memory. So a request without an answer is sent again, and a
checkpoint holds those that wait. An answer to a learner that was restarted in between does not
count, because the restarted learner resumes from an earlier row of its metrics.
"""

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:  # the parameter server's process does not need this
    from labkit.sac.rollout import Evaluation

RETRY_SECONDS = 30.0  # without an answer
MAX_WAITING = 20  # requests in the queue; beyond, the oldest is dropped
Key = tuple[int, bool, str]  # version, final, learner's id


class EvaluationRequest(NamedTuple):
    """Weights to evaluate."""

    version: int  # gradient steps that made them
    env_step: int  # env steps at that time
    seconds: float  # wall seconds of the run at that time
    weights: np.ndarray  # [parameters] float32
    final: bool  # whether it is the final evaluation of the run
    learner_id: str  # differs after each restart of the learner

    @property
    def key(self) -> Key:
        """Identifies the request."""
        return self.version, self.final, self.learner_id


class EvaluationQueue:
    """The requests that wait for the evaluator, oldest first; the parameter server holds it.

    Learner and evaluator call it at the same time, in threads of the parameter server.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[EvaluationRequest] = deque(maxlen=MAX_WAITING)

    def add(self, request: EvaluationRequest) -> None:
        """Adds a request once; drops those of the learner before its restart."""
        with self._lock:
            current = (old for old in self._waiting if old.learner_id == request.learner_id)
            self._waiting = deque(current, maxlen=MAX_WAITING)
            if request.key not in {old.key for old in self._waiting}:
                self._waiting.append(request)

    def next(self, done: Key | None) -> EvaluationRequest | None:
        """The oldest request, after removing the one that is done; None if none waits."""
        with self._lock:
            if self._waiting and self._waiting[0].key == done:
                self._waiting.popleft()
            return self._waiting[0] if self._waiting else None


class EvaluationRequester:
    """The learner's side; `send` passes a request to the parameter server."""

    def __init__(self, send: Callable[[EvaluationRequest], Any]) -> None:
        self._send, self._learner_id = send, uuid.uuid4().hex
        self._open: dict[Key, tuple[float, EvaluationRequest]] = {}
        self._arrived: list[tuple[Key, Evaluation]] = []

    def request(
        self, version: int, env_step: int, seconds: float, weights: np.ndarray, final: bool
    ) -> None:
        """Requests an evaluation of these weights.

        An evaluator that cannot keep up leaves some out. Only the newest `MAX_WAITING` requests are
        repeated: older ones would push the newest, and so the final one, out of the queue.
        """
        request = EvaluationRequest(version, env_step, seconds, weights, final, self._learner_id)
        self._open[request.key] = (time.monotonic(), request)
        for key in list(self._open)[:-MAX_WAITING]:  # not repeated: without weights
            since, old = self._open[key]
            self._open[key] = (since, old._replace(weights=np.empty(0, np.float32)))
        self._send(request)

    def is_open(self, version: int) -> bool:
        """Whether an interim evaluation of these weights was requested and not yet answered."""
        return (version, False, self._learner_id) in self._open

    def waiting(self) -> int:
        """How many interim evaluations wait for an answer; may be called from another thread."""
        return sum(one.weights.size > 0 and not one.final for _, one in list(self._open.values()))

    def state(self) -> dict[str, np.ndarray]:
        """The interim evaluations without an answer, for a checkpoint; empty if there are none.

        `versions` and `env_steps` `[requests] int64`, `seconds` `[requests] float64`, and `weights`
        `[requests, parameters] float32`.
        """
        open_ = [one for _, one in self._open.values() if one.weights.size and not one.final]
        if not open_:
            return {}
        return {
            "versions": np.array([one.version for one in open_]),
            "env_steps": np.array([one.env_step for one in open_]),
            "seconds": np.array([one.seconds for one in open_]),
            "weights": np.stack([one.weights for one in open_]),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Requests the evaluations of a checkpoint's `state` again."""
        if state:
            columns = (state[name] for name in ("versions", "env_steps", "seconds", "weights"))
            for version, env_step, seconds, weights in zip(*columns, strict=True):
                self.request(int(version), int(env_step), float(seconds), weights, final=False)

    def repeat(self) -> None:
        """Sends requests again that have had no answer for `RETRY_SECONDS`; see `request`."""
        for key, (since, request) in self._open.items():
            if request.weights.size and time.monotonic() - since > RETRY_SECONDS:
                self._open[key] = (time.monotonic(), request)
                self._send(request)

    def answer(self, key: Key, result: "Evaluation") -> None:
        """Takes the evaluator's result; may be called from another thread."""
        self._arrived.append((key, result))

    def results(self) -> "list[tuple[EvaluationRequest, Evaluation]]":
        """The requests answered since the last call, each once, with their results."""
        found = []
        while self._arrived:
            key, result = self._arrived.pop(0)
            if key in self._open:  # else answered before, or from before a restart
                found.append((self._open.pop(key)[1], result))
        return found
