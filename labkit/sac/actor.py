"""The actor network in NumPy: 30 µs for one observation, where a `tf.function` call takes 1 ms.

`labkit export` copies this file as `policy.py`, next to `policy.npz`:

    from policy import Actor

    policy = Actor.load("policy.npz")
    action = policy(observation)  # [obs] → [act], or [batch, obs] → [batch, act], float32

Part of labkit. SPDX-License-Identifier: Apache-2.0
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


class Actor:
    """A policy π(a | s): a normal distribution, squashed by tanh to the bounds of the action.

    With a mean μ(s) and a standard deviation σ(s) from the network and ε from N(0, 1), its action
    is middle + half_range · tanh(μ + T σ ε) (Haarnoja et al. 2018b, appendix C). The temperature T
    is 1, or 0 without a `seed`: then the policy is deterministic, the squashed mean. The noise has
    a generator of its own, so that no other draw changes it.

    Args:
        weights: kernels `[in, out]` and biases `[out]` in turn, float32; the last layer has the
            means and then the log standard deviations, `2 * act` numbers.
        low: lower bounds of the action `[act]`.
        high: upper bounds.
        observation_scale: what observations `[obs]` are divided by; empty is 1.
        seed: of the exploration noise; None for the mean action.
    """

    def __init__(
        self,
        weights: Sequence[np.ndarray],
        low: np.ndarray,
        high: np.ndarray,
        observation_scale: Sequence[float] = (),
        seed: int | None = None,
    ):
        self._layers = list(zip(weights[0::2], weights[1::2], strict=True))
        self._scale = np.asarray(observation_scale if len(observation_scale) else [1], np.float32)
        self._half_range = np.asarray((high - low) / 2.0, np.float32)
        self._middle = np.asarray((high + low) / 2.0, np.float32)
        self._random = np.random.default_rng(seed)
        self._temperature = np.float32(seed is not None)

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Returns actions `[…, act] float32` within the bounds for observations `[…, obs]`."""
        hidden = np.asarray(observation, np.float32) / self._scale
        for kernel, bias in self._layers[:-1]:
            hidden = np.maximum(hidden @ kernel + bias, 0.0)  # ReLU
        kernel, bias = self._layers[-1]
        output, size = hidden @ kernel + bias, len(bias) // 2
        raw_action, log_stddev = output[..., :size], output[..., size:]
        if self._temperature:
            noise = self._random.standard_normal(raw_action.shape, dtype=np.float32)
            raw_action = raw_action + self._temperature * np.exp(log_stddev) * noise
        return self._middle + self._half_range * np.tanh(raw_action)

    def at(self, temperature: float, seed: int) -> "Actor":
        """The same actor with the temperature T, 0 or more, and a new noise generator."""
        other = copy.copy(self)
        other._temperature = np.float32(temperature)
        other._random = np.random.default_rng(seed)
        return other

    def set_weights(self, flat: np.ndarray) -> None:
        """Takes all parameters `[parameters] float32`, as `update.flat_weights` returns them."""
        old = [array for layer in self._layers for array in layer]
        parts = np.split(flat, np.cumsum([array.size for array in old])[:-1])
        new = [part.reshape(array.shape) for part, array in zip(parts, old, strict=True)]
        self._layers = list(zip(new[0::2], new[1::2], strict=True))

    def get_state(self) -> dict[str, Any]:
        """The noise generator's state, for JSON."""
        return dict(self._random.bit_generator.state)

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned."""
        self._random.bit_generator.state = state

    def arrays(self) -> dict[str, np.ndarray]:
        """What `load` reads: `kernel_0`, `bias_0` and so on, bounds `low`, `high`, and `scale`."""
        low, high = self._middle - self._half_range, self._middle + self._half_range
        named = {"scale": self._scale, "low": low, "high": high}
        for number, (kernel, bias) in enumerate(self._layers):
            named |= {f"kernel_{number}": kernel, f"bias_{number}": bias}
        return named

    @classmethod
    def load(cls, file: str | Path, seed: int | None = None) -> "Actor":
        """The policy whose `arrays` an NPZ file holds; it is read without pickle."""
        with np.load(file, allow_pickle=False) as stored:
            count = sum(name.startswith("kernel_") for name in stored)
            weights = [stored[f"{kind}_{n}"] for n in range(count) for kind in ("kernel", "bias")]
            return cls(weights, stored["low"], stored["high"], stored["scale"], seed)


class ActorPolicy(Actor):
    """The actor of a TF-Agents SAC agent as it is now; `set_weights` follows its training.

    Its actions equal those of TF-Agents' policies. `seed` is that of `Actor`.
    """

    def __init__(self, agent: Any, seed: int | None = None):
        network, spec = agent._actor_network, agent.action_spec
        weights = [variable.numpy() for variable in network.variables]
        low, high = (np.broadcast_to(b, spec.shape) for b in (spec.minimum, spec.maximum))
        super().__init__(weights, low, high, network._scale, seed)
