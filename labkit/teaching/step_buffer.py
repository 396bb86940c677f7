"""A buffer of single steps without Reverb, as the tutorial's table (notebook 03).

SAC learns from pairs of neighbouring steps. TF-Agents' SAC, unlike its DQN, does not mask a pair
that joins two episodes, so `windows` drops them.
"""

from typing import Any

import tensorflow as tf
from tf_agents.replay_buffers.tf_uniform_replay_buffer import TFUniformReplayBuffer
from tf_agents.trajectories import trajectory
from tf_agents.utils import nest_utils

from labkit.replay.transitions import untuned


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
