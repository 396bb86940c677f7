"""The batched Minitaur equals pybullet's own to the last bit; a mirror image is physics, too."""

import gym
import numpy as np
import pytest
from pybullet_envs.bullet import minitaur

from labkit.config import SACConfig
from labkit.environments.make import make_environment, raw_env
from labkit.environments.minitaur import BatchedMinitaurEnv
from labkit.symmetry import REFLECTIONS

STEPS = 450


def actions(seed: int) -> np.ndarray:
    """Random ones, then one side of the robot only, so that it falls, then all at their limit."""
    draws = np.random.default_rng(seed).uniform(-1, 1, (STEPS, 8)).astype(np.float32)
    draws[150:300] = np.repeat([1.0, 1.0, -1.0, -1.0], 2)
    draws[300:] = np.where(np.arange(STEPS - 300)[:, None] % 120 < 110, 1.0, draws[300:])
    return draws


def trajectory(source, seed):
    """Observation, reward, discount, kind of step, position and enabled motors of each step."""
    env = make_environment(source, seed=seed, max_episode_steps=130)
    rows, raw = [env.reset().observation], raw_env(env)
    for action in actions(seed):
        step = env.step(action)  # after the end of an episode: a reset
        enabled = raw.minitaur._motor_enabled_list
        parts = (step.observation, step.reward, step.discount, step.step_type)
        rows.append(np.hstack([*parts, raw.minitaur.GetBasePosition(), enabled]))
    return np.vstack(rows[1:]), np.hstack([rows[0], np.ravel(raw.get_objectives())])


def test_motors_that_overheat_are_switched_off(monkeypatch):
    """A lower limit than the robot's, so that they do within these steps."""
    monkeypatch.setattr(minitaur, "OVERHEAT_SHUTDOWN_TORQUE", 2.0)
    monkeypatch.setattr(minitaur, "OVERHEAT_SHUTDOWN_TIME", 0.05)
    ours, _ = trajectory("MinitaurBulletEnv-v0", 0)
    theirs, _ = trajectory(gym.spec("MinitaurBulletEnv-v0").make, 0)
    np.testing.assert_array_equal(ours, theirs)
    fewer = np.diff(ours[:, -8:].sum(axis=1)) < 0
    assert fewer[ours[1:, 30] != 0].any(), "none was switched off in a step, only in a reset"


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_is_bit_identical_through_falls_and_resets(seed):
    ours, first = trajectory("MinitaurBulletEnv-v0", seed)
    theirs, reference = trajectory(gym.spec("MinitaurBulletEnv-v0").make, seed)
    np.testing.assert_array_equal(first, reference)
    np.testing.assert_array_equal(ours, theirs)
    discounts, kinds = ours[:, 29], ours[:, 30]
    assert (discounts == 0).any(), "no fall"
    assert ((kinds == 2) & (discounts == 1)).any(), "no time limit"


def test_make_environment_takes_the_faster_one():
    assert isinstance(raw_env(make_environment("MinitaurBulletEnv-v0")), BatchedMinitaurEnv)


# --- left and right swapped


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


def smooth_actions(count, steps=20):
    """Slowly changing actions `[steps, count] float32`, which move each leg in its own way."""
    generator, action = np.random.default_rng(5), np.zeros(count)
    found = []
    for _ in range(steps):
        action = np.clip(0.8 * action + 0.3 * generator.normal(size=count), -1, 1)
        found.append(action)
    return np.array(found, np.float32)


def test_the_minitaur_answers_reflected_actions_with_reflected_observations():
    name, scale = "MinitaurBulletEnv-v0", np.array(SACConfig().observation_scale)
    reflection, actions = REFLECTIONS[name], smooth_actions(8)
    plain, rewards = play(name, actions)
    mirrored = actions[:, reflection.action_order] * reflection.action_signs
    other, other_rewards = play(name, mirrored)
    reflected = plain[:, reflection.observation_order] * reflection.observation_signs
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
    reflection, actions = REFLECTIONS[name], smooth_actions(1)

    def begin(sign):
        return lambda env: setattr(env, "state", sign * np.array([0.7, -0.4]))

    plain, rewards = play(name, actions, begin(1))
    other, other_rewards = play(name, actions * reflection.action_signs, begin(-1))
    reflected = plain[:, reflection.observation_order] * reflection.observation_signs
    np.testing.assert_allclose(reflected[1:], other[1:], atol=1e-5)
    np.testing.assert_allclose(rewards, other_rewards, atol=1e-5)


@pytest.mark.parametrize("name", REFLECTIONS)
def test_a_row_reflected_twice_is_itself(name):
    order, signs = REFLECTIONS[name].of_row
    row = np.arange(1.0, len(order) + 1)
    once = row[order] * signs
    np.testing.assert_array_equal(once[order] * signs, row)
    reward = sum(REFLECTIONS[name].sizes)
    np.testing.assert_array_equal(once[[reward, reward + 1]], row[[reward, reward + 1]])
