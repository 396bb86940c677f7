"""Times Stable-Baselines3's SAC on the lander; runs in .venv-peers.

python -m benchmarks.lunarlander_sb3 ITERATIONS
"""

import sys

import gymnasium
from stable_baselines3 import SAC

from benchmarks.peer import Adapter, Ticking, hidden_output
from benchmarks.stopwatch import Stopwatch

WARMUP, INITIAL = 1_000, 1_000


def main() -> None:
    """Prints the wall seconds of the iterations, with the settings of `benchmarks.lunarlander`."""
    from gym.envs.box2d.lunar_lander import LunarLander  # warns when it is imported

    stopwatch = Stopwatch(WARMUP, int(sys.argv[1]))
    with hidden_output():
        model = SAC(
            "MlpPolicy",
            gymnasium.wrappers.TimeLimit(Adapter(LunarLander(continuous=True)), 1000),
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
