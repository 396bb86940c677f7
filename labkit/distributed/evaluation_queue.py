"""Evaluations between learner and tester of a distributed run: asked for, waited for, logged once.

A process on either side may die and forget: what was asked for is asked again until it is answered,
and an answer to a learner that has died since counts no more, for it has gone back in its metrics.
"""

import time
import uuid
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:  # the parameter server's process has no need of what this imports
    from labkit.sac.evaluation import Evaluation

AGAIN_SECONDS = 30.0  # without an answer
MOST = 20  # that wait for the tester; beyond, the oldest is forgotten


class EvaluationRequest(NamedTuple):
    """Weights that are to be evaluated."""

    version: int  # gradient steps that made them
    env_step: int  # env steps at that time
    weights: np.ndarray  # [parameters] float32
    last: bool  # the evaluation at the end of the run
    life: str  # of the learner that asks

    @property
    def key(self) -> tuple[int, bool, str]:
        """What tells it from all others."""
        return self.version, self.last, self.life


class Queue:
    """What waits for the tester, oldest first; the parameter server holds it."""

    def __init__(self) -> None:
        self._waiting: deque[EvaluationRequest] = deque(maxlen=MOST)

    def add(self, one: EvaluationRequest) -> None:
        """Adds one that is not there yet; those of a learner's earlier lives go."""
        self._waiting = deque((old for old in self._waiting if old.life == one.life), maxlen=MOST)
        if one.key not in {old.key for old in self._waiting}:
            self._waiting.append(one)

    def next(self, done: tuple[int, bool, str] | None) -> EvaluationRequest | None:
        """The oldest, after the tester's last one was taken out; None for none."""
        if self._waiting and self._waiting[0].key == done:
            self._waiting.popleft()
        return self._waiting[0] if self._waiting else None


class EvaluationRequester:
    """The learner's side.

    Args:
        send: hands an `EvaluationRequest` to the parameter server.
        evaluated: `(version, last)` of those that the run's metrics hold already.
    """

    def __init__(
        self, send: Callable[[EvaluationRequest], Any], evaluated: set[tuple[int, bool]]
    ) -> None:
        self.evaluated = evaluated
        self._send, self._life = send, uuid.uuid4().hex
        self._asked: dict[tuple[int, bool, str], tuple[float, EvaluationRequest]] = {}
        self._arrived: list[tuple[tuple[int, bool, str], int, Evaluation]] = []

    def ask(self, version: int, env_step: int, weights: np.ndarray, last: bool = False) -> None:
        """Asks for an evaluation of these weights."""
        one = EvaluationRequest(version, env_step, weights, last, self._life)
        self._asked[one.key] = (time.monotonic(), one)
        self._send(one)

    def ask_again(self) -> None:
        """Asks once more for what has not been answered for `AGAIN_SECONDS`."""
        for key, (since, one) in self._asked.items():
            if time.monotonic() - since > AGAIN_SECONDS:
                self._asked[key] = (time.monotonic(), one)
                self._send(one)

    def answer(self, key: tuple[int, bool, str], env_step: int, result: "Evaluation") -> None:
        """Takes what the tester found; may be called from another thread."""
        self._arrived.append((key, env_step, result))

    def news(self) -> list[tuple[int, int, "Evaluation"]]:
        """`(version, env step, evaluation)` of what arrived since the last call, each once."""
        found = []
        while self._arrived:
            key, env_step, result = self._arrived.pop(0)
            if key in self._asked:  # else of another life, or answered before
                del self._asked[key]
                self.evaluated.add(key[:2])
                found.append((key[0], env_step, result))
        return found
