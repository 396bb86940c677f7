"""Times Stable-Baselines3's SAC on the lander; runs in .venv-peers.

python -m benchmarks.lunarlander_sb3 ITERATIONS
"""

import sys
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3 import SAC

from benchmarks.peer import Ticking, hidden_output
from benchmarks.stopwatch import Stopwatch

WARMUP, INITIAL = 1_000, 1_000


class Lander(gymnasium.Env):
    """Gym 0.23's lander behind Gymnasium's interface: the same physics as in labkit's runs."""

    def __init__(self) -> None:
        from gym.envs.box2d.lunar_lander import LunarLander

        self._env = LunarLander(continuous=True)
        observations, actions = self._env.observation_space, self._env.action_space
        self.observation_space = gymnasium.spaces.Box(observations.low, observations.high)
        self.action_space = gymnasium.spaces.Box(actions.low, actions.high)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed)
        return np.asarray(self._env.reset(), np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes one env step; the wrapper truncates."""
        observation, reward, terminated, _ = self._env.step(action)
        return np.asarray(observation, np.float32), float(reward), bool(terminated), False, {}


def main() -> None:
    """Prints the wall seconds of the iterations, with the settings of `benchmarks.lunarlander`."""
    stopwatch = Stopwatch(WARMUP, int(sys.argv[1]))
    with hidden_output():
        model = SAC(
            "MlpPolicy",
            gymnasium.wrappers.TimeLimit(Lander(), 1000),
            learning_starts=INITIAL,
            train_freq=1,
            gradient_steps=1,
            batch_size=256,
            learning_rate=7.3e-4,
            tau=0.01,
            policy_kwargs={"net_arch": [256, 256]},
            device="cpu",
            seed=0,
        )
        model.learn(10**9, callback=Ticking(stopwatch, INITIAL))
    print(stopwatch.result()["wall_ms"] * int(sys.argv[1]) / 1e3)


if __name__ == "__main__":
    main()
