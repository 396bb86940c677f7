"""The actor in NumPy with a sampling temperature, from nothing but its weights."""

import copy
from collections.abc import Sequence

import numpy as np


class TemperedPolicy:
    """An action of the actor, whose sampling noise is multiplied by a temperature.

    The action is tanh(μ(s) + T·σ(s)·ε) with ε from a standard normal distribution. T = 0 gives the
    deterministic policy, T = 1 the distribution that was trained.

    Args:
        weights: kernels `[in, out]` and biases `[out]` in turn, float32; the last layer has the
            means and then the log standard deviations.
        observation_scale: what observations `[obs]` are divided by; empty is 1.

    Actions are within ±1: the bounds of the Minitaur and of most of PyBullet's robots.
    """

    def __init__(self, weights: Sequence[np.ndarray], observation_scale: Sequence[float] = ()):
        self._hidden = list(zip(weights[:-2:2], weights[1:-2:2], strict=True))
        self._kernel, self._bias = weights[-2:]
        self._scale = np.asarray(observation_scale or 1.0, np.float32)
        self._temperature = np.float32(0)  # deterministic; see `at`
        self._random = np.random.default_rng(0)

    def at(self, temperature: float, seed: int) -> "TemperedPolicy":
        """The same actor with the temperature T, 0 or more, and a new noise generator."""
        other = copy.copy(self)
        other._temperature = np.float32(temperature)
        other._random = np.random.default_rng(seed)
        return other

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Returns an action `[act] float32` for an observation `[obs]`."""
        mean, std = self.distribution(observation)
        noise = self._random.standard_normal(mean.size, dtype=np.float32)
        return np.tanh(mean + self._temperature * std * noise)

    def distribution(self, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation before the tanh, each `[act] float32`, as trained (T = 1)."""
        units = observation.astype(np.float32) / self._scale
        for kernel, bias in self._hidden:
            units = np.maximum(units @ kernel + bias, 0.0)
        mean, log_std = np.split(units @ self._kernel + self._bias, 2)
        return mean, np.exp(log_std)
