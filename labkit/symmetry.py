"""Left-right reflection: the mirror image of what a symmetric robot did is possible for it, too.

Mishra et al. (2019), "Augmenting Learning Using Symmetry in a Biologically-Inspired Domain",
train a quadruped off-policy on transitions and on their reflections. Here each gradient step
reflects every second row of its batch, so the replay table holds real transitions only.
"""

from typing import NamedTuple

import numpy as np


class Reflection(NamedTuple):
    """What an observation and an action become if left and right are swapped.

    Number i of the reflected observation is `observation_signs[i]` times number
    `observation_order[i]` of the observation. The same holds for actions. The reward is the same.
    """

    observation_order: tuple[int, ...]  # [obs]
    observation_signs: tuple[int, ...]  # [obs], each 1 or -1
    action_order: tuple[int, ...]  # [act]
    action_signs: tuple[int, ...]  # [act]

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of an observation and of an action."""
        return len(self.observation_order), len(self.action_order)

    @property
    def of_row(self) -> tuple[np.ndarray, np.ndarray]:
        """Order `[width] int32` and signs `[width] float32` of a row; see `transitions.Layout`."""
        size, actions = self.sizes
        observation, action = np.array(self.observation_order), np.array(self.action_order)
        kept = np.arange(size + actions, size + actions + 2)  # reward and discount
        order = [observation, size + action, kept, size + actions + 2 + observation]
        signs = [self.observation_signs, self.action_signs, (1, 1), self.observation_signs]
        return np.concatenate(order).astype(np.int32), np.concatenate(signs).astype(np.float32)


# The legs are front left, back left, front right, back right. Each has a left and a right motor;
# the left motor of a left leg corresponds to the right motor of the right leg. An action has the
# extension of each leg, then its swing. The attitude is a quaternion x, y, z, w: in a mirror,
# rotations about the forward axis x and the vertical axis z change their direction.
_MOTORS = (5, 4, 7, 6, 1, 0, 3, 2)
_SENSORS = tuple(8 * kind + motor for kind in range(3) for motor in _MOTORS)  # of the motors
REFLECTIONS = {
    "MinitaurBulletEnv-v0": Reflection(
        observation_order=(*_SENSORS, 24, 25, 26, 27),
        observation_signs=(*(1,) * 24, -1, 1, -1, 1),
        action_order=(2, 3, 0, 1, 6, 7, 4, 5),
        action_signs=(1,) * 8,
    ),
    # cos θ, sin θ and the angular velocity; the torque.
    "Pendulum-v1": Reflection((0, 1, 2), (1, -1, -1), (0,), (-1,)),
}
