"""The agent against TF-Agents' own parts, and its noise against itself."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.trajectories import time_step, trajectory

from labkit import runtime
from labkit.environments.make import make_environment
from labkit.errors import ParameterError
from labkit.replay.transitions import Layout, unpack
from labkit.sac import agent as agents
from labkit.sac.actor import ActorPolicy
from labkit.sac.update import flat_weights, make_steps, make_update
from labkit.symmetry import REFLECTIONS

LAYOUT = Layout(28, 8)


@pytest.fixture(scope="module")
def env():
    return make_environment("MinitaurBulletEnv-v0", seed=0)


def make_agent(config, env):
    runtime.seed_everything(config.seed)
    return agents.create_agent(config, env, tf.distribute.get_strategy())


def test_the_learning_rate_is_half_after_the_decay_steps(small_config):
    decaying = agents._adam(1e-3, small_config(learning_rate_decay_steps=50))._learning_rate
    assert [float(decaying(t)) for t in (0, 50, 150)] == pytest.approx([1e-3, 5e-4, 2.5e-4])
    constant = agents._adam(1e-3, small_config(learning_rate_decay_steps=0))._learning_rate
    assert float(constant) == pytest.approx(1e-3)


def test_log_probability_is_that_of_the_distribution(small_config, env, random_rows):
    agent = make_agent(small_config(), env)
    steps = unpack(tf.constant(random_rows(64)), LAYOUT).time_step
    actions, log_pi = agent._actions_and_log_probs(steps)
    distribution = agent.policy.distribution(steps, ()).action
    assert np.abs(actions).max() <= 1.0
    # TensorFlow Probability inverts tanh, which loses all digits where an action reaches ±1.
    inside = np.abs(actions).max(axis=1) < 0.99
    assert inside.sum() > 16
    expected = distribution.log_prob(actions).numpy()
    np.testing.assert_allclose(log_pi[inside], expected[inside], rtol=1e-4, atol=1e-4)


def test_log_probability_counts_the_range_of_the_action(small_config):
    """Between −2 and 2 a density is half of that between −1 and 1."""
    env = make_environment("Pendulum-v1", seed=0)
    agent = make_agent(small_config(env_name="Pendulum-v1"), env)
    rows = tf.constant(np.random.default_rng(0).normal(size=(64, 9)).astype(np.float32))
    steps = unpack(rows, Layout(3, 1)).time_step
    actions, log_pi = agent._actions_and_log_probs(steps)
    expected = agent.policy.distribution(steps, ()).action.log_prob(actions).numpy()
    inside = np.abs(actions[:, 0]) < 1.9
    assert inside.sum() > 32
    np.testing.assert_allclose(log_pi[inside], expected[inside], rtol=1e-4, atol=1e-4)


def test_three_draws_of_a_step_differ_and_steps_differ(small_config, env, random_rows):
    agent = make_agent(small_config(), env)
    seen = []
    for step in (0, 1):
        agent.train_step_counter.assign(step)
        for draw in (0, 1, 2):
            agent._draw.number = draw
            seen.append(agent._noise(tf.constant([4, 8])).numpy().tobytes())
    assert len(set(seen)) == 6


def test_observations_are_scaled_inside_the_networks(small_config, env):
    scaled, plain = (make_agent(small_config(observation_scale=s), env) for s in ((2.0,) * 28, ()))
    for target, source in zip(scaled.variables, plain.variables, strict=True):
        target.assign(source)
    observation = tf.random.stateless_normal([5, 28], [1, 2])
    for name in ("_actor_network", "_critic_network_1", "_target_critic_network_2"):
        inputs = [observation, observation / 2.0]
        if "critic" in name:
            inputs = [(x, tf.zeros([5, 8])) for x in inputs]
        first = getattr(scaled, name)(inputs[0], step_type=(), network_state=())[0]
        second = getattr(plain, name)(inputs[1], step_type=(), network_state=())[0]
        if "actor" in name:
            first, second = first.mode(), second.mode()
        np.testing.assert_allclose(first, second, rtol=1e-5)


def test_scale_of_the_wrong_length_is_refused(small_config, env):
    with pytest.raises(ParameterError, match="28 numbers"):
        make_agent(small_config(observation_scale=(1.0, 2.0)), env)


def test_same_seed_same_first_ten_losses(small_config, env, random_rows):
    batches = [tf.constant(random_rows(32, seed)) for seed in range(10)]

    def losses(seed):
        agent = make_agent(small_config(seed=seed), env)
        update = make_update(agent, LAYOUT, tf.distribute.get_strategy())
        return np.array([update(batch)[0] for batch in batches])

    first = losses(7)
    np.testing.assert_array_equal(first, losses(7))
    assert not np.allclose(first[0], losses(8)[0])
    assert np.isfinite(first).all()


def test_update_is_the_agents_own_train_step(small_config, env, random_rows):
    rows = tf.constant(random_rows(32))
    config = small_config(actor_update_period=1)
    ours, theirs = make_agent(config, env), make_agent(config, env)
    losses, weights = make_update(ours, LAYOUT, tf.distribute.get_strategy())(rows)
    info = theirs.train(unpack(rows, LAYOUT))
    np.testing.assert_allclose(losses[0], info.extra.critic_loss, rtol=1e-5)
    np.testing.assert_allclose(losses[1], info.extra.actor_loss, rtol=1e-5)
    np.testing.assert_allclose(weights, flat_weights(theirs), rtol=1e-4, atol=1e-6)


def test_an_update_is_compiled_once(small_config, env, random_rows, monkeypatch):
    """TensorFlow compiles a function twice if it creates variables, such as Adam's moments."""
    agent = make_agent(small_config(actor_update_period=1), env)
    traced = []
    loss = agents.SeededSacAgent.critic_loss
    monkeypatch.setattr(
        agents.SeededSacAgent, "critic_loss", lambda *a, **k: traced.append(1) or loss(*a, **k)
    )
    update = make_update(agent, LAYOUT, tf.distribute.get_strategy())
    for seed in range(3):
        update(tf.constant(random_rows(32, seed)))
    assert len(traced) == 1


