"""Truncation: an episode that a time limit cuts ends with discount 1, not 0 as a termination."""

from typing import Any

import gym
import numpy as np
from tf_agents.environments.gym_wrapper import GymWrapper
from tf_agents.trajectories.time_step import TimeStep


class TruncatingGymWrapper(GymWrapper):
    """TF-Agents' wrapper of a Gym environment, which alone would report every end as a termination.

    Gym 0.23 marks the end of an episode by a time limit with `info["TimeLimit.truncated"]`. Such a
    step keeps discount 1, unless `bootstrap_time_limits` is False.
    """

    def __init__(self, env: gym.Env, bootstrap_time_limits: bool = True):
        super().__init__(env)
        self._bootstrap_time_limits = bootstrap_time_limits

    def _step(self, action: Any) -> TimeStep:
        step = super()._step(action)
        if self._bootstrap_time_limits and step.is_last() and self.truncated():
            step = step._replace(discount=np.asarray(1.0, np.float32))
        return step

    def truncated(self) -> bool:
        """Whether a time limit ended the episode with the last step."""
        info = self.get_info() or {}
        return bool(info.get("TimeLimit.truncated"))
