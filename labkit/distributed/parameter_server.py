"""The parameter server: the newest actor weights, in a process without TensorFlow."""

from collections import Counter
from typing import Any

import numpy as np
import ray

from labkit.distributed.supervisor import process_status

Weights = tuple[int, int, np.ndarray]  # version, env steps then, weights [parameters] float32


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
        """The newest weights, or None if `worker`, by its number, has them already.

        The worker uses the version `known` (None for none), made at `env_step` env steps;
        `mean_return` is the mean return of its latest episodes, NaN before the first.
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
        """As `process_status`, with the staleness of the weights that the rollout workers used.

        It is the number of env steps by which they were older than the newest ones, at each pull,
        where it is largest; missing before the first pull.
        """
        if not self._gaps:
            return process_status()
        median = float(np.median(np.repeat([*self._gaps], [*self._gaps.values()])))
        return {**process_status(), "staleness_median": median, "staleness_max": max(self._gaps)}
