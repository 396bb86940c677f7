"""Deterministic episodes of a peer while it trains; runs in .venv-peers, which has no labkit."""

import contextlib
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

EVAL_SEED = 1_000_003


@contextlib.contextmanager
def other_random_numbers(seed: int) -> Iterator[None]:
    """Seeds Python's and NumPy's global generators, which the Minitaur uses, for a block."""
    kept, kept_numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(kept)
        np.random.set_state(kept_numpy)


def returns(model: Any, env: gymnasium.Env, episodes: int, seed: int) -> list[float]:
    """Returns of deterministic episodes, in the environment's own reward; each has its seed."""
    found = []
    with other_random_numbers(seed):
        for number in range(episodes):
            observation, _ = env.reset(seed=seed + number)
            total, over = 0.0, False
            while not over:
                action, _ = model.predict(observation, deterministic=True)
                observation, reward, terminated, truncated, _ = env.step(action)
                total, over = total + float(reward), terminated or truncated
            found.append(total)
    return found


class Evaluating(BaseCallback):
    """Evaluates every few env steps after the warm-up.

    Args:
        env: separate from the one that is trained on.
        every: env steps between two evaluations.
        episodes: of each of them.
        action_repeat: env steps of one step of the model.
    """

    def __init__(self, env: gymnasium.Env, every: int, episodes: int, action_repeat: int = 1):
        super().__init__()
        self._env, self._every, self._episodes = env, every, episodes
        self._action_repeat = action_repeat
        self._begin, self._spent = time.monotonic(), 0.0
        self.rows: list[dict[str, Any]] = []

    def training_seconds(self) -> float:
        """Seconds since the beginning, without evaluations."""
        return time.monotonic() - self._begin - self._spent

    def _on_step(self) -> bool:
        step = self.num_timesteps * self._action_repeat
        if step % self._every == 0 and self.num_timesteps >= self.model.learning_starts:
            self.evaluate(step, self._episodes, EVAL_SEED)
        return True

    def evaluate(self, step: int, episodes: int, seed: int) -> None:
        """Adds a row with the results of some episodes, and prints it."""
        seconds, begin = self.training_seconds(), time.monotonic()
        scores = returns(self.model, self._env, episodes, seed)
        self._spent += time.monotonic() - begin
        row = {"env_step": step, "gradient_step": self.model._n_updates}
        self.rows.append({**row, "training_seconds": seconds, "returns": scores})
        print(f"{step} env steps, {seconds:.0f} s: {np.mean(scores):+.2f}", file=sys.stderr)
