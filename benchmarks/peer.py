"""A peer's own training loop on the same environment; runs in .venv-peers, which has no labkit.

The peers are Stable-Baselines3 (PyTorch) and SBX (the same library in JAX).
"""

import argparse
import os
from typing import Any

import gymnasium
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from benchmarks.minitaur import hidden_output, minitaur
from benchmarks.stopwatch import Stopwatch, worker

NET = [256, 256]


def make(algorithm: str, env: gymnasium.Env, **settings: Any) -> OffPolicyAlgorithm:
    """A model on `env`: one step of `env`, one gradient step of 256, two hidden layers of 256.

    Args:
        algorithm: "sb3_sac", "sbx_sac" or "sbx_crossq".
        env: trained on.
        settings: of the algorithm's constructor, besides those above.
    """
    net: Any = NET
    if algorithm == "sb3_sac":
        from stable_baselines3 import SAC as Algorithm
    elif algorithm == "sbx_sac":
        from sbx import SAC as Algorithm
    else:  # CrossQ's own critics are 1024 wide
        from sbx import CrossQ as Algorithm

        net = {"pi": NET, "qf": NET}
    work = {"train_freq": 1, "gradient_steps": 1, "batch_size": 256}
    return Algorithm("MlpPolicy", env, seed=0, policy_kwargs={"net_arch": net}, **work, **settings)


def use_threads(count: int) -> None:
    """Limits the arithmetic to `count` threads; 0 leaves each library its own choice.

    Call it before `make`. JAX only knows one thread or all.
    """
    if count:
        import torch

        torch.set_num_threads(count)
        if count == 1:
            os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"


class Ticking(BaseCallback):
    """Stops training when the stopwatch has timed its iterations."""

    def __init__(self, stopwatch: Stopwatch, learning_starts: int):
        super().__init__()
        self._stopwatch, self._learning_starts = stopwatch, learning_starts

    def _on_step(self) -> bool:
        # Called before the gradient step of this env step, hence minus one.
        return not self._stopwatch.tick(self.num_timesteps - self._learning_starts - 1)


def main(options: argparse.Namespace) -> dict[str, float]:
    """Times the loop."""
    use_threads(options.threads)
    stopwatch = Stopwatch(options.warmup, options.iterations)
    settings = {"learning_starts": options.initial, "device": "cpu"}
    if options.actor_update_period > 1:  # SBX has it, Stable-Baselines3 has not
        settings["policy_delay"] = options.actor_update_period
    with hidden_output():
        model = make(options.algorithm, minitaur(), **settings)
        model.learn(10**9, callback=Ticking(stopwatch, options.initial))
    return stopwatch.result()


if __name__ == "__main__":
    worker(main)
