"""Replay without Reverb: TF-Agents' `TFUniformReplayBuffer`, in this process, on any system.

SAC learns from pairs of neighbouring steps. TF-Agents' SAC, unlike its DQN, does not mask a pair
that joins two episodes. A table of transitions holds no such pair; `windows` drops them from a
buffer of single steps.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
from tf_agents.replay_buffers.tf_uniform_replay_buffer import TFUniformReplayBuffer

from labkit.errors import ParameterError
from labkit.replay import npz
from labkit.replay.transitions import (
    SAMPLE_TIMEOUT_SECONDS,
    Layout,
    Transition,
    joined,
    pack,
    recent_share,
    untuned,
)
from labkit.runtime import quiet

FILE = "rows.npz"


class UniformReplay:
    """A run's replay table in TensorFlow variables, with the calls of `ReverbReplay`.

    All `capacity` rows are allocated now; a full table removes the oldest. Rows can be sampled from
    the next `flush` on: a batch does not depend on how far a collector in another thread has come,
    so a run can be repeated.

    If `recent` is not 0, a second buffer holds as many of the newest rows, at most `capacity`, and
    gives a share of each batch; see `transitions.recent_share`.
    """

    def __init__(self, layout: Layout, capacity: int, recent: int = 0):
        self.layout, self.capacity, self._recent = layout, capacity, min(recent, capacity)
        self.sample_timeout = SAMPLE_TIMEOUT_SECONDS
        spec = tf.TensorSpec([layout.width], tf.float32, "row")
        self._buffer = TFUniformReplayBuffer(spec, batch_size=1, max_length=capacity)
        self._newest = TFUniformReplayBuffer(spec, batch_size=1, max_length=self._recent or 1)
        self._staged: list[np.ndarray] = []

        buffers = (self._buffer, self._newest) if recent else (self._buffer,)
        self._adders = [self._adder(buffer) for buffer in buffers]

    def _adder(self, buffer: TFUniformReplayBuffer) -> Callable[[np.ndarray], None]:
        """Compiles the storing of one row `[1, width]`.

        One function for both buffers would never end: their critical sections share a name.
        """
        one = tf.TensorSpec([1, self.layout.width], tf.float32)

        @tf.function(autograph=False, input_signature=[one])
        def add(row: tf.Tensor) -> None:
            buffer.add_batch(row)

        return add

    def write(self, transition: Transition) -> None:
        """Stores one transition; from the next `flush` on it can be sampled like any other."""
        self._staged.append(pack(transition))

    def flush(self) -> None:
        """Makes everything written available to samples."""
        for row in self._staged:
            for add in self._adders:
                add(row[None])
        self._staged.clear()

    def check(self, waited: float) -> None:
        """Does nothing: there is no server that could be gone."""

    def size(self) -> int:
        """Number of rows in the table."""
        return int(self._buffer.num_frames())

    def dataset(self, batch_size: int) -> tf.data.Dataset:
        """Batches of rows `[batch_size, width] float32` and their info; see `BatchSource`."""
        # Not converted: AutoGraph's files stay in the temporary folder if the process is killed.
        plain = tf.autograph.experimental.do_not_convert

        def draws(buffer: TFUniformReplayBuffer, count: int) -> tf.data.Dataset:
            def draw(_: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
                if buffer is self._newest:
                    # TensorFlow numbers the random operations of each function. Without another one
                    # here, both buffers would draw with the same numbers, and from the same places.
                    tf.random.uniform([])
                rows, info = buffer.get_next(sample_batch_size=count)
                return rows, {"key": info.ids, "probability": info.probabilities}

            return tf.data.Dataset.counter().map(plain(draw))

        share = recent_share(batch_size, self._recent)
        with quiet():  # TF-Agents warns that `get_next` is deprecated, but uses it in `as_dataset`
            rows = draws(self._buffer, batch_size - share)
            if share:
                both = tf.data.Dataset.zip((draws(self._newest, share), rows))
                rows = both.map(plain(joined))
        return untuned(rows)

    def sample(self, batch_size: int, batches: int = 1) -> np.ndarray:
        """Draws rows `[batches * batch_size, width] float32` once.

        It does not use `dataset`: once TensorFlow is seeded, each new dataset draws the same rows.
        """
        share = recent_share(batch_size, self._recent)
        parts = ((self._newest, share), (self._buffer, batch_size - share))
        with quiet():  # see `dataset`
            drawn = [
                buffer.get_next(sample_batch_size=batches * count)[0].numpy()
                for buffer, count in parts
                if count
            ]
        return np.concatenate(drawn)

    def save(self, target: Path) -> None:
        """Writes the contents to the new directory `target`."""
        self.flush()
        target.mkdir()
        data, ids, last_id = self._buffer.variables()
        size = self.size()
        held = {"rows": data[:size], "ids": ids[:size], "last_id": last_id.numpy()}
        npz.write(target / FILE, {name: np.asarray(array) for name, array in held.items()})

    def restore(self, snapshot: Path) -> None:
        """Replaces the contents by a snapshot that `save` wrote.

        Raises:
            ParameterError: the file is missing, damaged or of another layout.
        """
        try:
            with np.load(snapshot / FILE, allow_pickle=False) as file:
                held = {name: file[name] for name in ("rows", "ids", "last_id")}
        except Exception as error:  # zipfile, zlib, struct and numpy each raise another one
            raise ParameterError(f"{snapshot / FILE} is missing or damaged: {error}") from None
        size, *width = held["rows"].shape
        if width != [self.layout.width] or size > self.capacity:
            raise ParameterError(
                f"{snapshot / FILE} holds rows {held['rows'].shape}, not up to "
                f"{self.capacity} rows of {self.layout.width}"
            )
        self._staged.clear()
        data, ids, last_id = self._buffer.variables()
        data[:size].assign(held["rows"])
        ids[:size].assign(held["ids"])
        last_id.assign(held["last_id"])
        self._refill(held["rows"][np.argsort(held["ids"].ravel())])

    def _refill(self, rows: np.ndarray) -> None:
        """Fills the buffer of the newest rows from all rows, oldest first."""
        newest = rows[len(rows) - min(len(rows), self._recent) :]
        data, ids, last_id = self._newest.variables()
        data[: len(newest)].assign(newest)
        ids[: len(newest)].assign(np.arange(len(newest)))
        last_id.assign(len(newest) - 1)

    def close(self) -> None:
        """Does nothing: the memory is freed with the object."""
