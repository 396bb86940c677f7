"""Wall seconds of so many iterations of Stable-Baselines3's SAC on the lander; in .venv-sb3."""

import sys

import gymnasium
import numpy as np
from stable_baselines3 import SAC

from benchmarks.contender_sb3 import Ticking, hidden_output
from benchmarks.stopwatch import Stopwatch

WARMUP, INITIAL = 1_000, 1_000


class Lander(gymnasium.Env):
    """Gym 0.23's lander behind Gymnasium's interface: the physics that labkit trains on."""

    def __init__(self):
        from gym.envs.box2d.lunar_lander import LunarLander

        self._env = LunarLander(continuous=True)
        observations, actions = self._env.observation_space, self._env.action_space
        self.observation_space = gymnasium.spaces.Box(observations.low, observations.high)
        self.action_space = gymnasium.spaces.Box(actions.low, actions.high)

    def reset(self, *, seed=None, options=None):
        """Begins an episode."""
        super().reset(seed=seed)
        return np.asarray(self._env.reset(), np.float32), {}

    def step(self, action):
        """One env step; the time limit is the wrapper's business."""
        observation, reward, over, _ = self._env.step(action)
        return np.asarray(observation, np.float32), float(reward), bool(over), False, {}


def main() -> None:
    """Prints the seconds, with the settings of `benchmarks.lunarlander`."""
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