def test_fast_and_plain_steps_agree_for_100_steps(small_config, env, random_rows):
    """Plain: TF-Agents' `train` on two-step trajectories. Fast: packed rows, compiled, in a loop.

    Before each step the plain agent takes the fast one's state, so that no error adds up.
    """
    config = small_config(actor_update_period=1)
    fast, plain = make_agent(config, env), make_agent(config, env)
    batches = [random_rows(32, seed) for seed in range(100)]
    update = make_update(fast, LAYOUT, tf.distribute.get_strategy())
    update.get_concrete_function(tf.constant(batches[0]))
    dataset = iter(tf.data.Dataset.from_tensor_slices(np.array(batches)))
    steps, _ = make_steps(fast, update, dataset)
    train = tf.function(plain.train, autograph=False)
    train.get_concrete_function(windows(batches[0]))
    for batch in batches:
        for ours, theirs in zip(*map(agents.state_variables, (fast, plain)), strict=True):
            theirs.assign(ours)
        before = flat_weights(fast).numpy()
        losses, weights = steps(1)
        extra = train(windows(batch)).extra
        expected = [extra.critic_loss, extra.actor_loss, extra.alpha_loss]
        np.testing.assert_allclose(losses[:3], expected, rtol=1e-5)
        difference = np.abs(weights - flat_weights(plain)).max()
        assert difference <= 1e-5 * np.abs(weights).max()
        assert np.abs(weights - before).max() > 10 * difference, "it moved more than it differs"


