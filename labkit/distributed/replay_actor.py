"""The replay table of a distributed run: the actor that hosts it, and what the learner sees."""

import threading
import time
import uuid
from pathlib import Path
from typing import Any

import ray
import reverb
import tensorflow as tf
from ray.exceptions import RayTaskError

from labkit.config import SACConfig
from labkit.distributed.parameter_server import status, wait_for_actor
from labkit.errors import START_SECONDS, StalledError, storage
from labkit.replay import rate_limiter
from labkit.replay.reverb_replay import ReverbReplay, counters, open_dataset
from labkit.replay.transitions import Layout
from labkit.training import checkpoint


def limits(config: SACConfig) -> tuple[float, int, float]:
    """What the rate limiter holds: samples per insert, rows before the first sample, buffer.

    The buffer, in samples, is what either side may be ahead: more than a call of gradient steps
    with what is fetched ahead takes, so that neither can block the other; the faster still waits.
    """
    per_insert = config.batch_size / config.collect_steps_per_iteration
    first = min(config.initial_collect_steps, config.replay_buffer_capacity)
    return per_insert, first, config.batch_size * max(100, 4 * config.steps_per_call)


class ReplayActor:
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
        self._life, self._restored = uuid.uuid4().hex, 0

    def run(self) -> None:
        """Serves until the process is ended."""
        per_insert, first, buffer = limits(self._config)
        limiter = reverb.rate_limiters.SampleToInsertRatio(per_insert, first, buffer)
        saved = checkpoint.latest(self._folder)
        # Begun with the snapshot: others are waiting for this port, and would use an empty table.
        self._table = ReverbReplay(
            self._layout,
            self._config.replay_buffer_capacity,
            self._folder / "reverb",
            limiter if self._limited else None,
            self._port,
            None if saved is None else saved / "replay",
        )
        self._restored = counters(self._table._client).inserts
        self._ready.set()
        threading.Event().wait()

    def life(self) -> str:
        """Differs from one start of this actor to the next."""
        return self._life

    def save(self, target: str, life: str) -> bool:
        """Writes a snapshot to the new directory `target`; False: this is not that life any more.

        Ray repeats a call when the actor dies, and its next life holds an older table.

        Raises:
            StorageError: it could not be written.
        """
        self._ready.wait(START_SECONDS)
        if life != self._life:
            return False
        with storage(Path(target)):
            self._table.save(Path(target))
        return True

    def status(self) -> dict[str, Any]:
        """As `status`, with the table's counters, once it serves, and its inserts as it began."""
        if not self._ready.wait(START_SECONDS):
            return status()
        now = counters(self._table._client)
        table = {"inserts": now.inserts, "samples": now.samples, "size": now.size}
        return {**status(), **table, "restored": self._restored}


class ReplayClient:
    """What the learner needs of a table whose server is another process.

    Args:
        names: what the names of this run's actors begin with.
        address: the server's.
        patience: seconds without a sample until `dataset` ends.
    """

    def __init__(self, names: str, address: str, patience: int):
        self._replay, self._address = wait_for_actor(names, "replay"), address
        self._client, self.patience = reverb.Client(address), patience
        self._life = ray.get(self._replay.life.remote())

    def dataset(self, batch_size: int) -> tf.data.Dataset:
        """See `streams.open_dataset`."""
        return open_dataset(self._address, batch_size, self.patience)

    def save(self, target: Path) -> None:
        """Has the server write a snapshot.

        Raises:
            StorageError: it could not be written.
            StalledError: the replay actor died; its table does not belong to the learner's weights.
        """
        try:
            same = ray.get(self._replay.save.remote(str(target), self._life))
        except RayTaskError as error:
            raise error.cause from None
        if not same:
            time.sleep(START_SECONDS)  # the driver is about to end this process
            raise StalledError("the replay actor began anew during a checkpoint")

    def counters(self) -> rate_limiter.Limiter:
        """Inserts and samples so far.

        Raises:
            ServerGoneError: the server does not answer.
        """
        return counters(self._client)
