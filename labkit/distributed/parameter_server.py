"""What the parts of a distributed run have in common, and the parameter server among them.

`distributed` makes Ray actors of the parts. Each says in `status` how it is. This module does not
import TensorFlow: the parameter server's process holds arrays only.
"""

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray

from labkit.distributed.evaluation_queue import EvaluationRequest, Queue
from labkit.errors import START_SECONDS, StalledError

NAMESPACE = "labkit"  # of the actors' names
SAVE_SECONDS = 30  # between two files of the parameter server


def status() -> dict[str, Any]:
    """Which process a part is, and the CPU seconds that it took."""
    node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
    return {"process": (node, os.getpid()), "cpu_seconds": time.process_time()}


def wait_for_actor(names: str, name: str) -> Any:
    """The handle of another part of the same run, which need not have been started yet.

    Args:
        names: what the names of this run's actors begin with.
        name: 'replay', 'parameter server' or 'learner'.
    """
    begin = time.monotonic()
    while True:
        try:
            return ray.get_actor(names + name, namespace=NAMESPACE)
        except ValueError:
            if time.monotonic() - begin > START_SECONDS:
                raise StalledError(f"there was no {name} for {START_SECONDS} s") from None
            time.sleep(0.1)


class ParameterServer:
    """Keeps the newest actor weights, and those that are to be tested; versions are gradient steps.

    Args:
        file: where the newest weights lie on disk, for its own next life.
    """

    def __init__(self, file: Path):
        self._file, self._saved_at = file, time.monotonic()
        self._newest: tuple[int, int, np.ndarray] | None = None  # version, env step, weights
        self._to_test = Queue()
        self._returns: dict[int, float] = {}
        self._gaps: list[int] = []
        if file.exists():
            with contextlib.suppress(Exception), np.load(file, allow_pickle=False) as saved:
                self._newest = (int(saved["version"]), int(saved["env_step"]), saved["weights"])

    def push(self, version: int, env_step: int, weights: np.ndarray) -> float:
        """Takes newer weights `[parameters] float32`; returns the collectors' mean return.

        Args:
            version: gradient steps that made them.
            env_step: env steps at that time.
            weights: one flat vector; copied, for what arrives lies in Ray's shared memory.
        """
        self._newest = (version, env_step, np.array(weights))
        if time.monotonic() - self._saved_at > SAVE_SECONDS:
            self._save()
        return float(np.mean(list(self._returns.values()))) if self._returns else float("nan")

    def pull(self, known: int | None, env_step: int, collector: int, mean_return: float):
        """The newest `(version, env step, weights)`, or None when the caller knows them already.

        Args:
            known: version that the collector has; None for none.
            env_step: env steps when that was made.
            collector: its number.
            mean_return: of its latest episodes; NaN before the first.
        """
        if not np.isnan(mean_return):
            self._returns[collector] = mean_return
        if self._newest is None:
            return None
        if known is not None:
            self._gaps.append(max(0, self._newest[1] - env_step))
        return None if known == self._newest[0] else self._newest

    def test(self, one: EvaluationRequest) -> None:
        """Has the tester evaluate these weights, after those that wait already."""
        self._to_test.add(one._replace(weights=np.array(one.weights)))

    def to_test(self, done: tuple[int, bool, str] | None) -> EvaluationRequest | None:
        """What the tester is to evaluate next, `done` being its last; None for none."""
        return self._to_test.next(done)

    def status(self) -> dict[str, Any]:
        """As `status`, with the staleness of the weights that collectors gave back.

        That is, at the moment of each pull and so at its largest, how many env steps had been
        taken between the making of the weights in use and of the newest.
        """
        gaps = self._gaps or [0]
        return {
            **status(),
            "staleness_median": float(np.median(gaps)),
            "staleness_max": float(np.max(gaps)),
            "pulls": len(self._gaps),
        }

    def _save(self) -> None:
        version, env_step, weights = self._newest  # type: ignore[misc]  # called after a push
        partial = self._file.with_suffix(".partial.npz")
        with contextlib.suppress(OSError):  # the checkpoint is what a run goes on from
            np.savez(partial, version=version, env_step=env_step, weights=weights)
            partial.replace(self._file)
        self._saved_at = time.monotonic()
