"""Disturbances of the Minitaur, read back from the physics engine."""

import numpy as np
import pytest
from pybullet_envs.bullet.minitaur import FOOT_LINK_ID

from labkit.environments import disturbance
from labkit.environments.disturbance import NOISE_SCALE, Disturbance
from labkit.environments.make import MINITAUR, make_environment, raw_env

SEED = 3


def robot(env):
    return raw_env(env).minitaur


def reset(**fields):
    env = disturbance.make(Disturbance(**fields), seed=SEED)
    return env, env.reset().observation


def trajectory(env, steps=120):
    """Observations and rewards of random actions, through falls and resets."""
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, 8)).astype(np.float32)
    rows = [np.append(env.reset().observation, 0.0)]
    for action in actions:
        step = env.step(action)
        rows.append(np.append(step.observation, step.reward))
    return np.stack(rows)


@pytest.fixture(scope="module")
def plain():
    env = make_environment(MINITAUR, seed=SEED)
    return trajectory(env)


def base_mass(minitaur):
    """In kg, read from the physics engine."""
    return minitaur._pybullet_client.getDynamicsInfo(minitaur.quadruped, -1)[0]


def friction_of_feet(minitaur):
    """Coefficients `[8]`, read from the physics engine."""
    client = minitaur._pybullet_client
    return np.array([client.getDynamicsInfo(minitaur.quadruped, n)[1] for n in FOOT_LINK_ID])


def test_no_disturbance_is_bit_identical(plain):
    env = disturbance.make(Disturbance(), seed=SEED)
    np.testing.assert_array_equal(trajectory(env), plain)


def test_a_payload_adds_to_the_mass_that_each_reset_draws():
    env, _ = reset()
    light = base_mass(robot(env))
    loaded, _ = reset(payload_kg=2.5)
    assert base_mass(robot(loaded)) == pytest.approx(light + 2.5)
    env.reset(), loaded.reset()
    other = base_mass(robot(env))
    assert other != light, "the randomiser is off"
    assert base_mass(robot(loaded)) == pytest.approx(other + 2.5)


def test_friction_multiplies_what_was_drawn():
    env, _ = reset()
    icy, _ = reset(foot_friction=0.25)
    drawn = friction_of_feet(robot(env))
    assert ((drawn >= 0.8) & (drawn <= 1.5)).all()
    np.testing.assert_allclose(friction_of_feet(robot(icy)), 0.25 * drawn)


def test_motor_strength_multiplies_the_torque_and_not_its_reading():
    env, _ = reset()
    weak, _ = reset(motor_strength=0.5)
    asked = np.full(8, 2.0), np.full(8, 1.5), np.zeros(8)
    torque, reading = robot(env)._motor_model.convert_to_torque(*asked)
    half, same = robot(weak)._motor_model.convert_to_torque(*asked)
    np.testing.assert_allclose(half, 0.5 * torque)
    np.testing.assert_array_equal(same, reading)


def test_noise_has_the_given_size_and_does_not_touch_the_robot(plain):
    env = disturbance.make(Disturbance(observation_noise=0.1), seed=SEED)
    noisy = trajectory(env)
    np.testing.assert_array_equal(noisy[:, -1], plain[:, -1])  # the rewards
    noise = (noisy - plain)[:, :-1] / NOISE_SCALE
    assert noise.std() == pytest.approx(0.1, rel=0.05)
    assert abs(noise.mean()) < 0.01
    again = trajectory(disturbance.make(Disturbance(observation_noise=0.1), seed=SEED))
    np.testing.assert_array_equal(again, noisy)


def test_a_command_arrives_late_to_the_physics_step():
    env, _ = reset(control_latency_seconds=0.006)
    received, model = [], robot(env)._motor_model
    convert = model.convert_to_torque

    def spy(command, *rest):
        received.append(np.array(command))
        return convert(command, *rest)

    model.convert_to_torque = spy
    for value in (0.5, -0.5):
        env.step(np.full(8, value, np.float32))
    kinds = [tuple(command.round(3)) for command in received]
    assert len(kinds) == 10  # five physics steps of 2 ms in an env step
    assert kinds[:3] == [(round(np.pi / 2, 3),) * 8] * 3
    assert len({*kinds[3:8]}) == 1
    assert kinds[8] == kinds[9] not in kinds[:8]