def test_every_second_row_is_reflected_before_a_step(small_config, env, random_rows):
    """By hand: left and right legs change places, the rest of the row stays."""
    rows = random_rows(32)
    motors, legs = [5, 4, 7, 6, 1, 0, 3, 2], [2, 3, 0, 1]
    by_hand = rows.copy()
    for first in (0, 38):  # the observation, the next observation
        for kind in (0, 8, 16):
            here = slice(first + kind, first + kind + 8)
            by_hand[1::2, here] = rows[1::2, here][:, motors]
        by_hand[1::2, [first + 24, first + 26]] *= -1
    for here in (slice(28, 32), slice(32, 36)):  # extension, swing
        by_hand[1::2, here] = rows[1::2, here][:, legs]
    reflecting, plain = make_agent(small_config(), env), make_agent(small_config(), env)
    device, reflection = tf.distribute.get_strategy(), REFLECTIONS["MinitaurBulletEnv-v0"]
    found = make_update(reflecting, LAYOUT, device, reflection)(tf.constant(rows))
    expected = make_update(plain, LAYOUT, device)(tf.constant(by_hand))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_the_actor_takes_every_second_step_and_the_critics_take_all(small_config, env, random_rows):
    """Critics: TF-Agents' own `train` from the same state. Actor and α: still between two steps."""
    delayed = make_agent(small_config(actor_update_period=2), env)
    plain = make_agent(small_config(actor_update_period=1), env)
    update = make_update(delayed, LAYOUT, tf.distribute.get_strategy())
    train = tf.function(plain.train, autograph=False)
    first, *batches = (tf.constant(random_rows(32, seed)) for seed in range(7))
    update(first), train(unpack(first, LAYOUT))
    for number, rows in enumerate(batches, 1):
        for ours, theirs in zip(*map(agents.state_variables, (delayed, plain)), strict=True):
            theirs.assign(ours)
        before = numbers(delayed)
        losses, _ = update(rows)
        extra = train(unpack(rows, LAYOUT)).extra
        after, expected = numbers(delayed), numbers(plain)
        due = number % 2 == 0
        for name, values in after.items():
            still = not due and name in ("actor", "log alpha")
            wanted = before[name] if still else expected[name]
            np.testing.assert_allclose(values, wanted, rtol=1e-5, atol=1e-7, err_msg=name)
            assert np.array_equal(values, before[name]) == still, name
        assert float(losses[0]) == pytest.approx(float(extra.critic_loss), rel=1e-5)
        assert np.all((losses[1:3].numpy() != 0) == due)
    optimizers = (delayed._critic_optimizer, delayed._actor_optimizer, delayed._alpha_optimizer)
    assert [int(one.iterations) for one in optimizers] == [7, 4, 4]


def numbers(agent):
    """The weights of each network in one vector, and log α."""
    networks = {
        "actor": agent._actor_network,
        "critic 1": agent._critic_network_1,
        "critic 2": agent._critic_network_2,
        "target 1": agent._target_critic_network_1,
        "target 2": agent._target_critic_network_2,
    }
    found = {
        name: np.concatenate([v.numpy().ravel() for v in network.variables])
        for name, network in networks.items()
    }
    return {**found, "log alpha": agent._log_alpha.numpy()}


def windows(rows):
    """Rows as the trajectories `[batch, 2, …]` that TF-Agents' own table would hold."""
    observations = np.stack([rows[:, :28], rows[:, 38:]], axis=1)
    twice = [np.repeat(part[:, None], 2, axis=1) for part in (rows[:, 28:36], *rows[:, 36:38].T)]
    mid = np.ones((len(rows), 2), np.int32)
    parts = trajectory.Trajectory(mid, observations, twice[0], (), mid, *twice[1:])
    return tf.nest.map_structure(tf.constant, parts)


def test_several_steps_in_a_call_are_those_steps_one_by_one(small_config, env, random_rows):
    """Bit for bit; the losses are summed, log α is the last one."""
    batches = np.array([random_rows(32, seed) for seed in range(7)])
    one, many = make_agent(small_config(), env), make_agent(small_config(), env)
    update = make_update(one, LAYOUT, tf.distribute.get_strategy())
    found = [update(tf.constant(batch)) for batch in batches]
    update = make_update(many, LAYOUT, tf.distribute.get_strategy())
    update.get_concrete_function(tf.constant(batches[0]))
    steps, begun = make_steps(many, update, iter(tf.data.Dataset.from_tensor_slices(batches)))
    losses = [steps(3), steps(4)]
    assert int(begun) == 4
    np.testing.assert_array_equal(losses[1][1], found[-1][1])
    np.testing.assert_allclose(losses[0][0][:3], sum(f[0][:3] for f in found[:3]), rtol=1e-6)
    np.testing.assert_array_equal(losses[1][0][3], found[-1][0][3])


def test_discount_decides_whether_the_future_counts(small_config, env, random_rows):
    """A terminal transition's target is its scaled reward alone: computed by hand."""
    agent = make_agent(small_config(reward_scale_factor=20), env)
    rows = random_rows(32)
    rows[:, 37] = 0.0
    observation, action, reward = rows[:, :28], rows[:, 28:36], rows[:, 36]
    q = [
        net((observation, action), step_type=())[0].numpy()
        for net in (agent._critic_network_1, agent._critic_network_2)
    ]
    expected = 0.5 * np.mean((20 * reward - q[0]) ** 2 + (20 * reward - q[1]) ** 2)
    info = agent.loss(unpack(tf.constant(rows), LAYOUT))
    np.testing.assert_allclose(info.extra.critic_loss, expected, rtol=1e-5)


