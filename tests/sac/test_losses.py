"""The losses: each by hand on numbers that fit on a page, then against TF-Agents' own."""

import numpy as np
import pytest
import tensorflow as tf
from library import library_loss, unpack
from scipy import stats

from labkit.replay.transitions import Layout, Transition, split
from labkit.sac import losses
from labkit.sac.agent import ACTOR_NOISE, CRITIC_NOISE, _critic
from labkit.strategy import make_strategy, replica_slice

LAYOUT = Layout(28, 8)


def constant(*numbers):
    return tf.constant(numbers, tf.float32)


# Two transitions: an ordinary step, and a termination. Each state is one number.
BATCH = Transition(
    observation=constant([0.0], [1.0]),
    action=constant([2.0], [3.0]),
    reward=constant(0.5, 1.0),
    discount=constant(1.0, 0.0),
    next_observation=constant([10.0], [20.0]),
)


def q_sum(observation, action):
    return observation[:, 0] + action[:, 0]


def q_double(observation, action):
    return 2 * observation[:, 0] + action[:, 0]


def always_four(observation):
    """A policy whose action is 4 and whose log π is −1, in every state."""
    return tf.fill([len(observation), 1], 4.0), tf.fill([len(observation)], -1.0)


def test_the_target_by_hand():
    """10 · 0.5 + 0.9 · (min(10 + 4, 20 + 4) − 0.2 · (−1)) = 17.78; after a fall, 10 · 1."""
    y = losses.critic_target(BATCH, [q_sum, q_double], always_four, constant(0.2), 0.9, 10.0)
    np.testing.assert_allclose(y, [17.78, 10.0], rtol=1e-6)


def test_the_critic_loss_by_hand():
    """Q₁ is 2 and 4, Q₂ is 2 and 5, y is 1 and 2: ½ · ((1 + 4) + (1 + 9)) / 2."""
    errors = losses.td_errors(BATCH, [q_sum, q_double], constant(1.0, 2.0))
    np.testing.assert_allclose(errors, [[1, 2], [1, 3]])
    assert float(losses.critic_loss(errors)) == 0.5 * 15 / 2


def test_the_actor_loss_by_hand():
    """0.2 · (−1) − min(0 + 4, 0 + 4) = −4.2, and 0.2 · (−1) − min(1 + 4, 2 + 4) = −5.2."""
    loss, log_pi = losses.actor_loss(
        BATCH.observation, [q_sum, q_double], always_four, constant(0.2)
    )
    assert float(loss) == pytest.approx(-4.7)
    np.testing.assert_array_equal(log_pi, [-1, -1])


@pytest.mark.parametrize(("target", "direction"), [(-2.0, "falls"), (2.0, "rises")])
def test_alpha_falls_while_the_policy_is_more_random_than_its_target(target, direction):
    """The entropy is 1: the gradient by log α is 1 − target, and descent goes against it."""
    log_alpha = tf.Variable(-3.0)
    with tf.GradientTape() as tape:
        loss = losses.alpha_loss(log_alpha, constant(-1.0, -1.0), target)
    assert float(loss) == pytest.approx(-3.0 * (1 - target))
    gradient = float(tape.gradient(loss, log_alpha))
    assert gradient == pytest.approx(1 - target)
    assert (gradient > 0) == (direction == "falls")


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (-2.0, 4.0)])
def test_log_pi_is_the_density_of_the_squashed_normal(low, high):
    """Change of variables, in float64: p(a) = N(u; μ, σ) / |da/du| for each dimension."""
    generator = np.random.default_rng(0)
    mean, noise = generator.normal(size=(2, 64, 3))
    stddev = np.exp(generator.normal(size=(64, 3)) / 2)
    given = (tf.constant(part, tf.float32) for part in (mean, stddev, noise))
    action, log_pi = losses.sample_action(*given, low, high)
    u = mean + stddev * noise
    half_range = (high - low) / 2
    np.testing.assert_allclose(action, low + half_range * (1 + np.tanh(u)), rtol=1e-4, atol=1e-5)
    density = stats.norm.pdf(u, mean, stddev) / (half_range / np.cosh(u) ** 2)
    np.testing.assert_allclose(log_pi, np.log(density).sum(axis=1), rtol=1e-4, atol=1e-4)


def gradients_of(strategy, loss, variables):
    """The sum over replicas of a loss and of its gradient, as an optimizer would see them."""

    @tf.function(autograph=False)
    def compute():
        def on_replica():
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(variables)
                value = loss()
            gradient = tape.gradient(value, variables, unconnected_gradients="zero")
            flat = tf.concat([tf.reshape(part, [-1]) for part in [value, *gradient]], 0)
            return tf.distribute.get_replica_context().all_reduce("sum", flat)

        return strategy.experimental_local_results(strategy.run(on_replica))[0]

    return compute().numpy()


@pytest.mark.parametrize("devices", ["cpu", "mirrored:2"])
def test_values_and_gradients_are_those_of_tf_agents(devices, make_agent, random_rows):
    strategy = make_strategy(devices, 32)
    replicas = strategy.num_replicas_in_sync
    agent = make_agent(strategy, gamma=0.9, reward_scale_factor=5.0, initial_log_alpha=-1.0)
    rows = tf.constant(random_rows(32))
    networks = [agent._critic_network_1, agent._critic_network_2]
    critics = [_critic(network) for network in networks]
    targets = [_critic(agent._target_critic_network_1), _critic(agent._target_critic_network_2)]

    def batch():
        return split(replica_slice(rows, replicas), LAYOUT)

    def steps():
        return unpack(replica_slice(rows, replicas), LAYOUT)

    def alpha():
        return tf.exp(agent._log_alpha)

    def critic():
        drawn = agent._sampler(CRITIC_NOISE)
        y = losses.critic_target(batch(), targets, drawn, alpha(), 0.9, 5.0)
        return losses.critic_loss(losses.td_errors(batch(), critics, y))

    def actor():
        drawn = agent._sampler(ACTOR_NOISE)
        return losses.actor_loss(batch().observation, critics, drawn, alpha())

    def library_critic():
        before, step, after = steps()
        options = {"gamma": 0.9, "reward_scale_factor": 5.0}
        options["td_errors_loss_fn"] = tf.math.squared_difference
        return 0.5 * library_loss(agent, "critic_loss", before, step.action, after, **options)

    pairs = {
        "critic": (critic, library_critic, [v for n in networks for v in n.trainable_variables]),
        "actor": (
            lambda: actor()[0],
            lambda: library_loss(agent, "actor_loss", steps().time_step),
            list(agent._actor_network.trainable_variables),
        ),
        "alpha": (
            lambda: losses.alpha_loss(agent._log_alpha, actor()[1], agent._target_entropy),
            lambda: library_loss(agent, "alpha_loss", steps().time_step),
            [agent._log_alpha],
        ),
    }
    for name, (ours, theirs, variables) in pairs.items():
        found, wanted = (gradients_of(strategy, loss, variables) for loss in (ours, theirs))
        assert found[0] == pytest.approx(wanted[0], rel=1e-5), name
        assert np.linalg.norm(wanted[1:]) > 1e-3, name
        apart = np.linalg.norm(found - wanted) / np.linalg.norm(wanted[1:])
        assert apart < 1e-5, name
