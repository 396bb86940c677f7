"""Stable-Baselines3's SAC on the same environment; runs in .venv-sb3, which has no labkit."""

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback

from benchmarks.stopwatch import Stopwatch, worker


class Minitaur(gymnasium.Env):
    """The PyBullet Minitaur as registered (Gym 0.23) behind Gymnasium's interface."""

    def __init__(self) -> None:
        # Prints on import, so it is imported while the output is hidden.
        from pybullet_envs.bullet import minitaur_gym_env

        self._env = minitaur_gym_env.MinitaurBulletEnv()
        observations, actions = self._env.observation_space, self._env.action_space
        self.observation_space = gymnasium.spaces.Box(observations.low, observations.high)
        self.action_space = gymnasium.spaces.Box(actions.low, actions.high)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed)
        return self._env.reset().astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes one env step; a fall is a termination, and the wrapper truncates."""
        observation, reward, fell, info = self._env.step(action)
        return observation.astype(np.float32), float(reward), bool(fell), False, info


class Ticking(BaseCallback):
    """Stops training when the stopwatch has timed its iterations."""

    def __init__(self, stopwatch: Stopwatch, learning_starts: int):
        super().__init__()
        self._stopwatch, self._learning_starts = stopwatch, learning_starts

    def _on_step(self) -> bool:
        # Called before the gradient step of this env step, hence minus one.
        return not self._stopwatch.tick(self.num_timesteps - self._learning_starts - 1)


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


def main(options: argparse.Namespace) -> dict[str, float]:
    """Times SB3's own loop: one env step, one gradient step of 256, two hidden layers of 256."""
    if options.threads:
        torch.set_num_threads(options.threads)
    stopwatch = Stopwatch(options.warmup, options.iterations)
    with hidden_output():
        model = SAC(
            "MlpPolicy",
            gymnasium.wrappers.TimeLimit(Minitaur(), 1000),
            learning_starts=options.initial,
            train_freq=1,
            gradient_steps=1,
            batch_size=256,
            policy_kwargs={"net_arch": [256, 256]},
            device="cpu",
            seed=0,
        )
        model.learn(10**9, callback=Ticking(stopwatch, options.initial))
    return {**stopwatch.result(), "threads": torch.get_num_threads()}


if __name__ == "__main__":
    worker(main)
