"""A Reverb table of transitions: how to write, sample, save and restore it.

A transition is one row (see `transitions`) in one column of one step. As a two-step trajectory of
six columns it would take two to four times the CPU time (notebook 01, section 10).
"""

import contextlib
import shutil
import time
from pathlib import Path

import numpy as np
import reverb
import tensorflow as tf
from reverb.rate_limiters import RateLimiter

from labkit.errors import START_SECONDS, ServerGoneError, StalledError
from labkit.replay import transitions
from labkit.replay.server import LimiterState, connect, limiter_state, start_server
from labkit.replay.transitions import SAMPLE_TIMEOUT_SECONDS, Layout, Transition
from labkit.runtime import quiet

TABLE = "transitions"
RECENT = "recent transitions"  # the newest ones; their data are those of `TABLE`, stored once
ANSWER_SECONDS = 5  # a server on this host answers within 5 ms
UNCONFIRMED = 16  # transitions without a confirmation before the writer waits; Reverb warns at 50


def open_dataset(address: str, batch_size: int, timeout: int, recent: int = 0) -> tf.data.Dataset:
    """Batches of rows `[batch_size, width] float32` and their info from the server at `host:port`.

    If `recent` is not 0, `recent_share` of each batch comes from the table of recent transitions.
    Two batches are prefetched, so that sampling overlaps training. The dataset ends after `timeout`
    seconds without a sample.
    """
    share = transitions.recent_share(batch_size, recent)
    rows = _rows(address, TABLE, batch_size - share, timeout)
    if share:
        rows = transitions.joined(_rows(address, RECENT, share, timeout), rows)
    return transitions.untuned(rows.prefetch(2))


def _rows(address: str, table: str, batch_size: int, timeout: int) -> tf.data.Dataset:
    samples = reverb.TrajectoryDataset.from_table_signature(
        address,
        table,
        max_in_flight_samples_per_worker=2 * batch_size,
        num_workers_per_iterator=1,
        rate_limiter_timeout_ms=1000 * timeout,
        get_signature_timeout_secs=SAMPLE_TIMEOUT_SECONDS,
    )

    @tf.autograph.experimental.do_not_convert  # AutoGraph's files outlast a killed process
    def rows_and_info(sample: reverb.ReplaySample) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        return sample.data["row"], {"key": sample.info.key, "probability": sample.info.probability}

    # Mapped after batching: a `map` over single items would cost five times as much.
    return samples.batch(batch_size, drop_remainder=True).map(rows_and_info)


def table_state(client: reverb.Client, seconds: float = START_SECONDS) -> LimiterState:
    """Inserts, samples and size of the table now; waits for a server that is being started.

    Raises:
        ServerGoneError: no answer within so many seconds.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return limiter_state(client, TABLE)
        except StalledError as error:
            if time.monotonic() > deadline:
                raise ServerGoneError(f"{error}, and none did for {seconds:g} s") from None
        time.sleep(0.2)


class TransitionWriter:
    """Writes transitions to the server at `host:port`, to both tables if `recent` is not 0."""

    def __init__(self, address: str, recent: int = 0):
        self.address, self._client = address, connect(address)
        self._tables = (TABLE, RECENT) if recent else (TABLE,)
        self._writer, self._written = self._client.trajectory_writer(1), 0

    def write(self, transition: Transition) -> None:
        """Stores one transition; from then on it can be sampled like any other."""
        self._writer.append({"row": transitions.pack(transition)})
        for table in self._tables:
            self._writer.create_item(table, 1.0, {"row": self._writer.history["row"][-1]})
        self._written += 1
        if self._written % UNCONFIRMED == 0:
            # Reverb confirms inserts in the background; on a busy host they would pile up.
            self.flush(UNCONFIRMED)

    def flush(self, unconfirmed: int = 0) -> None:
        """Waits until everything written, except the last `unconfirmed` rows, can be sampled.

        For the errors see `check`.
        """
        begin = time.monotonic()
        while True:
            try:
                return self._writer.flush(unconfirmed, timeout_ms=1000 * ANSWER_SECONDS)
            except reverb.ReverbError:
                self.check(time.monotonic() - begin)

    def check(self, waited: float) -> None:
        """Raises an error if waiting longer is pointless: a server that is gone never answers.

        Raises:
            ServerGoneError: the server is gone.
            StalledError: `waited`, the seconds so far, have reached the time limit.
        """
        server = f"the Reverb server at {self.address}"
        try:
            self._client.server_info(timeout=ANSWER_SECONDS)
        except reverb.ReverbError:
            raise ServerGoneError(f"{server} no longer answers") from None
        if waited > SAMPLE_TIMEOUT_SECONDS:
            raise StalledError(f"{server} answers, but took and gave no row for {waited:.0f} s")

    def drop(self) -> None:
        """Closes the writer without a flush; what is not yet confirmed is lost."""
        with contextlib.suppress(reverb.ReverbError):
            self._writer.close()

    def close(self) -> None:
        """Flushes, then closes: Reverb's own `close` drops what is not yet confirmed."""
        with contextlib.suppress(StalledError):  # a server that is gone cannot be flushed
            self.flush()
            self._writer.close()


