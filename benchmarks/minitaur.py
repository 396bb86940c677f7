"""The Minitaur for the peers, which need an environment of Gymnasium; without labkit."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np


class Adapter(gymnasium.Env):
    """An environment of Gym 0.23 behind Gymnasium's interface."""

    def __init__(self, env: Any) -> None:
        self._env = env
        observations, actions = env.observation_space, env.action_space
        self.observation_space = gymnasium.spaces.Box(observations.low, observations.high)
        self.action_space = gymnasium.spaces.Box(actions.low, actions.high)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed)
        return np.asarray(self._env.reset(), np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes one env step; the end is a termination, and a wrapper truncates."""
        observation, reward, terminated, _ = self._env.step(action)
        return np.asarray(observation, np.float32), float(reward), bool(terminated), False, {}


def minitaur() -> gymnasium.Env:
    """The PyBullet Minitaur as registered, with its time limit of 1000 env steps."""
    # Prints on import, so it is imported while the output is hidden.
    from pybullet_envs.bullet.minitaur_gym_env import MinitaurBulletEnv

    return gymnasium.wrappers.TimeLimit(Adapter(MinitaurBulletEnv()), 1000)


@contextlib.contextmanager
def hidden_output() -> Iterator[None]:
    """Hides file descriptor 1, to which PyBullet's native code prints."""
    kept, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(null)
