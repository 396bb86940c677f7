"""How a replay table is written and read: by its server's address, from any process."""

import contextlib
import time

import reverb
import tensorflow as tf

from labkit import stalls
from labkit.errors import PATIENCE_SECONDS, ServerGoneError, StalledError
from labkit.rows import SAMPLE_TIMEOUT_SECONDS, pack, untuned

TABLE = "transitions"
ANSWER_SECONDS = 5  # a server of this host answers in a thousandth of it
UNCONFIRMED = 16  # transitions on their way before the writer waits; Reverb warns at 50


def open_dataset(address: str, batch_size: int, seconds: int | None = None) -> tf.data.Dataset:
    """Batches of rows `[batch_size, width] float32`, drawn uniformly and without end.

    Batching comes before dropping Reverb's sample info: a `map` over single items would cost
    five times as much. Two batches are fetched ahead, so that sampling overlaps training. After
    `seconds` without a sample, `SAMPLE_TIMEOUT_SECONDS` by default, the stream ends.
    """
    samples = reverb.TrajectoryDataset.from_table_signature(
        address,
        TABLE,
        max_in_flight_samples_per_worker=2 * batch_size,
        num_workers_per_iterator=1,
        rate_limiter_timeout_ms=1000 * (seconds or SAMPLE_TIMEOUT_SECONDS),
        get_signature_timeout_secs=SAMPLE_TIMEOUT_SECONDS,
    )
    batches = samples.batch(batch_size, drop_remainder=True)
    return untuned(batches.map(lambda sample: sample.data["row"]).prefetch(2))


def counters(client: reverb.Client) -> stalls.Limiter:
    """Inserts, samples and size of the table, now; a server that is being started is waited for.

    Raises:
        ServerGoneError: it did not answer within `PATIENCE_SECONDS`.
    """
    begin = time.monotonic()
    while True:
        try:
            return stalls.limiter(client, TABLE)
        except StalledError:
            if time.monotonic() - begin > PATIENCE_SECONDS:
                raise ServerGoneError(
                    f"no Reverb server with our table answered at {client.server_address} for "
                    f"{PATIENCE_SECONDS} s"
                ) from None
            time.sleep(0.2)


class RowWriter:
    """Writes transitions into the table of a server, on this host or on another.

    Args:
        address: the server's, `host:port`.
    """

    def __init__(self, address: str):
        self.address = address
        self.client = reverb.Client(address)
        self._writer = self.client.trajectory_writer(1)
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
            ServerGoneError: the server is gone.
            StalledError: the wait took longer than its limit.
        """
        try:
            self.client.server_info(timeout=ANSWER_SECONDS)
        except reverb.ReverbError:
            raise ServerGoneError(
                f"the Reverb server at {self.address} no longer answers"
            ) from None
        if waited > SAMPLE_TIMEOUT_SECONDS:
            raise StalledError(
                f"the Reverb server at {self.address} answers, but its table neither took nor gave "
                f"anything for {SAMPLE_TIMEOUT_SECONDS} s"
            )

    def drop(self) -> None:
        """Ends it without a flush, and waits for nobody: `close`, and its own end, would."""
        with contextlib.suppress(reverb.ReverbError):
            self._writer.close()

    def close(self) -> None:
        """Flushes first: Reverb's own `close` drops what is on its way."""
        with contextlib.suppress(StalledError):  # a server that is gone cannot be closed either
            self.flush()
            self._writer.close()
