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
    is middle + half_range · tanh(μ + T σ ε) (Haarnoja et al. 2018b, appendix C), with T = 1 unless
    `at` sets another one. The noise has a generator of its own, so that no other draw changes it.

    Args:
        weights: kernels `[in, out]` and biases `[out]` in turn, float32; the last layer has the
            means and then the log standard deviations, `2 * act` numbers.
        low: lower bounds of the action `[act]`.
        high: upper bounds.
        observation_scale: what observations `[obs]` are divided by; empty is 1.
        seed: of the noise; None makes the policy deterministic: the squashed mean.
    """

    def __init__(
        self,
        weights: Sequence[np.ndarray],
        low: np.ndarray,
        high: np.ndarray,
        observation_scale: Sequence[float] = (),
        seed: int | None = None,
    ):
        self._shapes = [weight.shape for weight in weights]
        self._layers = list(zip(weights[0::2], weights[1::2], strict=True))
        self._scale = np.asarray(observation_scale if len(observation_scale) else 1.0, np.float32)
        self._half_range = np.asarray((high - low) / 2.0, np.float32)
        self._middle = np.asarray((high + low) / 2.0, np.float32)
        self._random = None if seed is None else np.random.default_rng(seed)
        self._temperature = np.float32(1)

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Returns actions `[…, act] float32` within the bounds for observations `[…, obs]`."""
        raw_action, log_stddev = self._outputs(observation)
        if self._random is not None:
            noise = self._random.standard_normal(raw_action.shape, dtype=np.float32)
            raw_action = raw_action + self._temperature * np.exp(log_stddev) * noise
        return self._middle + self._half_range * np.tanh(raw_action)

    def at(self, temperature: float, seed: int) -> "Actor":
        """The same actor with the temperature T, 0 or more, and a new noise generator."""
        other = copy.copy(self)
        other._temperature = np.float32(temperature)
        other._random = np.random.default_rng(seed)
        return other

    def distribution(self, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation before the tanh, each `[…, act] float32`, as trained."""
        mean, log_stddev = self._outputs(observation)
        return mean, np.exp(log_stddev)

    def _outputs(self, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        hidden = np.asarray(observation, np.float32) / self._scale
        for kernel, bias in self._layers[:-1]:
            hidden = np.maximum(hidden @ kernel + bias, 0.0)  # ReLU
        kernel, bias = self._layers[-1]
        output = hidden @ kernel + bias
        size = output.shape[-1] // 2
        return output[..., :size], output[..., size:]

    def set_weights(self, flat: np.ndarray) -> None:
        """Takes all parameters `[parameters] float32`, as `update.flat_weights` returns them."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])[:-1]
        parts = zip(np.split(flat, ends), self._shapes, strict=True)
        arrays = [part.reshape(shape) for part, shape in parts]
        self._layers = list(zip(arrays[0::2], arrays[1::2], strict=True))

    def get_state(self) -> dict[str, Any]:
        """The noise generator's state for JSON; empty for a deterministic policy."""
        return {} if self._random is None else dict(self._random.bit_generator.state)

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned."""
        if self._random is not None:
            self._random.bit_generator.state = state

    def arrays(self) -> dict[str, np.ndarray]:
        """What `load` reads: `kernel_0`, `bias_0` and so on, bounds `low`, `high`, and `scale`."""
        named = {"scale": np.atleast_1d(self._scale)}
        named |= {"low": self._middle - self._half_range, "high": self._middle + self._half_range}
        for number, (kernel, bias) in enumerate(self._layers):
            named |= {f"kernel_{number}": kernel, f"bias_{number}": bias}
        return named

    @classmethod
    def load(cls, file: str | Path, seed: int | None = None) -> "Actor":
        """The policy whose `arrays` an NPZ file holds; it is read without pickle."""
        with np.load(file, allow_pickle=False) as stored:
            count = sum(name.startswith("kernel_") for name in stored)
            weights = [stored[f"{kind}_{n}"] for n in range(count) for kind in ("kernel", "bias")]
            bounds = stored["low"], stored["high"]
            return cls(weights, *bounds, stored["scale"], seed)


class ActorPolicy(Actor):
    """The actor of an agent as it is now; `set_weights` follows its training.

    Its actions equal those of TF-Agents' policies. `agent` is a TF-Agents SAC agent, see
    `labkit.sac.agent`; `seed` is that of the exploration noise, None for the mean action.
    """

    def __init__(self, agent: Any, seed: int | None = None):
        network, spec = agent._actor_network, agent.action_spec
        weights = [variable.numpy() for variable in network.variables]
        low, high = (np.broadcast_to(b, spec.shape) for b in (spec.minimum, spec.maximum))
        super().__init__(weights, low, high, network.observation_scale, seed)
