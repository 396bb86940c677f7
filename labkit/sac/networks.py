"""Critic and actor: TF-Agents' own networks, with scaled observations and a normalised critic."""

import numpy as np
import tensorflow as tf
from tf_agents.agents.ddpg import critic_network
from tf_agents.agents.sac import tanh_normal_projection_network
from tf_agents.networks import actor_distribution_network

EPSILON = 1e-5  # added to the variance of a layer's units


@tf.custom_gradient
def _normalise(units, bias):
    """ReLU of each row of `[batch, units]` with mean 0 and variance 1, plus bias `[units]`.

    One op with its gradient in closed form, and row means as products with a vector: the layer
    written in Keras' parts makes a gradient step two thirds longer, this one a quarter.
    """
    mean = tf.fill([units.shape[-1], 1], 1.0 / units.shape[-1])
    centred = units - tf.matmul(units, mean)
    inverse = tf.math.rsqrt(tf.matmul(tf.square(centred), mean) + EPSILON)
    scaled = centred * inverse
    active = tf.nn.relu(scaled + bias)

    def gradient(upstream):
        inner = tf.raw_ops.ReluGrad(gradients=upstream, features=active)
        along = scaled * tf.matmul(inner * scaled, mean)
        return inverse * (inner - tf.matmul(inner, mean) - along), tf.reduce_sum(inner, 0)

    return active, gradient


class NormalisedDense(tf.keras.layers.Dense):
    """A dense layer `[batch, in] → [batch, units]`, normalised over its units, then ReLU.

    Ba et al. 2016, equation 4, without the gain: behind a ReLU the next layer's kernel can hold it.
    The bias comes after the norm only, so that inputs which differ by a factor alone look the same:
    not for environments with one or two observations.
    """

    def call(self, inputs):
        """Returns activations `[batch, units] float32`."""
        # As a tensor: of a mirrored variable, custom_gradient would want to hear.
        bias = tf.convert_to_tensor(self.bias)
        return _normalise(tf.matmul(inputs, self.kernel), bias)


class ScaledCriticNetwork(critic_network.CriticNetwork):
    """TF-Agents' critic Q(s, a) that divides observations `[batch, obs]` by a constant first.

    The scale lives in the network, so that a saved policy takes the environment's own numbers.
    """

    _joint_layers: list[tf.keras.layers.Layer]

    def __init__(
        self,
        input_tensor_spec,
        observation_scale=(),
        layer_norm=False,
        name="CriticNetwork",
        **kwargs,
    ):
        super().__init__(input_tensor_spec, name=name, **kwargs)
        self._scale = np.asarray(observation_scale or 1.0, np.float32)
        if layer_norm:
            *before, value = self._joint_layers  # a Flatten, then the hidden layers
            self._joint_layers = [
                NormalisedDense(layer.units, kernel_initializer=layer.kernel_initializer)
                for layer in before
                if isinstance(layer, tf.keras.layers.Dense)
            ] + [value]

    def call(self, inputs, step_type=(), network_state=(), training=False):
        """Returns Q `[batch] float32` for `(observation [batch, obs], action [batch, act])`."""
        observation, action = inputs
        return super().call(
            (observation / self._scale, action), step_type, network_state, training=training
        )


class ScaledActorNetwork(actor_distribution_network.ActorDistributionNetwork):
    """TF-Agents' actor π(a | s), a tanh-squashed normal, that scales observations likewise."""

    def __init__(
        self,
        input_tensor_spec,
        output_tensor_spec,
        observation_scale=(),
        name="ActorDistributionNetwork",
        **kwargs,
    ):
        super().__init__(
            input_tensor_spec,
            output_tensor_spec,
            continuous_projection_net=tanh_normal_projection_network.TanhNormalProjectionNetwork,
            name=name,
            **kwargs,
        )
        self._scale = np.asarray(observation_scale or 1.0, np.float32)

    def call(self, observations, step_type, network_state, training=False, mask=None):
        """Returns the action distribution for observations `[batch, obs]`."""
        return super().call(
            observations / self._scale, step_type, network_state, training=training, mask=mask
        )
