"""Policies in NumPy: the actor network for one observation at a time, and uniform actions."""

from collections.abc import Callable
from typing import Any

import numpy as np

Policy = Callable[[np.ndarray], np.ndarray]


class ActorPolicy:
    """The actor network evaluated in NumPy: for one observation 30 µs, a `tf.function` call 1 ms.

    The numbers are those of TF-Agents' policies (tested against them); the noise comes from a
    generator of its own, so that nothing else that draws can change what it draws.

    Args:
        agent: the agent whose actor's shapes, observation scale and action bounds are taken.
        seed: seed of the exploration noise; None makes the policy greedy: the squashed mean.
        greedy_share: the share of episodes that are played greedily all the same. The greedy
            policy is what is judged in the end, and the critic knows its ways only by trying them.
    """

    def __init__(self, agent, seed: int | None = None, greedy_share: float = 0.0):
        network = agent._actor_network
        self._shapes = [tuple(v.shape) for v in network.variables]
        self._scale = network._scale
        spec = agent.action_spec
        self._half_range = np.asarray((spec.maximum - spec.minimum) / 2.0, np.float32)
        self._middle = np.asarray((spec.maximum + spec.minimum) / 2.0, np.float32)
        self._size = int(spec.shape[0])
        self._random = None if seed is None else np.random.default_rng(seed)
        self._greedy_share, self._noisy = greedy_share, True
        self.set_weights(np.concatenate([v.numpy().ravel() for v in network.variables]))

    def set_weights(self, flat: np.ndarray) -> None:
        """Takes all parameters, one flat float32 vector as `learn.flat_weights` gives it."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])[:-1]
        arrays = [
            part.reshape(shape)
            for part, shape in zip(np.split(flat, ends), self._shapes, strict=True)
        ]
        self._layers = list(zip(arrays[0::2], arrays[1::2], strict=True))

    def new_episode(self) -> None:
        """Decides whether the episode that begins is played with noise."""
        if self._random is not None:
            self._noisy = self._random.random() >= self._greedy_share

    def get_state(self) -> dict[str, Any]:
        """The noise generator's state, fit for JSON; empty for a greedy policy."""
        return {} if self._random is None else dict(self._random.bit_generator.state)

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes what `get_state` gave."""
        if self._random is not None:
            self._random.bit_generator.state = state

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Returns an action `[act] float32` within the bounds for an observation `[obs]`."""
        hidden = observation.astype(np.float32) / self._scale
        for kernel, bias in self._layers[:-1]:
            hidden = np.maximum(hidden @ kernel + bias, 0.0)
        kernel, bias = self._layers[-1]
        output = hidden @ kernel + bias
        raw_action = output[: self._size]
        if self._random is not None and self._noisy:
            noise = self._random.standard_normal(self._size, dtype=np.float32)
            raw_action = raw_action + np.exp(output[self._size :]) * noise
        return self._middle + self._half_range * np.tanh(raw_action)


def random_policy(action_spec, seed: int) -> Policy:
    """A policy that draws each action uniformly between the bounds of `action_spec`."""
    generator = np.random.default_rng(seed)
    low = np.broadcast_to(action_spec.minimum, action_spec.shape)
    high = np.broadcast_to(action_spec.maximum, action_spec.shape)
    return lambda observation: generator.uniform(low, high).astype(np.float32)
