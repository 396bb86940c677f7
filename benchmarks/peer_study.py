"""One peer learns on the Minitaur for one seed; runs in .venv-peers, which has no labkit.

    .venv-peers/bin/python -m benchmarks.peer_study --settings sbx_sac-tuned --seed 1 --out FILE

The environment is the registered one, as in labkit. Every 2 500 env steps five deterministic
episodes are played, and twenty after the last one; FILE gets every result and the versions.
"""

import argparse
import importlib.metadata
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from benchmarks import peer
from benchmarks.peer_evaluation import EVAL_SEED, Evaluating

EVAL_EVERY, EVAL_EPISODES, FINAL_EPISODES = 2_500, 5, 20
# labkit's choices for this robot when these runs were made, as far as the peers have them. CrossQ
# normalises its critics and delays its actor by itself.
REWARD_SCALE = 20.0
SCALES = np.array([1.0] * 8 + [20.0] * 8 + [5.7] * 8 + [0.15] * 3 + [1.0], np.float32)
EARLIER_SCALES = np.array([3.14] * 8 + [20.0] * 8 + [5.7] * 8 + [1.0] * 4, np.float32)
CHOICES: dict[str, Any] = {
    "gamma": 0.995,
    "n_steps": 5,
    "learning_starts": 5_000,  # env steps of warm-up
    "target_entropy": -8.0,
    "ent_coef": f"auto_{math.exp(-4.0)}",  # learned; the initial temperature
}
RATE, DECAY_STEPS = 1e-3, 20_000  # the learning rate, and the gradient steps that halve it
EARLIER: dict[str, Any] = {**CHOICES, "target_entropy": -4.0}  # what labkit chose before
SBX_ONLY = {"policy_delay": 2, "policy_kwargs": {"layer_norm": True}}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "sb3_sac-defaults": ("sb3_sac", {}),
    "sb3_sac-tuned": ("sb3_sac", CHOICES),
    "sbx_sac-tuned": ("sbx_sac", {**CHOICES, **SBX_ONLY}),
    "sbx_crossq-tuned": ("sbx_crossq", CHOICES),
    "sbx_sac-earlier": ("sbx_sac", {**EARLIER, **SBX_ONLY}),
    "sbx_crossq-earlier": ("sbx_crossq", EARLIER),
}
PACKAGES = ("stable_baselines3", "sbx-rl", "jax", "torch", "numpy", "gym", "pybullet")


class Scaled(gymnasium.Wrapper):
    """Divides observations and multiplies rewards, as labkit's networks and loss do."""

    def __init__(self, env: gymnasium.Env, scales: np.ndarray, reward_scale: float):
        super().__init__(env)
        self._scales, self._reward_scale = scales, reward_scale

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode."""
        observation, info = self.env.reset(**options)
        return observation / self._scales, info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes one env step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation / self._scales, reward * self._reward_scale, terminated, truncated, info


def environment(settings: str, reward_scale: float) -> gymnasium.Env:
    """The Minitaur; with scaled observations and rewards, unless a peer has its own defaults."""
    made = peer.minitaur()
    if settings.endswith("-defaults"):
        return made
    return Scaled(made, EARLIER_SCALES if settings.endswith("-earlier") else SCALES, reward_scale)


def decaying_rate(env_steps: int) -> Callable[[float], float]:
    """The learning rate as a function of the share of `env_steps` that remains, as in labkit."""

    def rate(remaining: float) -> float:
        gradient_steps = (1 - remaining) * env_steps - CHOICES["learning_starts"]
        return RATE / (1 + max(gradient_steps, 0) / DECAY_STEPS)

    return rate


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--settings", choices=list(SETTINGS), required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, default=100_000, help="env steps, warm-up included")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--made", type=json.loads, default={}, help="JSON: commit and CPU")
    options = parser.parse_args()
    algorithm, settings = SETTINGS[options.settings]
    tuned = not options.settings.endswith("-defaults")
    peer.use_threads(1)
    random.seed(options.seed)
    np.random.seed(options.seed)
    with peer.hidden_output():
        env, eval_env = (environment(options.settings, scale) for scale in (REWARD_SCALE, 1.0))
        own: dict[str, Any] = {"device": "cpu", "seed": options.seed}
        if tuned:
            own["learning_rate"] = decaying_rate(options.steps)
        model = peer.make(algorithm, env, **own, **settings)
        evaluating = Evaluating(eval_env, EVAL_EVERY, EVAL_EPISODES)
        model.learn(options.steps, callback=evaluating)
        evaluating.evaluate(options.steps, FINAL_EPISODES, EVAL_SEED + 1)
    result = {
        "settings": options.settings,
        "seed": options.seed,
        "env_steps": options.steps,
        **options.made,
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "evaluations": evaluating.rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
