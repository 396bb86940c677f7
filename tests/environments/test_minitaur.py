"""The batched Minitaur equals pybullet's own to the last bit; a mirror image is physics, too."""

import itertools

import gym
import numpy as np
import pytest
from pybullet_envs.bullet import minitaur

from labkit.config import REFLECTIONS, SACConfig
from labkit.environments.make import make_environment, raw_env
from labkit.environments.minitaur import BatchedMinitaurEnv

NAME = "MinitaurBulletEnv-v0"
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


@pytest.mark.thorough
def test_motors_that_overheat_are_switched_off(monkeypatch):
    """A lower limit than the robot's, so that they do within these steps."""
    monkeypatch.setattr(minitaur, "OVERHEAT_SHUTDOWN_TORQUE", 2.0)
    monkeypatch.setattr(minitaur, "OVERHEAT_SHUTDOWN_TIME", 0.05)
    ours, _ = trajectory(NAME, 0)
    theirs, _ = trajectory(gym.spec(NAME).make, 0)
    np.testing.assert_array_equal(ours, theirs)
    fewer = np.diff(ours[:, -8:].sum(axis=1)) < 0
    assert fewer[ours[1:, 30] != 0].any(), "none was switched off in a step, only in a reset"


@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_bit_identical_through_falls_and_resets(seed):
    ours, first = trajectory(NAME, seed)
    theirs, reference = trajectory(gym.spec(NAME).make, seed)
    np.testing.assert_array_equal(first, reference)
    np.testing.assert_array_equal(ours, theirs)
    discounts, kinds = ours[:, 29], ours[:, 30]
    assert (discounts == 0).any(), "no fall"
    assert ((kinds == 2) & (discounts == 1)).any(), "no time limit"


def test_make_environment_takes_the_faster_one():
    assert isinstance(raw_env(make_environment(NAME)), BatchedMinitaurEnv)


# --- left and right swapped


def play(actions):
    """Observations `[steps, 28]` and rewards of an episode; the seed fixes the robot."""
    env = make_environment(NAME, seed=3)
    env.reset()
    steps = [env.step(action) for action in actions]
    assert not steps[-1].is_last()
    return np.array([s.observation for s in steps]), np.array([s.reward for s in steps])


def test_the_minitaur_answers_reflected_actions_with_reflected_observations():
    reflection, scale = REFLECTIONS[NAME], np.array(SACConfig().observation_scale)
    generator, actions = np.random.default_rng(5), np.zeros((20, 8), np.float32)
    for before, action in itertools.pairwise(actions):  # each leg moves slowly, in its own way
        action[:] = np.clip(0.8 * before + 0.3 * generator.normal(size=8), -1, 1)
    plain, rewards = play(actions)
    mirrored = actions[:, reflection.action_order] * reflection.action_signs
    other, other_rewards = play(mirrored.astype(np.float32))
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
