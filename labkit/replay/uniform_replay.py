"""Replay without Reverb: TF-Agents' `TFUniformReplayBuffer`, in this process, on any system.

SAC learns from pairs of neighbouring steps, and TF-Agents' SAC, unlike its DQN, masks no pair that
joins two episodes. The table of rows holds none; from a buffer of steps `windows` drops them.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf
from tf_agents.replay_buffers.tf_uniform_replay_buffer import TFUniformReplayBuffer
from tf_agents.trajectories import trajectory
from tf_agents.utils import nest_utils

from labkit.errors import ParameterError
from labkit.replay.transitions import Layout, pack, untuned
from labkit.runtime import quiet

FILE = "rows.npz"


class UniformReplay:
    """A run's replay table in TensorFlow variables; the same calls as `replay.ReverbReplay`.

    Args:
        layout: what a row holds.
        capacity: rows, allocated now; when full, the oldest goes.
        folder: not used; a Reverb server needs one.
    """

    def __init__(self, layout: Layout, capacity: int, folder: Path | None = None):
        self.layout, self.capacity = layout, capacity
        spec = tf.TensorSpec([layout.width], tf.float32, "row")
        one = tf.TensorSpec([1, layout.width], tf.float32)
        self._buffer = TFUniformReplayBuffer(spec, batch_size=1, max_length=capacity)

        @tf.function(input_signature=[one])
        def add(row):
            self._buffer.add_batch(row)

        self._add = add

    def write(self, obs_tm1, a_tm1, r_t, discount_t, obs_t) -> None:
        """Stores one transition; it can be sampled at once, with the same chance as any other."""
        self._add(pack(obs_tm1, a_tm1, r_t, discount_t, obs_t)[None])

    def flush(self) -> None:
        """Nothing is ever on its way here."""

    def check(self, waited: float) -> None:
        """There is no server that could be gone."""

    def size(self) -> int:
        """Rows that the table holds."""
        return int(self._buffer.num_frames())

    def dataset(self, batch_size: int) -> tf.data.Dataset:
        """Batches of rows `[batch_size, width] float32`, drawn uniformly and without end."""
        draws = self._buffer.as_dataset(sample_batch_size=batch_size)
        return untuned(draws.map(lambda rows, info: rows).prefetch(2))

    def sample(self, batch_size: int, batches: int = 1) -> np.ndarray:
        """Draws `batches` batches once and returns them as rows `[batches * batch_size, width]`.

        Not through `dataset`: once TensorFlow is seeded, each new one would draw the same again.
        """
        with quiet():  # deprecated, and what `as_dataset` itself calls
            return self._buffer.get_next(sample_batch_size=batches * batch_size)[0].numpy()

    def save(self, target: Path) -> None:
        """Writes what is held to the new directory `target`."""
        target.mkdir()
        data, ids, last_id = self._buffer.variables()
        size = self.size()
        np.savez(target / FILE, rows=data[:size], ids=ids[:size], last_id=last_id.numpy())

    def restore(self, snapshot: Path) -> None:
        """Takes what `save` wrote in place of what is held.

        Raises:
            ParameterError: the file is missing, damaged or of another layout.
        """
        try:
            with np.load(snapshot / FILE, allow_pickle=False) as file:
                held = {name: file[name] for name in ("rows", "ids", "last_id")}
        except Exception as error:  # zipfile, zlib, struct and numpy each have their own for this
            raise ParameterError(f"{snapshot / FILE} is missing or damaged: {error}") from None
        size, *width = held["rows"].shape
        if width != [self.layout.width] or size > self.capacity:
            raise ParameterError(
                f"{snapshot / FILE} holds rows {held['rows'].shape}, not up to "
                f"{self.capacity} rows of {self.layout.width}"
            )
        data, ids, last_id = self._buffer.variables()
        data[:size].assign(held["rows"])
        ids[:size].assign(held["ids"])
        last_id.assign(held["last_id"])

    def close(self) -> None:
        """The memory goes with the object."""


class StepObserver:
    """Writes a driver's steps into a `TFUniformReplayBuffer`; Reverb's observer has these calls.

    Args:
        buffer: made with the agent's `collect_data_spec` and `batch_size=1`.
    """

    def __init__(self, buffer: TFUniformReplayBuffer):
        self._buffer = buffer

    def __call__(self, step: trajectory.Trajectory) -> None:
        """Takes one unbatched step."""
        self._buffer.add_batch(nest_utils.batch_nested_array(step))

    def flush(self) -> None:
        """Nothing is ever on its way here."""

    reset = close = flush


def windows(buffer: TFUniformReplayBuffer, batch_size: int) -> tf.data.Dataset:
    """Batches of two-step windows `[batch_size, 2, …]` and their info, none across episode ends.

    Of two neighbours in the buffer the first may be an episode's last, or the second the first of
    a new one that was begun in the middle of another.
    """

    def neighbours(steps, info):
        return ~(steps.is_boundary()[0] | steps.is_first()[1])

    drawn = buffer.as_dataset(sample_batch_size=batch_size, num_steps=2)
    return untuned(drawn.unbatch().filter(neighbours).batch(batch_size, drop_remainder=True))
