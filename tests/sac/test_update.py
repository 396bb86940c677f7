"""A gradient step of the agent: what it changes, what it depends on, what it returns."""

import numpy as np
import pytest
import tensorflow as tf
from library import learned_variables, unpack

from labkit.config import REFLECTIONS
from labkit.environments.make import make_environment
from labkit.errors import ParameterError
from labkit.replay.transitions import Layout
from labkit.sac import agent as agents
from labkit.sac.update import flat_weights, make_steps, make_update
from labkit.strategy import make_strategy

LAYOUT = Layout(28, 8)
DEVICE = tf.distribute.get_strategy()


def numbers(agent):
    """The weights of each network in one vector, and log α."""
    names = {
        "actor": "actor_network",
        "critic 1": "critic_network_1",
        "critic 2": "critic_network_2",
    }
    names |= {f"target {n}": f"target_critic_network_{n}" for n in (1, 2)}
    found = {name: getattr(agent, f"_{network}").variables for name, network in names.items()}
    flat = {n: np.concatenate([v.numpy().ravel() for v in found[n]]) for n in found}
    return {**flat, "log alpha": agent._log_alpha.numpy()}


def test_one_step_by_hand_with_plain_gradient_descent(make_agent, random_rows):
    """Weights move by −rate × gradient, targets by τ of the way to the new critics."""
    agent = make_agent(target_update_tau=0.25, actor_update_period=1)
    for name in ("_critic_optimizer", "_actor_optimizer", "_alpha_optimizer"):
        setattr(agent, name, tf.keras.optimizers.legacy.SGD(0.5))
    before = numbers(agent)
    metrics = make_update(agent, LAYOUT, DEVICE)(tf.constant(random_rows(32)))
    after = numbers(agent)
    for number in (1, 2):
        critic, target = after[f"critic {number}"], before[f"target {number}"]
        moved = target + 0.25 * (critic - target)
        np.testing.assert_allclose(after[f"target {number}"], moved, rtol=1e-5, atol=1e-6)
    # The gradient of the temperature is the entropy minus its target.
    expected = before["log alpha"] - 0.5 * (metrics["entropy"] - agent._target_entropy)
    np.testing.assert_allclose(after["log alpha"], expected, rtol=1e-5)
    np.testing.assert_allclose(metrics["alpha"], np.exp(after["log alpha"]), rtol=1e-6)
    assert agent.train_step_counter.numpy() == 1


def test_two_replicas_train_like_one_device(make_agent, random_rows):
    """Plain gradient descent: Adam would hide a wrong scale of the gradient."""
    weights, seen = [], []
    for strategy in (DEVICE, make_strategy("mirrored:2", 32)):
        agent = make_agent(strategy, actor_update_period=2, target_update_tau=0.1)
        with strategy.scope():
            for name, rate in (("critic", 0.05), ("actor", 0.05), ("alpha", 1e-3)):
                setattr(agent, f"_{name}_optimizer", tf.keras.optimizers.legacy.SGD(rate))
        before = numbers(agent)
        update = make_update(agent, LAYOUT, strategy)
        seen.append([update(tf.constant(random_rows(32, seed))) for seed in range(10)])
        weights.append(numbers(agent))
    one, two = weights
    for name, values in one.items():
        moved = np.linalg.norm(values - before[name])
        assert moved > 1e-4 * np.linalg.norm(values), name
        assert np.linalg.norm(two[name] - values) < 1e-3 * moved, name
    for ours, theirs in zip(*seen, strict=True):
        for name in ours:
            np.testing.assert_allclose(theirs[name], ours[name], rtol=1e-3, err_msg=name)


