"""The Minitaur with fewer calls of the physics engine: the same numbers in less time.

pybullet's robot asks for each joint one by one, several times in a physics step. Here one call
reads all joints, another sets all torques, and an env step reads joints and base only once.
"""

import math
from typing import Any

import gym
import numpy as np
from pybullet_envs.bullet import minitaur, minitaur_gym_env

from labkit.environments.make import MINITAUR


def make() -> gym.Env:
    """The registered Minitaur, with its time limit, as a `BatchedMinitaurEnv`."""
    env = gym.spec(MINITAUR).make()
    raw: Any = env.unwrapped
    raw.__class__, raw.minitaur.__class__ = BatchedMinitaurEnv, BatchedMinitaur
    return env


class BatchedMinitaurEnv(minitaur_gym_env.MinitaurBulletEnv):
    """The environment, whose robot is a `BatchedMinitaur`."""

    _last_base_position: Any  # [3], metres

    def reset(self) -> np.ndarray:
        """As the parent's, which makes a new robot; returns the observation `[28]`."""
        observation = super().reset()
        self.minitaur.__class__ = BatchedMinitaur
        return observation

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        """As the parent's, for the action `[8]`; returns observation `[28]`, reward, done, info."""
        robot, client = self.minitaur, self._pybullet_client
        command = self._transform_action_to_motor_command(action)
        for _ in range(self._action_repeat):
            robot.ApplyAction(command)
            client.stepSimulation()
        self._env_step_counter += 1
        angles, velocities = robot.read_joints()
        position, orientation = client.getBasePositionAndOrientation(robot.quadruped)
        torques = robot.GetMotorTorques()
        before, self._last_base_position = self._last_base_position, position
        forward = position[0] - before[0]
        drift, shake = -abs(position[1] - before[1]), -abs(position[2] - before[2])
        energy = np.abs(np.dot(torques, velocities)) * self._time_step
        self._objectives.append([forward, energy, drift, shake])
        walked = self._distance_weight * forward - self._energy_weight * energy
        reward = walked + self._drift_weight * drift + self._shake_weight * shake
        up = client.getMatrixFromQuaternion(orientation)[6:]
        fallen = up[2] < 0.85 or position[2] < 0.13
        done = fallen or math.hypot(*position[:2]) > self._distance_limit
        observed = [*angles.tolist(), *velocities.tolist(), *torques.tolist(), *orientation]
        self._observation = observed
        return np.array(observed), reward, done, {}


class BatchedMinitaur(minitaur.Minitaur):
    """The robot; its joints are read and set in one call each."""

    def read_joints(self) -> tuple[np.ndarray, np.ndarray]:
        """Motor angles `[8]` in rad and velocities `[8]` in rad/s."""
        states = self._pybullet_client.getJointStates(self.quadruped, self._motor_id_list)
        angles, velocities, *_ = zip(*states, strict=True)
        direction = self._motor_direction
        return np.multiply(angles, direction), np.multiply(velocities, direction)

    def ApplyAction(self, motor_commands: Any) -> None:
        """Sets the torques of one substep, as the parent does for its accurate motor model."""
        to_torque, read = self._motor_model.convert_to_torque, self.read_joints()
        torques, self._observed_motor_torques = to_torque(motor_commands, *read)
        if self._motor_overheat_protection:
            limit = minitaur.OVERHEAT_SHUTDOWN_TIME / self.time_step
            for motor, torque in enumerate(torques.tolist()):
                hot = abs(torque) > minitaur.OVERHEAT_SHUTDOWN_TORQUE
                self._overheat_counter[motor] = self._overheat_counter[motor] + 1 if hot else 0
                if self._overheat_counter[motor] > limit:
                    self._motor_enabled_list[motor] = False
        self._applied_motor_torque = applied = np.multiply(torques, self._motor_direction)
        forces = np.where(self._motor_enabled_list, applied, 0.0).tolist()
        client, joints = self._pybullet_client, (self.quadruped, self._motor_id_list)
        client.setJointMotorControlArray(*joints, client.TORQUE_CONTROL, forces=forces)
