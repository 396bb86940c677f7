"""Reverb: one table of packed transitions, how it is written, read, saved and restored.

A transition is one row of `rows.Layout` in one column of one step. The same transition as a
two-step trajectory of six columns costs Reverb three times the work to write and four times the
work to sample, and holds the same numbers.
"""

import contextlib
import shutil
import tempfile
import time
import weakref
from pathlib import Path

import numpy as np
import reverb
import tensorflow as tf

from labkit.config import ParameterError
from labkit.errors import StalledError
from labkit.rows import SAMPLE_TIMEOUT_SECONDS, Layout, pack
from labkit.runtime import quiet

TABLE = "transitions"
ANSWER_SECONDS = 5  # a server of this host answers in a thousandth of it
UNCONFIRMED = 16  # transitions on their way before the writer waits; Reverb warns at 50


def packed_table(layout: Layout, capacity: int) -> reverb.Table:
    """A table of rows `[layout.width] float32`: uniform sampling, oldest removed first."""
    return reverb.Table(
        TABLE,
        max_size=capacity,
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature={"row": tf.TensorSpec([layout.width], tf.float32)},
    )


def start_server(
    tables: list[reverb.Table], folder: Path | None = None, snapshot: Path | None = None
) -> reverb.Server:
    """Starts a Reverb server on a free port; its own log lines are not printed.

    Args:
        tables: what it holds; a snapshot's sizes and rate limiters override theirs.
        folder: where it writes snapshots, emptied first: Reverb would load what lies there. None
            is a temporary directory, which goes with the server.
        snapshot: what it starts with, as `ReverbReplay.save` keeps it; None starts empty.
    """
    temporary = folder is None
    folder = Path(tempfile.mkdtemp(prefix="labkit-reverb-")) if folder is None else folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begin = None if snapshot is None else str(snapshot)
    with quiet():
        checkpointer = reverb.checkpointers.DefaultCheckpointer(
            str(folder), fallback_checkpoint_path=begin
        )
        server = reverb.Server(tables, checkpointer=checkpointer)
    if temporary:
        weakref.finalize(server, shutil.rmtree, folder, ignore_errors=True)
    return server


class ReverbReplay:
    """A run's replay table on a Reverb server in this process.

    Args:
        layout: what a row holds.
        capacity: rows; when full, the oldest goes.
        folder: where the server writes its snapshots; None is a temporary directory.
    """

    def __init__(self, layout: Layout, capacity: int, folder: Path | None = None):
        self.layout, self.capacity, self._folder = layout, capacity, folder
        self._start(None)

    def _start(self, snapshot: Path | None) -> None:
        table = packed_table(self.layout, self.capacity)
        self.server: reverb.Server | None = start_server([table], self._folder, snapshot)
        self.address = f"localhost:{self.server.port}"
        self._client = reverb.Client(self.address)
        self._writer = self._client.trajectory_writer(1)
        self._written = 0

    def write(self, obs_tm1, a_tm1, r_t, discount_t, obs_t) -> None:
        """Stores one transition; it can be sampled at once, with the same chance as any other."""
        self._writer.append({"row": pack(obs_tm1, a_tm1, r_t, discount_t, obs_t)})
        self._writer.create_item(TABLE, 1.0, {"row": self._writer.history["row"][-1]})
        self._written += 1
        if self._written % UNCONFIRMED == 0:
            # Inserts are confirmed behind our back; on a busy host that would pile up.
            self.flush(UNCONFIRMED)

    def flush(self, unconfirmed: int = 0) -> None:
        """Waits until everything written, but the last `unconfirmed` rows, can be sampled.

        Raises:
            StalledError: the server is gone, or took longer than `SAMPLE_TIMEOUT_SECONDS`.
        """
        begin = time.monotonic()
        while True:
            try:
                return self._writer.flush(unconfirmed, timeout_ms=1000 * ANSWER_SECONDS)
            except reverb.ReverbError:
                self.check(time.monotonic() - begin)

    def check(self, waited: float) -> None:
        """Does nothing while there is reason to go on waiting; a dead server never answers.

        Args:
            waited: seconds so far.

        Raises:
            StalledError: the server is gone, or the wait took longer than its limit.
        """
        try:
            self._client.server_info(timeout=ANSWER_SECONDS)
        except reverb.ReverbError:
            raise StalledError(f"the Reverb server at {self.address} no longer answers") from None
        if waited > SAMPLE_TIMEOUT_SECONDS:
            raise StalledError(
                f"the Reverb server at {self.address} answers, but its table neither took nor gave "
                f"anything for {SAMPLE_TIMEOUT_SECONDS} s"
            )

    def size(self) -> int:
        """Rows that the table holds."""
        return self._client.server_info(timeout=SAMPLE_TIMEOUT_SECONDS)[TABLE].current_size

    def dataset(self, batch_size: int) -> tf.data.Dataset:
        """Batches of rows `[batch_size, width] float32`, drawn uniformly and without end.

        Batching comes before dropping Reverb's sample info: a `map` over single items would cost
        five times as much. Two batches are fetched ahead, so that sampling overlaps training.
        """
        samples = reverb.TrajectoryDataset.from_table_signature(
            self.address,
            TABLE,
            max_in_flight_samples_per_worker=2 * batch_size,
            num_workers_per_iterator=1,
            rate_limiter_timeout_ms=SAMPLE_TIMEOUT_SECONDS * 1000,
            get_signature_timeout_secs=SAMPLE_TIMEOUT_SECONDS,
        )
        batches = samples.batch(batch_size, drop_remainder=True)
        return batches.map(lambda sample: sample.data["row"]).prefetch(2)

    def sample(self, batch_size: int, batches: int = 1) -> np.ndarray:
        """Draws `batches` batches once and returns them as rows `[batches * batch_size, width]`."""
        with quiet():  # each new sampler logs its first connection
            drawn = list(self.dataset(batch_size).take(batches).as_numpy_iterator())
        return np.concatenate(drawn)

    def save(self, target: Path) -> None:
        """Writes a snapshot to the new directory `target`: items, order, priorities, counters.

        Reverb keeps one snapshot and deletes all else in its folder, so each is moved out of it.

        Raises:
            RuntimeError, OSError: it could not be written.
        """
        self.flush()
        with quiet():
            snapshot = self._client.checkpoint()
        shutil.move(snapshot, target)

    def restore(self, snapshot: Path) -> None:
        """Starts the server anew with what a snapshot holds.

        Raises:
            ParameterError: there is no complete snapshot.
        """
        if not (snapshot / "DONE").exists():
            raise ParameterError(f"{snapshot / 'DONE'} is missing: this checkpoint cannot be used")
        self.close()
        self._start(snapshot)

    def close(self) -> None:
        """Stops the writer and the server; may be called twice.

        The writer is flushed first: Reverb's own `close` drops what is on its way.
        """
        server, self.server = self.server, None
        if server is None:
            return
        with contextlib.suppress(StalledError):  # a server that is gone cannot be closed either
            self.flush()
            self._writer.close()
        with quiet():
            server.stop()
