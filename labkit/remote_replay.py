"""The replay table of a distributed run: the actor that hosts it, and what the learner sees."""

import threading
from pathlib import Path
from typing import Any

import ray
import reverb
import tensorflow as tf

from labkit import checkpoint, stalls
from labkit.actors import colleague, status
from labkit.config import SACConfig
from labkit.errors import PATIENCE_SECONDS, storage
from labkit.replay import ReverbReplay
from labkit.rows import Layout
from labkit.streams import counters, open_dataset


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
        self._ready = threading.Event()

    def run(self) -> None:
        """Serves until the process is ended."""
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
        self._ready.set()
        threading.Event().wait()

    def save(self, target: str) -> None:
        """Writes a snapshot to the new directory `target`, when the server is there.

        Raises:
            StorageError: it could not be written.
        """
        self._ready.wait(PATIENCE_SECONDS)
        with storage(Path(target)):
            self._table.save(Path(target))

    def status(self) -> dict[str, Any]:
        """As `status`, with the table's counters, once it serves."""
        if not self._ready.wait(PATIENCE_SECONDS):
            return status()
        now = counters(self._table._client)
        return {**status(), "inserts": now.inserts, "samples": now.samples, "size": now.size}


class RemoteReplay:
    """What the learner needs of a table whose server is another process.

    Args:
        names: what the names of this run's actors begin with.
        address: the server's.
    """

    def __init__(self, names: str, address: str):
        self._replay, self._address = colleague(names, "replay"), address
        self._client = reverb.Client(address)

    def dataset(self, batch_size: int) -> tf.data.Dataset:
        """See `streams.open_dataset`."""
        return open_dataset(self._address, batch_size)

    def save(self, target: Path) -> None:
        """Has the server write a snapshot."""
        ray.get(self._replay.save.remote(str(target)))

    def counters(self) -> stalls.Limiter:
        """Inserts and samples so far.

        Raises:
            ServerGoneError: the server does not answer.
        """
        return counters(self._client)
