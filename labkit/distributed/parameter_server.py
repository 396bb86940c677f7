"""The parameter server: the newest actor weights, and the weights that wait for evaluation.

Its process holds arrays only; versions are gradient steps.
"""

import contextlib
import io
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from labkit.distributed.context import process_status
from labkit.distributed.evaluation_queue import EvaluationQueue, EvaluationRequest, Key
from labkit.training.run import write_atomically

SAVE_SECONDS = 30  # between two files of the parameter server
# A rollout worker that has not pulled for so long is lost: its returns no longer count.
RETURN_SECONDS = 600
Weights = tuple[int, int, np.ndarray]  # version, env steps then, weights [parameters] float32


class ParameterServer:
    """Keeps the newest actor weights and their staleness, also in `file`, and the requests."""

    def __init__(self, file: Path):
        self._file, self._saved_at = file, time.monotonic()
        self._newest: Weights | None = None
        self._requests = EvaluationQueue()
        self._returns: dict[int, tuple[float, float]] = {}  # worker → return, time of its pull
        self._gaps: Counter[int] = Counter()  # staleness → how often
        if file.exists():
            with contextlib.suppress(Exception), np.load(file, allow_pickle=False) as saved:
                self._newest = (int(saved["version"]), int(saved["env_step"]), saved["weights"])
                pairs = zip(saved["staleness"].tolist(), saved["times"].tolist(), strict=True)
                self._gaps = Counter(dict(pairs))

    def push(self, version: int, env_step: int, weights: np.ndarray) -> float:
        """Takes newer `Weights`; returns the mean return of the present rollout workers."""
        self._newest = (version, env_step, np.array(weights))  # a copy: Ray's memory is shared
        if time.monotonic() - self._saved_at > SAVE_SECONDS:
            self._save(*self._newest)
        oldest = time.monotonic() - RETURN_SECONDS
        present = [mean for mean, pulled_at in self._returns.values() if pulled_at >= oldest]
        return float(np.mean(present)) if present else float("nan")

    def pull(
        self, known: int | None, env_step: int, worker: int, mean_return: float
    ) -> Weights | None:
        """The newest weights, or None if `worker`, by its number, has them already.

        The worker uses the version `known` (None for none), made at `env_step` env steps;
        `mean_return` is the mean return of its latest episodes, NaN before the first.
        """
        if not np.isnan(mean_return):
            self._returns[worker] = mean_return, time.monotonic()
        if self._newest is None:
            return None
        if known is not None:
            self._gaps[max(0, self._newest[1] - env_step)] += 1
        return None if known == self._newest[0] else self._newest

    def request_evaluation(self, request: EvaluationRequest) -> None:
        """Queues weights for the evaluator."""
        self._requests.add(request._replace(weights=np.array(request.weights)))

    def next_request(self, done: Key | None) -> EvaluationRequest | None:
        """The next request for the evaluator, whose last one was `done`; None if none waits."""
        return self._requests.next(done)

    def status(self) -> dict[str, Any]:
        """As `process_status`, with the staleness of the weights that the rollout workers used.

        Staleness is the number of env steps by which the weights in use are older than the newest
        ones. It is measured at each pull, where it is largest, and None before the first pull. It
        covers the whole run, except the last `SAVE_SECONDS` before a restart or a resume.
        """
        gaps = self._gaps
        return {
            **process_status(),
            "staleness_median": _median(gaps) if gaps else None,
            "staleness_max": float(max(gaps)) if gaps else None,
        }

    def _save(self, version: int, env_step: int, weights: np.ndarray) -> None:
        content, gaps = io.BytesIO(), dict(self._gaps)
        counts = {"staleness": np.array([*gaps], int), "times": np.array([*gaps.values()], int)}
        np.savez(content, version=version, env_step=env_step, weights=weights, **counts)
        with contextlib.suppress(OSError):  # a run resumes from its checkpoint, not from this file
            write_atomically(self._file, content.getvalue())
        self._saved_at = time.monotonic()


def _median(counts: Mapping[int, int]) -> float:
    """The median of values that occur `counts` times each."""
    values = sorted(counts)
    seen = np.cumsum([counts[value] for value in values])
    half = seen[-1] / 2
    lower, upper = np.searchsorted(seen, half), np.searchsorted(seen, half, side="right")
    return (values[lower] + values[upper]) / 2
