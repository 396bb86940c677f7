"""Reflected actions give reflected observations, in the environments' own physics."""

import numpy as np
import pytest

from labkit.config import SACConfig
from labkit.environments.make import make_environment
from labkit.environments.seeding import raw_env
from labkit.errors import ParameterError
from labkit.symmetry import REFLECTIONS

STEPS = 20


def reflect(values, order, signs):
    return np.asarray(values)[..., order] * signs


def play(name, actions, begin=lambda env: None):
    """Observations `[steps + 1, obs]` and rewards of an episode; the seed fixes the robot."""
    env = make_environment(name, seed=3)
    observations, rewards = [env.reset().observation], []
    begin(raw_env(env))
    for action in actions:
        step = env.step(action)
        assert not step.is_last()
        observations.append(step.observation)
        rewards.append(step.reward)
    return np.array(observations), np.array(rewards)


def smooth_actions(count):
    """Slowly changing actions `[steps, count] float32`, which move each leg in its own way."""
    generator, action = np.random.default_rng(5), np.zeros(count)
    found = []
    for _ in range(STEPS):
        action = np.clip(0.8 * action + 0.3 * generator.normal(size=count), -1, 1)
        found.append(action)
    return np.array(found, np.float32)


def test_the_minitaur_answers_reflected_actions_with_reflected_observations():
    name, scale = "MinitaurBulletEnv-v0", np.array(SACConfig().observation_scale)
    observation_order, observation_signs, action_order, action_signs = REFLECTIONS[name]
    actions = smooth_actions(8)
    plain, rewards = play(name, actions)
    other, other_rewards = play(name, reflect(actions, action_order, action_signs))
    reflected = reflect(plain, observation_order, observation_signs)
    # The engine solves contacts one after another, so the two drift apart slowly.
    expected, unlike = (
        np.abs((values - other) / scale).mean(axis=0) for values in (reflected, plain)
    )
    assert expected.max() < 0.15
    assert np.abs(plain[:, 25]).mean() / scale[25] > 3 * expected[25], "its sign is not seen"
    moving = [*range(24), 24, 26]  # y and w of the quaternion stay as they are
    assert (unlike[moving] > 3 * expected[moving]).all()
    np.testing.assert_allclose(rewards, other_rewards, atol=2e-3)
    assert np.ptp(rewards) > 2e-3


def test_the_pendulum_answers_a_reflected_torque_with_the_reflected_swing():
    name = "Pendulum-v1"
    observation_order, observation_signs, action_order, action_signs = REFLECTIONS[name]
    actions = smooth_actions(1)

    def begin(sign):
        return lambda env: setattr(env, "state", sign * np.array([0.7, -0.4]))

    plain, rewards = play(name, actions, begin(1))
    other, other_rewards = play(name, reflect(actions, action_order, action_signs), begin(-1))
    reflected = reflect(plain, observation_order, observation_signs)
    np.testing.assert_allclose(reflected[1:], other[1:], atol=1e-5)
    np.testing.assert_allclose(rewards, other_rewards, atol=1e-5)


@pytest.mark.parametrize("name", REFLECTIONS)
def test_a_row_reflected_twice_is_itself(name):
    reflection = REFLECTIONS[name]
    order, signs = reflection.of_row
    row = np.arange(1.0, len(order) + 1)
    once = reflect(row, order, signs)
    np.testing.assert_array_equal(reflect(once, order, signs), row)
    reward = len(reflection.observation_order) + len(reflection.action_order)
    np.testing.assert_array_equal(once[[reward, reward + 1]], row[[reward, reward + 1]])


def test_without_a_known_reflection_the_parameter_must_be_false():
    expected = "`symmetry_augmentation` must be False for HalfCheetahBulletEnv-v0: .*, got True"
    with pytest.raises(ParameterError, match=expected):
        SACConfig(env_name="HalfCheetahBulletEnv-v0", symmetry_augmentation=True)