def packed_table(
    layout: Layout, capacity: int, limiter: RateLimiter | None = None, name: str = TABLE
) -> reverb.Table:
    """A table of `capacity` rows `[layout.width] float32`: uniform sampling, oldest removed first.

    `limiter` bounds the ratio of samples to inserts; None only requires one row in the table.
    """
    return reverb.Table(
        name,
        max_size=capacity,
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        rate_limiter=limiter or reverb.rate_limiters.MinSize(1),
        signature={"row": tf.TensorSpec([layout.width], tf.float32)},
    )


class ReverbReplay(TransitionWriter):
    """A run's replay table on a Reverb server in this process, and the writer of its rows.

    For the arguments see `packed_table` and `start_server`. A snapshot overrides `limiter`. If
    `recent` is not 0, a second table has as many of the newest rows, at most `capacity`; see
    `open_dataset`. Counters, sizes and the limiter are those of the first table.
    """

    def __init__(
        self,
        layout: Layout,
        capacity: int,
        folder: Path | None = None,
        limiter: RateLimiter | None = None,
        port: int | None = None,
        snapshot: Path | None = None,
        recent: int = 0,
    ):
        self._recent = min(recent, capacity)
        self.layout, self.capacity, self._folder = layout, capacity, folder
        self.sample_timeout, self._limiter, self._port = SAMPLE_TIMEOUT_SECONDS, limiter, port
        self._start(snapshot)

    def _start(self, snapshot: Path | None) -> None:
        tables = [packed_table(self.layout, self.capacity, self._limiter)]
        if self._recent:
            tables.append(packed_table(self.layout, self._recent, name=RECENT))
        server = start_server(tables, self._folder, snapshot, self._port)
        self.server: reverb.Server | None = server
        address = f"localhost:{server.port}"
        # A writer would wait without end where no port is free or the hosts file lacks localhost.
        try:
            table_state(connect(address), ANSWER_SECONDS)
        except ServerGoneError:
            with quiet():
                server.stop()
            raise
        super().__init__(address, self._recent)

    def state(self) -> LimiterState:
        """Inserts, samples and size of the table now; see `table_state`."""
        return table_state(self._client)

    def size(self) -> int:
        """Number of rows in the table."""
        return self._client.server_info(timeout=SAMPLE_TIMEOUT_SECONDS)[TABLE].current_size

    def dataset(self, batch_size: int) -> tf.data.Dataset:
        """See `open_dataset`."""
        return open_dataset(self.address, batch_size, self.sample_timeout, self._recent)

    def sample(self, batch_size: int) -> np.ndarray:
        """Draws rows `[batch_size, width] float32` once; raises a StalledError if it cannot."""
        # Each new sampler logs its connection. At the time limit the dataset ends or raises.
        with quiet(), contextlib.suppress(tf.errors.DeadlineExceededError):
            for rows, _ in self.dataset(batch_size).take(1).as_numpy_iterator():
                return rows
        what = f"the replay table gave no batch of {batch_size} transitions"
        raise StalledError(f"{what} within {self.sample_timeout} s")

    def save(self, target: Path) -> None:
        """Writes a snapshot to the new directory `target`; RuntimeError or OSError if it cannot."""
        self.flush()
        with quiet():
            snapshot = self._client.checkpoint()
        shutil.move(snapshot, target)  # Reverb deletes all but the newest one in its folder

    def restore(self, snapshot: Path) -> None:
        """Restarts the server with the contents of a snapshot that `save` wrote."""
        self.close()
        self._start(snapshot)

    def close(self) -> None:
        """Stops the writer and the server; may be called twice."""
        server, self.server = self.server, None
        if server is not None:
            super().close()
            with quiet():
                server.stop()
