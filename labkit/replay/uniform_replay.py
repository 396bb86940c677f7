"""Replay without Reverb: TF-Agents' `TFUniformReplayBuffer`, in this process, on any system."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.replay_buffers.tf_uniform_replay_buffer import TFUniformReplayBuffer

from labkit.errors import ParameterError
from labkit.replay import transitions
from labkit.replay.transitions import SAMPLE_TIMEOUT_SECONDS, Layout, Transition, recent_share
from labkit.runtime import quiet

FILE = "rows.npz"


class UniformReplay:
    """A run's replay table in TensorFlow variables, with the calls of `ReverbReplay`.

    All `capacity` rows are allocated now; a full table removes the oldest. Rows can be sampled from
    the next `flush` on: a batch does not depend on how far a collector in another thread has come,
    so a run can be repeated. If `recent` is not 0, a second buffer holds as many of the newest
    rows, at most `capacity`, and gives a share of each batch; see `transitions.recent_share`.
    """

    def __init__(self, layout: Layout, capacity: int, recent: int = 0):
        self.capacity, self._recent = capacity, min(recent, capacity)
        self.sample_timeout = SAMPLE_TIMEOUT_SECONDS
        spec = tf.TensorSpec([layout.width], tf.float32, "row")
        self._buffer = TFUniformReplayBuffer(spec, batch_size=1, max_length=capacity)
        self._newest = TFUniformReplayBuffer(spec, batch_size=1, max_length=self._recent or 1)
        self._staged: list[np.ndarray] = []
        buffers = (self._buffer, self._newest) if recent else (self._buffer,)
        # One function for both would never end: their critical sections share a name.
        self._adders = [_adder(buffer) for buffer in buffers]

    def write(self, transition: Transition) -> None:
        """Stores one transition; from the next `flush` on it can be sampled like any other."""
        self._staged.append(transitions.pack(transition))

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

        def draws(buffer: TFUniformReplayBuffer, count: int) -> tf.data.Dataset:
            def draw(_: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
                if buffer is self._newest:
                    # TensorFlow numbers the random operations of each function. Without another one
                    # here, both buffers would draw with the same numbers, and from the same places.
                    tf.random.uniform([])
                rows, info = buffer.get_next(count)
                return rows, {"key": info.ids, "probability": info.probabilities}

            # AutoGraph's files would stay in the temporary folder if the process is killed.
            return tf.data.Dataset.counter().map(tf.autograph.experimental.do_not_convert(draw))

        share = recent_share(batch_size, self._recent)
        with quiet():  # TF-Agents warns that `get_next` is deprecated, but uses it in `as_dataset`
            rows = draws(self._buffer, batch_size - share)
            if share:
                rows = transitions.joined(draws(self._newest, share), rows)
        return transitions.untuned(rows)

    def sample(self, batch_size: int) -> np.ndarray:
        """Draws rows `[batch_size, width] float32` once."""
        # Not from `dataset`: once TensorFlow is seeded, each new dataset draws the same rows.
        share = recent_share(batch_size, self._recent)
        parts = ((self._newest, share), (self._buffer, batch_size - share))
        with quiet():  # see `dataset`
            return np.concatenate([buffer.get_next(n)[0] for buffer, n in parts if n])

    def save(self, target: Path) -> None:
        """Writes the contents to the new directory `target`."""
        self.flush()
        target.mkdir()
        (rows, ids, last_id), size = self._buffer.variables(), self.size()
        arrays = {"rows": rows[:size], "ids": ids[:size], "last_id": last_id}
        transitions.write_npz(target / FILE, arrays)

    def restore(self, snapshot: Path) -> None:
        """Replaces the contents by a snapshot that `save` wrote.

        Raises:
            ParameterError: the file is missing, damaged or of another layout.
        """
        self._staged.clear()
        try:
            with np.load(snapshot / FILE, allow_pickle=False) as file:
                rows, ids, last_id = file["rows"], file["ids"], file["last_id"]
            _fill(self._buffer, rows, ids, last_id)
        except Exception as error:  # zipfile, zlib, numpy and TensorFlow each raise another one
            raise ParameterError(f"{snapshot / FILE} is missing or damaged: {error}") from None
        oldest_first = rows[np.argsort(ids.ravel())]
        newest = oldest_first[max(0, len(rows) - self._recent) :]
        _fill(self._newest, newest, np.arange(len(newest)), len(newest) - 1)

    def close(self) -> None:
        """Does nothing: the memory is freed with the object."""


def _adder(buffer: TFUniformReplayBuffer) -> Any:
    @tf.function(autograph=False)
    def add(row: tf.Tensor) -> None:
        buffer.add_batch(row)

    return add


def _fill(buffer: TFUniformReplayBuffer, rows: np.ndarray, ids: np.ndarray, last_id: int) -> None:
    held_rows, held_ids, held_last_id = buffer.variables()
    held_rows[: len(rows)].assign(rows)
    held_ids[: len(rows)].assign(ids)
    held_last_id.assign(last_id)