@pytest.mark.parametrize(("asked", "held"), [(None, -4.0), (-8, -8.0), ("1.5", 1.5)])
def test_the_temperature_aims_at_the_target_entropy(asked, held, small_config, env, random_rows):
    """Haarnoja et al. 2018b, equation 18, with log α in place of α: computed by hand."""
    agent = make_agent(small_config(target_entropy=asked), env)
    steps = unpack(tf.constant(random_rows(32)), LAYOUT).time_step
    loss = agent.alpha_loss(steps)  # draws the noise that the next line draws again
    log_pi = agent._actions_and_log_probs(steps)[1].numpy()
    np.testing.assert_allclose(loss, -4.0 * np.mean(-log_pi - held), rtol=1e-5)


def test_elsewhere_the_target_entropy_is_that_of_tf_agents(small_config):
    pendulum = make_environment("InvertedPendulumBulletEnv-v0", seed=0)
    agent = make_agent(small_config(env_name="InvertedPendulumBulletEnv-v0"), pendulum)
    assert agent._target_entropy == -0.5  # minus half the action's one dimension


def test_numpy_policy_is_the_agents_policy(small_config, env):
    agent = make_agent(small_config(), env)
    greedy = ActorPolicy(agent)
    observations = np.random.default_rng(0).normal(size=(16, 28)).astype(np.float32)
    distribution = agent.policy.distribution(time_step.restart(observations, 16), ()).action
    for index, observation in enumerate(observations):
        expected = distribution.mode()[index]
        np.testing.assert_allclose(greedy(observation), expected, rtol=1e-4, atol=1e-6)


def test_numpy_policy_samples_the_agents_distribution(small_config, env):
    agent = make_agent(small_config(), env)
    policy = ActorPolicy(agent, seed=1)
    observation = np.random.default_rng(0).normal(size=28).astype(np.float32)
    normal = agent.policy.distribution(
        time_step.restart(observation[None], 1), ()
    ).action.input_distribution
    drawn = np.arctanh(np.array([policy(observation) for _ in range(4_000)], np.float64))
    deviation = normal.stddev()[0].numpy()
    # Five standard errors: one false alarm in a million runs for each of 16 numbers.
    np.testing.assert_array_less(
        np.abs(drawn.mean(0) - normal.mean()[0]), 5 * deviation / np.sqrt(4_000)
    )
    np.testing.assert_array_less(np.abs(drawn.std(0) / deviation - 1), 5 / np.sqrt(2 * 4_000))
    again = ActorPolicy(agent, seed=1)
    np.testing.assert_allclose(again(observation), np.tanh(drawn[0]), atol=1e-6)


def test_learned_variables_make_another_agent_act_and_judge_alike(small_config, env):
    """Actor, critics and log α; `initialize` then makes the targets equal to the critics."""
    mine, theirs = (make_agent(small_config(seed=seed), env) for seed in (1, 2))
    mine._log_alpha.assign(-1.5)
    pairs = list(zip(agents.learned_variables(mine), agents.learned_variables(theirs), strict=True))
    for variable, copy in pairs:
        copy.assign(variable)
    for name in ("_actor_network", "_critic_network_1", "_critic_network_2"):
        for one, other in zip(
            getattr(mine, name).variables, getattr(theirs, name).variables, strict=True
        ):
            np.testing.assert_array_equal(one, other)
    assert float(theirs._log_alpha) == -1.5
    target, critic = theirs._target_critic_network_1, theirs._critic_network_1
    assert not np.array_equal(target.get_weights()[0], critic.get_weights()[0])
    theirs.initialize()
    np.testing.assert_array_equal(target.get_weights()[0], critic.get_weights()[0])


def test_policy_follows_new_weights(small_config, env, random_rows):
    agent = make_agent(small_config(), env)
    policy = ActorPolicy(agent)
    observation = np.ones(28, np.float32)
    before = policy(observation)
    update = make_update(agent, LAYOUT, tf.distribute.get_strategy())
    for seed in range(3):
        _, weights = update(tf.constant(random_rows(32, seed)))
    policy.set_weights(weights.numpy())
    assert not np.allclose(before, policy(observation), atol=1e-7)
    np.testing.assert_allclose(policy(observation), ActorPolicy(agent)(observation), rtol=1e-6)
