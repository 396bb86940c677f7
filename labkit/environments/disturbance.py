"""The Minitaur with disturbances: a payload, ice, weak motors, noisy sensors, late commands.

The environment's own randomizer still draws masses, friction, battery voltage and motor damping at
each reset, and a disturbance changes what was drawn. A seed gives the same robot each time.
"""

from collections import deque
from typing import TYPE_CHECKING, Any

import attrs
import gym
import numpy as np

from labkit.environments.make import MINITAUR, constructor, make_environment
from labkit.parameters import real

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

# Observation noise 1 has these standard deviations: rad, rad/s, N m, and none for the quaternion.
NOISE_SCALE = np.repeat([3.14, 20.0, 5.7, 1.0], [8, 8, 8, 4])  # [28]
BASE_LINK, FOOT_LINK = -1, 3  # of the engine; all feet have the same friction


@attrs.frozen
class Disturbance:
    """What is different about the robot; the defaults change nothing.

    The battery voltage and the motors' damping stay as drawn. Neither reward nor termination
    depends on the noise. The latency is rounded to physics steps of 2 ms; until the first command
    of an episode arrives, the robot has the command to stand. A value out of range is rejected.
    """

    payload_kg: float = real(0.0, 0, 20, "kg on the base")
    foot_friction: float = real(1.0, 0, 5, "factor on the friction of the feet; 1 is unchanged")
    motor_strength: float = real(1.0, 0, 5, "factor on the torque of the motors; 1 is unchanged")
    observation_noise: float = real(0.0, 0, 1, "standard deviation, share of each sensor's scale")
    control_latency_seconds: float = real(0.0, 0, 0.5, "seconds until a command arrives")


def make(disturbance: Disturbance, seed: int | None = None) -> "PyEnvironment":
    """The registered Minitaur with a disturbance, as `make_environment` makes it without one."""
    return make_environment(lambda: DisturbedMinitaur(disturbance), seed=seed)


class DisturbedMinitaur(gym.Wrapper):
    """The registered Minitaur; each reset applies the disturbance before the robot is set down."""

    def __init__(self, disturbance: Disturbance):
        super().__init__(constructor(MINITAUR)())
        self.disturbance, raw = disturbance, self.unwrapped
        self._randomizer = raw._env_randomizer
        raw.set_env_randomizer(self)
        self._late_steps = round(disturbance.control_latency_seconds / raw._time_step)
        self._noise = np.random.default_rng()

    def randomize_env(self, env: Any) -> None:
        """Draws masses and friction in each reset of the environment, and then changes them."""
        self._randomizer.randomize_env(env)
        given, robot, motors = self.disturbance, env.minitaur, env.minitaur._motor_model
        client, body = robot._pybullet_client, robot.quadruped
        if given.payload_kg:
            robot.SetBaseMass(client.getDynamicsInfo(body, BASE_LINK)[0] + given.payload_kg)
        if given.foot_friction != 1:
            drawn = client.getDynamicsInfo(body, FOOT_LINK)[1]
            robot.SetFootFriction(drawn * given.foot_friction)
        if given.motor_strength != 1:
            motors._torque_table = [one * given.motor_strength for one in motors._torque_table]

    def seed(self, seed: int | None = None) -> Any:
        """Seeds the observation noise, which has its own generator, and the environment."""
        self._noise = np.random.default_rng(seed)
        return self.env.seed(seed)

    def reset(self, **kwargs: Any) -> np.ndarray:
        """The first observation `[28]` of an episode."""
        observation = self.env.reset(**kwargs)
        if self._late_steps:
            robot: Any = self.unwrapped.minitaur  # a new one after each reset
            stand = [np.pi / 2] * robot.num_motors  # the command of the environment's own reset
            waiting, apply = deque([stand] * self._late_steps), robot.ApplyAction

            def late(command: Any) -> None:
                waiting.append(command)
                apply(waiting.popleft())

            robot.ApplyAction = late
        return self._noisy(observation)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        """Observation `[28]`, reward, done, info for the action `[8]`."""
        observation, *others = self.env.step(action)
        return self._noisy(observation), *others

    def _noisy(self, observation: np.ndarray) -> np.ndarray:
        scale = self.disturbance.observation_noise * NOISE_SCALE
        return observation + self._noise.normal(scale=scale)