def test_the_actor_takes_every_second_step_and_the_critics_take_all(make_agent, random_rows):
    agent = make_agent(actor_update_period=2)
    update = make_update(agent, LAYOUT, DEVICE)
    for step in range(4):
        before = numbers(agent)
        metrics = update(tf.constant(random_rows(32, step)))
        after = numbers(agent)
        moved = {name: not np.array_equal(after[name], before[name]) for name in after}
        due = step % 2 == 0
        assert moved == {name: due or name not in ("actor", "log alpha") for name in after}
        missing = {name for name, value in metrics.items() if np.isnan(value)}
        assert missing == (set() if due else {"actor_loss", "alpha_loss", "entropy"})
    optimizers = [optimizer for optimizer, _ in agents.trained_by(agent)]
    assert [int(one.iterations) for one in optimizers] == [4, 2, 2]


def test_several_steps_in_a_call_are_those_steps_one_by_one(make_agent, random_rows):
    """Bit for bit. Each metric comes back as its sum and the number of steps that had it."""
    batches = np.array([random_rows(32, seed) for seed in range(7)])
    one, many = make_agent(actor_update_period=2), make_agent(actor_update_period=2)
    update = make_update(one, LAYOUT, DEVICE)
    found = [update(tf.constant(batch)) for batch in batches]
    dataset = tf.data.Dataset.from_tensor_slices((batches, np.zeros(7)))
    steps, started = make_steps(many, make_update(many, LAYOUT, DEVICE), iter(dataset))
    totals, _ = steps(3)
    np.testing.assert_allclose(
        totals["critic_loss"], [sum(one["critic_loss"] for one in found[:3]), 3], rtol=1e-6
    )
    expected = [found[0]["actor_loss"] + found[2]["actor_loss"], 2]
    np.testing.assert_allclose(totals["actor_loss"], expected, rtol=1e-6)
    _, weights = steps(4)
    assert int(started) == 4
    np.testing.assert_array_equal(weights, flat_weights(one))
    for name, values in numbers(one).items():
        np.testing.assert_array_equal(numbers(many)[name], values, err_msg=name)


