"""Replay without Reverb: TF-Agents' `TFUniformReplayBuffer`, in this process, on any system.

SAC learns from pairs of neighbouring steps. TF-Agents' SAC, unlike its DQN, does not mask a pair
that joins two episodes. A table of transitions holds no such pair; `windows` drops them from a
buffer of single steps.
"""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.replay_buffers.tf_uniform_replay_buffer import TFUniformReplayBuffer
from tf_agents.trajectories import trajectory
from tf_agents.utils import nest_utils

from labkit.errors import ParameterError
from labkit.replay import npz
from labkit.replay.transitions import SAMPLE_TIMEOUT_SECONDS, Layout, Transition, pack, untuned
from labkit.runtime import quiet

FILE = "rows.npz"


class UniformReplay:
    """A run's replay table in TensorFlow variables, with the calls of `ReverbReplay`.

    All `capacity` rows are allocated now; a full table removes the oldest. Rows can be sampled from
    the next `flush` on: a batch does not depend on how far a collector in another thread has come,
    so that a run repeats itself.
    """

    def __init__(self, layout: Layout, capacity: int):
        self.layout, self.capacity = layout, capacity
        self.sample_timeout = SAMPLE_TIMEOUT_SECONDS
        spec = tf.TensorSpec([layout.width], tf.float32, "row")
        one = tf.TensorSpec([1, layout.width], tf.float32)
        self._buffer = TFUniformReplayBuffer(spec, batch_size=1, max_length=capacity)
        self._staged: list[np.ndarray] = []

        @tf.function(autograph=False, input_signature=[one])
        def add(row: tf.Tensor) -> None:
            self._buffer.add_batch(row)

        self._add = add

    def write(self, transition: Transition) -> None:
        """Stores one transition; from the next `flush` on it can be sampled like any other."""
        self._staged.append(pack(transition))

    def flush(self) -> None:
        """Makes everything written available to samples."""
        for row in self._staged:
            self._add(row[None])
        self._staged.clear()

    def check(self, waited: float) -> None:
        """Does nothing: there is no server that could be gone."""

    def size(self) -> int:
        """Number of rows in the table."""
        return int(self._buffer.num_frames())

    def dataset(self, batch_size: int) -> tf.data.Dataset:
        """Batches of rows `[batch_size, width] float32`, drawn uniformly and without end."""
        # Not converted: AutoGraph's files stay in the temporary folder if the process is killed.
        plain = tf.autograph.experimental.do_not_convert
        draws = plain(self._buffer.as_dataset)(sample_batch_size=batch_size)
        return untuned(draws.map(plain(lambda rows, info: rows)))

    def sample(self, batch_size: int, batches: int = 1) -> np.ndarray:
        """Draws rows `[batches * batch_size, width] float32` once.

        It does not use `dataset`: once TensorFlow is seeded, each new dataset draws the same rows.
        """
        with quiet():  # TF-Agents warns that it is deprecated, but uses it in `as_dataset`
            return self._buffer.get_next(sample_batch_size=batches * batch_size)[0].numpy()

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
        data, ids, last_id = self._buffer.variables()
        data[:size].assign(held["rows"])
        ids[:size].assign(held["ids"])
        last_id.assign(held["last_id"])

    def close(self) -> None:
        """Does nothing: the memory is freed with the object."""


class StepObserver:
    """Writes a driver's steps into a buffer, with the calls of Reverb's observer.

    The buffer is made with the agent's `collect_data_spec` and `batch_size=1`.
    """

    def __init__(self, buffer: TFUniformReplayBuffer):
        self._buffer = buffer

    def __call__(self, step: trajectory.Trajectory) -> None:
        """Takes one unbatched step."""
        self._buffer.add_batch(nest_utils.batch_nested_array(step))

    def flush(self) -> None:
        """Does nothing: a write is complete when it returns."""

    close = flush

    def reset(self, write_cached_steps: bool = True) -> None:
        """Does nothing: no step is cached."""


def windows(buffer: TFUniformReplayBuffer, batch_size: int) -> tf.data.Dataset:
    """Batches of two-step windows `[batch_size, 2, …]` and their info, none across episode ends.

    A window is dropped if its first step ends an episode, or if its second step begins one (also
    one that another driver began in the middle of the first).
    """

    def neighbours(steps: trajectory.Trajectory, info: Any) -> tf.Tensor:
        return ~(steps.is_boundary()[0] | steps.is_first()[1])

    drawn = buffer.as_dataset(sample_batch_size=batch_size, num_steps=2)
    return untuned(drawn.unbatch().filter(neighbours).batch(batch_size, drop_remainder=True))
