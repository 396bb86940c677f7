"""Time limits, seeds and isolation of environments."""

import random

import gym
import numpy as np
import pytest

from labkit.environments.make import check_specs, make_environment
from labkit.environments.physics import step_seconds
from labkit.errors import ParameterError

NAME = "MinitaurBulletEnv-v0"


def play(env, action, steps=2_000):
    step = env.reset()
    for _ in range(steps):
        step = env.step(action(step))
        if step.is_last():
            return step
    raise AssertionError("the episode did not end")


def test_minitaur_time_limit_truncates():
    env = make_environment("MinitaurBulletEnv-v0", seed=0, max_episode_steps=50)
    step = play(env, lambda s: np.zeros(8, np.float32))  # it stands still
    assert step.is_last()
    assert step.discount == 1.0
    assert step_seconds(env) == pytest.approx(0.01)


def test_minitaur_registered_limit():
    assert make_environment("MinitaurBulletEnv-v0").max_episode_steps == 1_000


def test_minitaur_fall_terminates():
    env = make_environment("MinitaurBulletEnv-v0", seed=0)
    generator = np.random.default_rng(0)
    step = play(env, lambda s: generator.uniform(-1, 1, 8).astype(np.float32))
    assert step.discount == 0.0


def balance(step):
    """Keeps CartPole's pole up for far more than 200 steps."""
    position, speed, angle, turning = step.observation
    return np.array(int(angle + 0.5 * turning + 0.02 * position + 0.1 * speed > 0))


def test_cartpole_truncation_and_termination():
    env = make_environment("CartPole-v0", seed=0)
    assert play(env, balance).discount == 1.0
    assert play(env, lambda s: np.array(0)).discount == 0.0


def test_lunar_lander_truncation_and_termination():
    env = make_environment("LunarLanderContinuous-v2", seed=0, max_episode_steps=20)
    assert play(env, lambda s: np.zeros(2, np.float32)).discount == 1.0
    env = make_environment("LunarLanderContinuous-v2", seed=0)
    assert env.max_episode_steps == 1_000
    assert play(env, lambda s: np.zeros(2, np.float32)).discount == 0.0


def test_a_time_limit_terminates_where_that_is_configured():
    """As gym's own time limit has it: at the registered one, and at another."""
    still = lambda step: np.zeros(8, np.float32)  # noqa: E731
    assert play(make_environment(NAME, seed=0, bootstrap_time_limits=False), still).discount == 0.0
    with pytest.raises(ParameterError, match="`bootstrap_time_limits` must be True or False"):
        make_environment(NAME, seed=0, bootstrap_time_limits="no")
    shorter = make_environment(NAME, seed=0, max_episode_steps=50, bootstrap_time_limits=False)
    step, taken = shorter.reset(), 0
    while not step.is_last():
        step, taken = shorter.step(still(step)), taken + 1
    assert (taken, step.discount) == (50, 0.0)
    assert not shorter.reset().is_last()


def rollout(env, steps=60):
    generator = np.random.default_rng(5)
    step, seen = env.reset(), []
    for _ in range(steps):
        seen.append(step.observation)
        step = env.step(generator.uniform(-1, 1, 8).astype(np.float32))
    return np.array(seen)


def test_same_seed_same_episodes_whatever_else_draws():
    first = make_environment("MinitaurBulletEnv-v0", seed=3)
    second = make_environment("MinitaurBulletEnv-v0", seed=3)
    other = make_environment("MinitaurBulletEnv-v0", seed=4)
    expected = [rollout(first), rollout(first)]
    rollout(other)
    random.random()
    np.random.rand(7)
    got = [rollout(second), rollout(second)]
    np.testing.assert_array_equal(expected, got)
    assert not np.array_equal(expected[0], rollout(other))


def test_environment_leaves_global_generators_alone():
    random.seed(1)
    np.random.seed(1)
    expected = random.random(), np.random.rand()
    random.seed(1)
    np.random.seed(1)
    rollout(make_environment("MinitaurBulletEnv-v0", seed=3))
    assert (random.random(), np.random.rand()) == expected


class Corridor(gym.Env):
    """A user's own environment: walk right, pays 1 a step."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self):
        self.place = 0.0
        return np.array([self.place, np.random.rand()], np.float32)

    def step(self, action):
        self.place += 0.1 * float(action[0])
        return np.array([self.place, 0.0], np.float32), 1.0, self.place > 0.9, {}


def test_own_environment_in_one_line():
    env = make_environment(Corridor, seed=0, max_episode_steps=30)
    check_specs(env)
    assert play(env, lambda s: np.zeros(1, np.float32)).discount == 1.0
    assert play(env, lambda s: np.ones(1, np.float32)).discount == 0.0
    again = make_environment(Corridor, seed=0)
    assert make_environment(Corridor, seed=0).reset().observation[1] == again.reset().observation[1]


@pytest.mark.parametrize("name", ["HalfCheetahBulletEnv-v0", "InvertedPendulumBulletEnv-v0"])
def test_other_pybullet_environments(name, capfd):
    env = make_environment(name, seed=0)
    first = env.reset().observation
    assert np.array_equal(first, make_environment(name, seed=0).reset().observation)
    assert step_seconds(env) == pytest.approx(0.0165)
    assert capfd.readouterr() == ("", "")  # native code prints past Python


def test_an_env_step_of_the_pendulum_takes_its_own_dt():
    """Its metadata have 30 frames a second, but a step takes 50 ms."""
    assert step_seconds(make_environment("Pendulum-v1")) == pytest.approx(0.05)


def test_discrete_actions_are_rejected_by_name():
    with pytest.raises(
        ParameterError, match=r"^`env_name` must be .* actions of shape .*, got 'CartPole-v0'"
    ):
        check_specs(make_environment("CartPole-v0"))


def test_environment_that_cannot_be_made_here():
    with pytest.raises(ParameterError, match=r"mujoco.*, got 'HalfCheetah-v2'"):
        make_environment("HalfCheetah-v2")


class Unmakeable(gym.Env):
    def __init__(self):
        raise TypeError("descriptors cannot be\ncreated directly")


gym.register("LabkitUnmakeable-v0", entry_point=Unmakeable)


def test_a_registered_environment_whose_constructor_fails_is_one_line():
    """PyBullet registers several that need an older protobuf."""
    with pytest.raises(ParameterError) as caught:
        make_environment("LabkitUnmakeable-v0")
    allowed = "an environment that works here (descriptors cannot be)"
    assert str(caught.value) == f"`env_name` must be {allowed}, got 'LabkitUnmakeable-v0'"


def test_an_error_of_the_user_s_own_constructor_is_shown_whole():
    with pytest.raises(TypeError, match="created directly"):
        make_environment(Unmakeable)