def test_tf_agents_learner_trains_with_the_same_step(make_agent, random_rows):
    """`agent.train`, which TF-Agents' `Learner` calls, on TF-Agents' own transitions."""
    rows = tf.constant(random_rows(32))
    ours, theirs = (make_agent(actor_update_period=1) for _ in range(2))
    metrics = make_update(ours, LAYOUT, DEVICE)(rows)
    info = theirs.train(unpack(rows, LAYOUT))
    assert float(info.extra.critic_loss) == pytest.approx(float(metrics["critic_loss"]), rel=1e-5)
    np.testing.assert_allclose(flat_weights(ours), flat_weights(theirs), rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
def test_losses_depend_on_the_seed_and_on_nothing_else(make_agent, random_rows):
    batches = [tf.constant(random_rows(32, seed)) for seed in range(3)]

    def losses(seed):
        agent = make_agent(seed=seed)
        tf.random.normal([7])  # another draw of TensorFlow's generator
        update = make_update(agent, LAYOUT, DEVICE)
        return [float(update(batch)["critic_loss"]) for batch in batches]

    first = losses(7)
    assert first == losses(7)
    assert first[0] != losses(8)[0]


def test_noise_differs_by_step_draw_and_seed(make_agent):
    seen = set()
    for seed in (1, 2):
        agent = make_agent(seed=seed)
        for step in (0, 1):
            agent.train_step_counter.assign(step)
            for number in (agents.CRITIC_NOISE, agents.ACTOR_NOISE):
                seen.add(agent.noise(number, 4).numpy().tobytes())
    assert len(seen) == 8


def test_each_row_is_joined_by_its_reflection(make_agent, random_rows):
    """By hand: left and right legs change places, the rest of the row stays."""
    rows = random_rows(16)
    motors, legs = [5, 4, 7, 6, 1, 0, 3, 2], [2, 3, 0, 1]
    reflected = rows.copy()
    for first in (0, 38):  # the observation, the next observation
        for kind in (0, 8, 16):
            here = slice(first + kind, first + kind + 8)
            reflected[:, here] = rows[:, here][:, motors]
        reflected[:, [first + 24, first + 26]] *= -1
    for here in (slice(28, 32), slice(32, 36)):  # extension, swing
        reflected[:, here] = rows[:, here][:, legs]
    reflecting, plain = make_agent(), make_agent()
    reflection = REFLECTIONS["MinitaurBulletEnv-v0"]
    found = make_update(reflecting, LAYOUT, DEVICE, reflection)(tf.constant(rows))
    expected = make_update(plain, LAYOUT, DEVICE)(tf.constant(np.r_[rows, reflected]))
    assert float(found["critic_loss"]) == pytest.approx(float(expected["critic_loss"]), rel=1e-6)


@pytest.mark.parametrize("place", [36, 0])
def test_a_row_that_is_not_finite_is_named(make_agent, random_rows, place):
    rows = random_rows(32)
    rows[3, place] = np.nan
    update = make_update(make_agent(), LAYOUT, DEVICE)
    with pytest.raises(tf.errors.InvalidArgumentError, match="batch : Tensor had NaN"):
        update(tf.constant(rows))


def test_a_loss_that_is_not_finite_is_named(make_agent, random_rows):
    agent = make_agent()
    agent._log_alpha.assign(np.inf)
    with pytest.raises(tf.errors.InvalidArgumentError, match="critic loss : Tensor had"):
        make_update(agent, LAYOUT, DEVICE)(tf.constant(random_rows(32)))


def test_an_update_is_compiled_once(make_agent, random_rows, monkeypatch):
    """TensorFlow compiles a function twice if it creates variables, such as Adam's moments."""
    traced = []
    step = agents.SeededSacAgent.gradient_step
    monkeypatch.setattr(
        agents.SeededSacAgent, "gradient_step", lambda *a: traced.append(1) or step(*a)
    )
    update = make_update(make_agent(actor_update_period=1), LAYOUT, DEVICE)
    for seed in range(3):
        update(tf.constant(random_rows(32, seed)))
    assert len(traced) == 1


def test_the_learning_rate_is_half_after_the_decay_steps(small_config):
    decaying = agents._adam(1e-3, small_config(learning_rate_decay_steps=50))._learning_rate
    assert [float(decaying(t)) for t in (0, 50, 150)] == pytest.approx([1e-3, 5e-4, 2.5e-4])
    constant = agents._adam(1e-3, small_config(learning_rate_decay_steps=0))._learning_rate
    assert float(constant) == pytest.approx(1e-3)


@pytest.mark.parametrize(("asked", "used"), [(None, -4.0), (-8, -8.0), ("1.5", 1.5)])
def test_the_target_entropy_is_half_a_nat_less_for_each_motor(make_agent, asked, used):
    assert make_agent(target_entropy=asked)._target_entropy == used


def test_elsewhere_the_target_entropy_is_that_of_tf_agents(make_agent):
    name = "InvertedPendulumBulletEnv-v0"
    agent = make_agent(env=make_environment(name, seed=0), env_name=name)
    assert agent._target_entropy == -0.5  # minus half the action's one dimension


def test_a_scale_of_the_wrong_length_is_rejected(make_agent):
    with pytest.raises(ParameterError, match="28 numbers"):
        make_agent(observation_scale=(1.0, 2.0))


def test_learned_variables_make_another_agent_act_and_judge_alike(make_agent):
    """Actor, critics and log α; `initialize` then makes the targets equal to the critics."""
    mine, theirs = (make_agent(seed=seed) for seed in (1, 2))
    mine._log_alpha.assign(-1.5)
    pairs = zip(learned_variables(mine), learned_variables(theirs), strict=True)
    for variable, copy in pairs:
        copy.assign(variable)
    theirs.initialize()
    found, wanted = numbers(theirs), numbers(mine)
    for name, values in found.items():
        np.testing.assert_array_equal(values, wanted[name.replace("target", "critic")])
