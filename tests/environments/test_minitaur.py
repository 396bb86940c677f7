"""The Minitaur with batched calls gives the numbers of pybullet's own, to the last bit."""

import gym
import numpy as np
import pytest
from pybullet_envs.bullet import minitaur

from labkit.environments.make import make_environment
from labkit.environments.minitaur import BatchedMinitaurEnv
from labkit.environments.seeding import raw_env

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
