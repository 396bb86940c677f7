"""What the others of a distributed run share: the replay table and the newest weights.

`distributed` makes Ray actors of these classes. Each part says in `status` how it is.
"""

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray
import reverb

from labkit import checkpoint
from labkit.config import SACConfig
from labkit.errors import StalledError
from labkit.rows import Layout
from labkit.streams import PATIENCE_SECONDS, counters

NAMESPACE = "labkit"  # of the actors' names
SAVE_SECONDS = 30  # between two files of the parameter server


def status() -> dict[str, Any]:
    """Which process a part is, and the CPU seconds that it took."""
    node = ray.get_runtime_context().get_node_id()
    return {"process": (node, os.getpid()), "cpu_seconds": time.process_time()}


def colleague(names: str, name: str) -> Any:
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
            if time.monotonic() - begin > PATIENCE_SECONDS:
                raise StalledError(f"there was no {name} for {PATIENCE_SECONDS} s") from None
            time.sleep(0.1)


def limits(config: SACConfig) -> tuple[float, int, float]:
    """What the rate limiter holds: samples per insert, rows before the first sample, buffer.

    The buffer, in samples, is what either side may be ahead: more than a call of gradient steps
    with what is fetched ahead takes, so that learner and collectors never wait for each other.
    """
    per_insert = config.batch_size / config.collect_steps_per_iteration
    first = min(config.initial_collect_steps, config.replay_buffer_capacity)
    return per_insert, first, config.batch_size * max(100, 4 * config.steps_per_call)


class Replay:
    """Hosts the Reverb server; started anew, it begins with the snapshot of the last checkpoint.

    Args:
        config: the configuration.
        layout: what a row holds.
        folder: the run's `checkpoints/`.
        port: the server's; the same after a restart, so that all others find it again.
        limited: whether samples per insert are held; else inserts are free.
    """

    def __init__(
        self, config: SACConfig, layout: Layout, folder: Path, port: int, limited: bool = True
    ):
        self._config, self._layout, self._folder = config, layout, folder
        self._port, self._limited = port, limited
        self._table: Any = None

    def run(self) -> None:
        """Serves until the process is ended."""
        from labkit.replay import ReverbReplay

        per_insert, first, buffer = limits(self._config)
        limiter = reverb.rate_limiters.SampleToInsertRatio(per_insert, first, buffer)
        table = ReverbReplay(
            self._layout,
            self._config.replay_buffer_capacity,
            self._folder / "reverb",
            limiter if self._limited else None,
            self._port,
        )
        if saved := checkpoint.latest(self._folder):
            table.restore(saved / "replay")
        self._table = table
        threading.Event().wait()

    def save(self, target: str) -> None:
        """Writes a snapshot to the new directory `target`."""
        self._table.save(Path(target))

    def status(self) -> dict[str, Any]:
        """As `status`, with the table's counters once it serves."""
        if self._table is None:
            return status()
        now = counters(self._table._client)
        return {**status(), "inserts": now.inserts, "samples": now.samples, "size": now.size}


class ParameterServer:
    """Keeps the newest actor weights, and those that are to be tested; versions are gradient steps.

    Args:
        file: where the newest weights lie on disk, for its own next life.
    """

    def __init__(self, file: Path):
        self._file, self._saved_at = file, time.monotonic()
        self._newest: tuple[int, int, np.ndarray] | None = None  # version, env step, weights
        self._to_test: tuple[int, int, np.ndarray, bool] | None = None
        self._returns: dict[int, float] = {}
        self._gaps: list[int] = []
        if file.exists():
            with contextlib.suppress(Exception), np.load(file, allow_pickle=False) as saved:
                self._newest = (int(saved["version"]), int(saved["env_step"]), saved["weights"])

    def push(
        self, version: int, env_step: int, weights: np.ndarray, test: bool = False, last=False
    ) -> float:
        """Takes newer weights `[parameters] float32`; returns the collectors' mean return.

        Args:
            version: gradient steps that made them.
            env_step: env steps at that time.
            weights: one flat vector; copied, for what arrives lies in Ray's shared memory.
            test: whether the tester is to evaluate them.
            last: whether that is the evaluation at the end of the run.
        """
        self._newest = (version, env_step, np.array(weights))
        if test:
            self._to_test = (*self._newest, last)
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

    def to_test(self, known: tuple[int, bool] | None):
        """`(version, env step, weights, last)` that wait for an evaluation; None for none new."""
        task = self._to_test
        return None if task is None or (task[0], task[3]) == known else task

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
