"""Every hyperparameter of Soft Actor-Critic, with its type, unit and range; without TensorFlow."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import attrs
import numpy as np

from labkit.parameters import MANY, grouped, integer, invalid, numbers, real, switch, text, unknown

MINITAUR_NAME = "MinitaurBulletEnv-v0"


class Reflection(NamedTuple):
    """What an observation and an action become if left and right are swapped.

    Mishra et al. (2019), "Augmenting Learning Using Symmetry in a Biologically-Inspired Domain",
    train a quadruped off-policy on transitions and on their reflections, whose reward is the same.
    Here each gradient step adds them to what it draws: the replay table holds only real ones.
    """

    # Number i of the reflection is signs[i] times number order[i].
    observation_order: tuple[int, ...]  # [obs]
    observation_signs: tuple[int, ...]  # [obs], each 1 or -1
    action_order: tuple[int, ...]  # [act]
    action_signs: tuple[int, ...]  # [act]

    @property
    def of_row(self) -> tuple[np.ndarray, np.ndarray]:
        """Order `[width] int32` and signs `[width] float32` of a row; see `transitions.Layout`."""
        observation, action = np.array(self.observation_order), np.array(self.action_order)
        size, reward = len(observation), len(observation) + len(action)
        order = np.r_[observation, size + action, reward, reward + 1, reward + 2 + observation]
        signs = np.r_[self.observation_signs, self.action_signs, 1, 1, self.observation_signs]
        return order.astype(np.int32), signs.astype(np.float32)


# The legs are front left, back left, front right, back right. Each has a left and a right motor;
# the left motor of a left leg corresponds to the right motor of the right leg. An action has the
# extension of each leg, then its swing. The attitude is a quaternion x, y, z, w: in a mirror,
# rotations about the forward axis x and the vertical axis z change their direction.
_MOTORS = (5, 4, 7, 6, 1, 0, 3, 2)
_SENSORS = tuple(8 * kind + motor for kind in range(3) for motor in _MOTORS)  # of the motors
REFLECTIONS = {
    MINITAUR_NAME: Reflection(
        observation_order=(*_SENSORS, 24, 25, 26, 27),
        observation_signs=(*(1,) * 24, -1, 1, -1, 1),
        action_order=(2, 3, 0, 1, 6, 7, 4, 5),
        action_signs=(1,) * 8,
    ),
    # cos θ, sin θ and the angular velocity; the torque.
    "Pendulum-v1": Reflection((0, 1, 2), (1, -1, -1), (0,), (-1,)),
}
# What differs from the defaults below for the Minitaur, whose reward is about 0.02 a step when it
# walks. results/README.md has the ablation of each choice.
MINITAUR: dict[str, Any] = {
    "reward_scale_factor": 20.0,  # else the entropy bonus drowns the reward
    "initial_log_alpha": -4.0,  # for the same reason
    "target_entropy": -4.0,  # −0.5 nats for each of eight motors, as in TF-Agents
    "gamma": 0.995,  # with 0.99, a termination costs only the rewards of one second
    "recent_transitions": 20_000,  # n-step rewards of an old policy mislead: newest 200 seconds
    "symmetry_augmentation": True,  # the robot is the same in a mirror
    "n_step": 5,  # a reward of 50 ms carries more signal than one of 10 ms
    "critic_learning_rate": 1e-3,
    "actor_learning_rate": 1e-3,
    "alpha_learning_rate": 1e-3,
    "learning_rate_decay_steps": 20_000,
    "actor_update_period": 2,
    "critic_layer_norm": True,  # overestimates unseen actions less
    # Standard deviations under random actions: 13 rad/s for motor velocities, 0.3 rad for angles,
    # 0.02 to 0.09 for the tilt in the quaternion. The divisors bring them to a similar size.
    "observation_scale": (1.0,) * 8 + (20.0,) * 8 + (5.7,) * 8 + (0.15,) * 3 + (1.0,),
}
# These do not change what is learned: a run may be resumed with other values.
FREE_TO_CHANGE = ("strategy", "checkpoint_interval", "checkpoint_seconds", "environment_timeout")
STRATEGIES = "'auto', 'cpu', 'gpu', 'mirrored' or 'mirrored:N' with N from 1 to 64"
STRATEGY_PATTERN = r"auto|cpu|gpu|mirrored(:([1-9]|[1-5]\d|6[0-4]))?"
LAYERS = (8, 1, 16_384, "units of each layer")


@attrs.frozen(kw_only=True)
class SACConfig:
    """Soft Actor-Critic on one environment. Names follow the TF-Agents SAC tutorial.

    A parameter that is not given, or None, has the default below; for the Minitaur, that of
    `MINITAUR`. A whole float is accepted for an integer (papermill passes `1e6` as `1000000.0`),
    and so is a number or tuple as text. The first field that is not allowed is rejected.
    """

    # Run
    env_name: str = text(MINITAUR_NAME, r"\S+", "the id of a Gym environment, or gymnasium:Id")
    num_iterations: int = integer(100_000, 1, MANY, "gradient steps")
    seed: int = integer(0, 0, 2**31 - 1, "seed of every generator that labkit seeds")
    strategy: str = text("auto", STRATEGY_PATTERN, STRATEGIES)
    # Collection and replay
    initial_collect_steps: int = integer(5_000, 1, MANY, "env steps of warm-up")
    collect_steps_per_iteration: int = integer(1, 1, 10_000, "env steps per gradient step")
    n_step: int = integer(1, 1, 100, "env steps whose rewards a transition sums")
    bootstrap_time_limits: bool = switch(True, "a time limit truncates, it does not terminate")
    replay: str = text("reverb", "reverb|tf_uniform", "'reverb' or 'tf_uniform'")
    replay_buffer_capacity: int = integer(1_000_000, 1, 100_000_000, "transitions")
    recent_transitions: int = integer(0, 0, 100_000_000, "newest ones, half of each draw; 0: none")
    symmetry_augmentation: bool = switch(False, "half of each batch mirrors the other")
    batch_size: int = integer(256, 1, 1_000_000, "transitions, over all replicas")
    steps_per_call: int = integer(10, 1, 1_000, "gradient steps in one TensorFlow call")
    # Loss and optimizers
    critic_learning_rate: float = real(3e-4, 0, 1, "Adam step size", above=True)
    actor_learning_rate: float = real(3e-4, 0, 1, "Adam step size", above=True)
    alpha_learning_rate: float = real(3e-4, 0, 1, "Adam step size", above=True)
    # Steps of an optimizer that halve its learning rate
    learning_rate_decay_steps: int = integer(0, 0, MANY, "steps, 0 for no decay")
    actor_update_period: int = integer(1, 1, 1_000, "steps of the critics for each of the actor")
    target_update_tau: float = real(0.005, 0, 1, "share of the new weights", above=True)
    target_update_period: int = integer(1, 1, 1_000_000, "gradient steps")
    gamma: float = real(0.99, 0, 1, "discount per env step")
    reward_scale_factor: float = real(1.0, 0, 1e6, "factor", above=True)
    initial_log_alpha: float = real(0.0, -20, 20, "natural log of the temperature")
    # None: −0.5 nats for each dimension of the action, as in TF-Agents
    target_entropy: float | None = real(None, -1e6, 1e6, "nats")
    # Networks
    # Divisor of each observation; empty: as they are
    observation_scale: tuple[float, ...] = numbers((), 100_000, 1e-9, 1e9, "divisors")
    actor_fc_layer_params: tuple[int, ...] = numbers((256, 256), *LAYERS, whole=True)
    critic_joint_fc_layer_params: tuple[int, ...] = numbers((256, 256), *LAYERS, whole=True)
    # Removes the scale of a layer's input: harmless with 36 inputs, not with one or two
    critic_layer_norm: bool = switch(False, "normalise each hidden layer of the critics")
    # Logging and evaluation; an interval of 0 means only after the last gradient step
    log_interval: int = integer(1_000, 0, MANY, "gradient steps")
    eval_interval: int = integer(10_000, 0, MANY, "gradient steps")
    interim_eval_episodes: int = integer(5, 1, 10_000, "episodes")
    num_eval_episodes: int = integer(20, 1, 10_000, "episodes")
    policy_save_interval: int = integer(5_000, 0, MANY, "gradient steps")
    checkpoint_interval: int = integer(0, 0, MANY, "gradient steps")
    checkpoint_seconds: int = integer(300, 0, MANY, "seconds")
    environment_timeout: int = integer(300, 0, MANY, "seconds for one env step or reset")

    def defaults(self) -> Mapping[str, Any]:
        """The values of fields that are left open, where they differ from those above."""
        return MINITAUR if getattr(self, "env_name", None) == MINITAUR_NAME else {}

    def __attrs_post_init__(self) -> None:
        if self.replay_buffer_capacity < self.batch_size:
            allowed = f"at least `batch_size` = {grouped(self.batch_size)} (transitions)"
            raise invalid("replay_buffer_capacity", self.replay_buffer_capacity, allowed)
        if self.symmetry_augmentation and self.env_name not in REFLECTIONS:
            known = " and ".join(REFLECTIONS)
            allowed = f"False for {self.env_name}: labkit has the reflection of {known} only"
            raise invalid("symmetry_augmentation", True, allowed)
        if self.symmetry_augmentation and self.batch_size % 2:
            raise invalid("batch_size", self.batch_size, "even with `symmetry_augmentation`")

    @property
    def rows_drawn(self) -> int:
        """Transitions that a gradient step draws; with their reflections, if any, a batch."""
        return self.batch_size // 2 if self.symmetry_augmentation else self.batch_size

    @property
    def reflection(self) -> Reflection | None:
        """What `symmetry_augmentation` adds to each row that is drawn; None without it."""
        return REFLECTIONS[self.env_name] if self.symmetry_augmentation else None

    @classmethod
    def names(cls) -> list[str]:
        """The names of all fields, in order."""
        return [field.name for field in attrs.fields(cls)]

    @classmethod
    def parse(cls, parameters: Mapping[str, Any]) -> "SACConfig":
        """Checks parameters of a file or a command line; unknown names are rejected, too."""
        if not isinstance(parameters, Mapping):
            raise invalid("parameters", parameters, "a dictionary from names to values")
        for name in parameters:
            if name not in cls.names():
                raise unknown(name, cls.names())
        return cls(**parameters)


def check_config(config: Any) -> None:
    """Rejects anything but a configuration, for example a dictionary of parameters."""
    if not isinstance(config, SACConfig):
        raise invalid("config", config, "an SACConfig, such as SACConfig.parse({'gamma': 0.98})")
