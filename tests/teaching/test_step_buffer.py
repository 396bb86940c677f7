"""Windows of a buffer of single steps, across the ends of episodes and of drivers."""

import numpy as np
import tensorflow as tf
from tf_agents.replay_buffers.tf_uniform_replay_buffer import TFUniformReplayBuffer
from tf_agents.trajectories import trajectory

from labkit.teaching import step_buffer

FIRST, MID, LAST = 0, 1, 2


def step(t, kind, following, discount=1.0):
    return trajectory.Trajectory(
        step_type=np.array(kind),
        observation=np.array([t, t], np.float32),
        action=np.array([10 + t], np.float32),
        policy_info=(),
        next_step_type=np.array(following),
        reward=np.float32(t / 2),
        discount=np.float32(discount),
    )


TOLD = [
    step(0, FIRST, MID),
    step(1, MID, LAST, discount=0.0),
    step(2, LAST, FIRST),  # the boundary: its observation ends the episode
    step(3, FIRST, MID),
    step(4, MID, MID),  # this driver stops here …
    step(20, FIRST, MID),  # … and another one begins anew: 4 → 20 never happened
    step(21, MID, MID),
]
HAPPENED = [(0, 1, 1), (1, 2, 0), (3, 4, 1), (20, 21, 1)]  # from, to, discount


def test_windows_of_a_step_buffer_skip_what_never_happened():
    spec = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), TOLD[0])
    buffer = TFUniformReplayBuffer(spec, batch_size=1, max_length=100)
    observer = step_buffer.StepObserver(buffer)
    for told in TOLD:
        observer(told)
    drawn = set()
    for steps, _ in step_buffer.windows(buffer, 16).take(30):
        one, two = steps.observation[:, 0, 0], steps.observation[:, 1, 0]
        drawn |= set(zip(one.numpy(), two.numpy(), steps.discount[:, 0].numpy(), strict=True))
    assert sorted(drawn) == HAPPENED
