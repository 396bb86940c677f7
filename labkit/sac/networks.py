"""Critic and actor: TF-Agents' networks with scaled observations and layer-normalised critics."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.agents.ddpg import critic_network
from tf_agents.agents.sac.tanh_normal_projection_network import TanhNormalProjectionNetwork
from tf_agents.networks import actor_distribution_network

EPSILON = 1e-5  # added to the variance of a layer's units


@tf.custom_gradient
def _normalise(units: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
    """ReLU of each row of `[batch, units]` with mean 0 and variance 1, plus bias `[units]`.

    The gradient is in closed form, and row means are products with a vector: this layer makes a
    gradient step a quarter longer, and a layer of Keras operations would make it two thirds longer.
    """
    mean = tf.fill([units.shape[-1], 1], 1.0 / units.shape[-1])
    centred = units - tf.matmul(units, mean)
    inverse = tf.math.rsqrt(tf.matmul(tf.square(centred), mean) + EPSILON)
    scaled = centred * inverse
    active = tf.nn.relu(scaled + bias)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        inner = tf.raw_ops.ReluGrad(gradients=upstream, features=active)
        along = scaled * tf.matmul(inner * scaled, mean)
        return inverse * (inner - tf.matmul(inner, mean) - along), tf.reduce_sum(inner, 0)

    return active, gradient


class NormalisedDense(tf.keras.layers.Dense):
    """A dense layer `[batch, in] → [batch, units]`, normalised over its units, then ReLU.

    Ba et al. 2016, equation 4, without the gain, which the next layer's kernel can represent. The
    bias is added after the norm, so that inputs that differ by a factor give the same output: do
    not use it with one or two observations.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns activations `[batch, units] float32`."""
        # As a tensor: custom_gradient does not accept a mirrored variable.
        return _normalise(tf.matmul(inputs, self.kernel), tf.convert_to_tensor(self.bias))


class ScaledCriticNetwork(critic_network.CriticNetwork):
    """TF-Agents' critic Q(s, a) that divides observations `[batch, obs]` by a constant first.

    The scale lives in the network, so that a saved policy takes the environment's own numbers.
    """

    _joint_layers: list[tf.keras.layers.Layer]

    def __init__(
        self,
        input_tensor_spec: Any,
        observation_scale: tuple[float, ...] = (),
        layer_norm: bool = False,
        **kwargs: Any,
    ):
        super().__init__(input_tensor_spec, **kwargs)
        self._scale = np.asarray(observation_scale or [1], np.float32)  # [obs], or [1]
        if layer_norm:
            _flatten, *hidden, value = self._joint_layers
            sizes = [(layer.units, layer.kernel_initializer) for layer in hidden]
            dense = [NormalisedDense(units, kernel_initializer=first) for units, first in sizes]
            self._joint_layers = [*dense, value]

    def call(
        self, inputs: Any, step_type: Any = (), network_state: Any = (), **options: Any
    ) -> tuple[tf.Tensor, Any]:
        """Returns Q `[batch] float32` for `(observation [batch, obs], action [batch, act])`."""
        scaled = inputs[0] / self._scale, inputs[1]
        return super().call(scaled, step_type, network_state, **options)


class ScaledActorNetwork(actor_distribution_network.ActorDistributionNetwork):
    """TF-Agents' actor π(a | s), a tanh-squashed normal, with the critic's observation scale."""

    def __init__(
        self,
        input_tensor_spec: Any,
        output_tensor_spec: Any,
        observation_scale: tuple[float, ...] = (),
        **kwargs: Any,
    ):
        kwargs["continuous_projection_net"] = TanhNormalProjectionNetwork
        super().__init__(input_tensor_spec, output_tensor_spec, **kwargs)
        self._scale = np.asarray(observation_scale or [1], np.float32)  # [obs], or [1]

    def call(
        self, observations: tf.Tensor, step_type: Any, network_state: Any, **options: Any
    ) -> tuple[Any, Any]:
        """Returns the action distribution for observations `[batch, obs]`."""
        return super().call(observations / self._scale, step_type, network_state, **options)
