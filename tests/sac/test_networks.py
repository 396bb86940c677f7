"""The normalised critic against Keras' own normalisation, and against a result by hand."""

import numpy as np
import pytest
import tensorflow as tf

from labkit.environments.make import make_environment
from labkit.sac import agent as agents
from labkit.sac import networks


@pytest.fixture
def layer():
    made = networks.NormalisedDense(16)
    made.build((None, 5))
    made.bias.assign(np.linspace(-0.5, 0.5, 16))
    return made


def plain(layer, inputs):
    """The same layer in Keras' own parts."""
    norm = tf.keras.layers.LayerNormalization(
        epsilon=networks.EPSILON, center=False, scale=False, axis=-1
    )
    return tf.nn.relu(norm(tf.matmul(inputs, layer.kernel)) + layer.bias)


def test_two_units_by_hand():
    """Units 3 and 1 have mean 2 and deviation 1; units 0 and 4 mean 2 and deviation 2."""
    found = networks._normalise(tf.constant([[3.0, 1.0], [0.0, 4.0]]), tf.constant([0.5, 0.0]))
    np.testing.assert_allclose(found, [[1.5, 0.0], [0.0, 1.0]], atol=1e-4)


def test_value_and_gradients_are_those_of_keras(layer):
    rng = np.random.default_rng(0)
    inputs = tf.constant(rng.normal(2.0, 3.0, (32, 5)).astype(np.float32))
    upstream = tf.constant(rng.normal(size=(32, 16)).astype(np.float32))
    found = []
    for call in (layer, lambda x: plain(layer, x)):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            value = call(inputs)
        gradients = tape.gradient(value, [inputs, layer.kernel, layer.bias], upstream)
        found.append([value, *gradients])
    for ours, reference in zip(*found, strict=True):
        assert float(tf.reduce_max(tf.abs(reference))) > 0.1
        np.testing.assert_allclose(ours, reference, rtol=1e-3, atol=2e-4)


def test_the_critics_are_normalised_where_asked_for(small_config):
    """A critic whose layers are normalised does not change when its kernel is doubled.

    The kernel is made large first: beside its units' variance `EPSILON` is then nothing.
    """
    env = make_environment("MinitaurBulletEnv-v0", seed=0)
    inputs = (tf.random.stateless_normal([6, 28], [1, 2]), tf.zeros([6, 8]))
    for switch in (True, False):
        agent = agents.create_agent(
            small_config(critic_layer_norm=switch), env, tf.distribute.get_strategy()
        )
        for name in ("_critic_network_1", "_target_critic_network_2"):
            critic = getattr(agent, name)
            kernel = critic.trainable_variables[2]  # of the second hidden layer
            kernel.assign(1000.0 * kernel)
            before = critic(inputs, step_type=(), network_state=())[0]
            kernel.assign(2.0 * kernel)
            after = critic(inputs, step_type=(), network_state=())[0]
            change = np.abs(after - before).max() / np.abs(before).max()
            assert change < 1e-5 if switch else change > 0.5
