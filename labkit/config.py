"""Every hyperparameter of Soft Actor-Critic, with its type, unit and range.

This module imports no TensorFlow, so that a wrong value is rejected before any work starts.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from labkit import parameters as checks
from labkit.parameters import MANY, integer, numbers, real, switch, text, unknown
from labkit.symmetry import REFLECTIONS, Reflection

# Values that are tuned to one environment. `labkit.train` rejects them if `make_env` returns
# another environment under this name. The Minitaur's reward is about 0.02 a step
# when it walks, so that at log α = 0 the entropy bonus drowns it. Under random actions, motor
# velocities have a standard deviation of 13 rad/s, motor angles of 0.3 rad, and the tilt, in a
# quaternion, of 0.02 to 0.09: the divisors of `observation_scale` bring them to a similar size. The
# rewards of five steps of 10 ms carry more signal than a single one. With a discount of 0.99, all
# later rewards together weigh as much as those of one second, so a termination costs only about
# that. Nothing corrects the rewards of five steps for a later policy, so half of each batch comes
# from the newest 200 seconds. results/minitaur/README.md has the reason for each, and the runs so
# far.
TUNED: dict[str, dict[str, Any]] = {
    "MinitaurBulletEnv-v0": {
        "reward_scale_factor": 20.0,
        "initial_log_alpha": -4.0,
        "target_entropy": -4.0,  # −0.5 nats for each of eight motors, as in TF-Agents
        "gamma": 0.995,
        "initial_collect_steps": 5_000,
        "recent_transitions": 20_000,
        "symmetry_augmentation": True,
        "n_step": 5,
        "critic_learning_rate": 1e-3,
        "actor_learning_rate": 1e-3,
        "alpha_learning_rate": 1e-3,
        "learning_rate_decay_steps": 20_000,
        "actor_update_period": 2,
        "critic_layer_norm": True,
        "observation_scale": (1.0,) * 8 + (20.0,) * 8 + (5.7,) * 8 + (0.15,) * 3 + (1.0,),
    }
}
UNTUNED: dict[str, Any] = {
    "reward_scale_factor": 1.0,
    "initial_log_alpha": 0.0,
    "target_entropy": None,  # −0.5 nats for each dimension of the action
    "gamma": 0.99,
    "initial_collect_steps": 10_000,
    "recent_transitions": 0,  # each batch is drawn from all transitions alike
    "symmetry_augmentation": False,
    "n_step": 1,
    "critic_learning_rate": 3e-4,
    "actor_learning_rate": 3e-4,
    "alpha_learning_rate": 3e-4,
    "learning_rate_decay_steps": 0,
    "actor_update_period": 1,
    # Off elsewhere: normalising a layer before its bias removes the scale of its input. This does
    # no harm with 36 inputs, but does with one or two.
    "critic_layer_norm": False,
    "observation_scale": (),  # empty: observations are used as they are
}
# Fields that the runs of earlier versions lack, with the values that those versions used.
# `ADDED_IN` has the values that they used in one environment only.
ADDED: dict[str, Any] = {
    "actor_update_period": 1,
    "learning_rate_decay_steps": 0,
    "recent_transitions": 0,
    "symmetry_augmentation": False,
}
ADDED_IN: dict[str, dict[str, Any]] = {"MinitaurBulletEnv-v0": {"target_entropy": -4.0}}
# These do not change what is learned: a run may be resumed with other values.
FREE_TO_CHANGE = ("strategy", "checkpoint_interval", "checkpoint_seconds", "environment_timeout")
STRATEGIES = "'auto', 'cpu', 'gpu', 'tpu', 'mirrored' or 'mirrored:N' with N from 1 to 64"
STRATEGY_PATTERN = r"auto|cpu|gpu|tpu|mirrored(:([1-9]|[1-5]\d|6[0-4]))?"


def _of_environment(config: "SACConfig", name: str) -> Any:
    """The value of a field that was left open: the default of the environment."""
    return TUNED.get(config.env_name, UNTUNED)[name]


def check_config(config: Any) -> None:
    """Rejects anything but a configuration, for example a dictionary of parameters.

    Raises:
        ParameterError: says what to pass.
    """
    if not isinstance(config, SACConfig):
        allowed = "an SACConfig, such as SACConfig.parse({'gamma': 0.98})"
        raise checks.invalid("config", config, allowed)


_OPEN: dict[str, Any] = {"when_none": _of_environment}


@attrs.frozen(kw_only=True)
class SACConfig:
    """Soft Actor-Critic on one environment. Names follow the TF-Agents SAC tutorial.

    The annotations give the types after checking. At run time a field also accepts a whole float
    (papermill passes `1e6` as `1000000.0`) and a number or tuple as text; a field whose default
    is None also accepts None, which becomes the value that `TUNED` has for the environment.

    Raises:
        ParameterError: for the first field that is not allowed, in the order below.
    """

    # Run
    env_name: str = text(
        "MinitaurBulletEnv-v0", r"\S+", "the id of a Gym environment, or gymnasium:Id", "Gym id"
    )
    num_iterations: int = integer(100_000, 1, MANY, "gradient steps")
    seed: int = integer(0, 0, 2**31 - 1, "seed of every generator that labkit seeds")
    strategy: str = text("auto", STRATEGY_PATTERN, STRATEGIES, "name")
    # Collection and replay
    initial_collect_steps: int = integer(None, 1, MANY, "env steps of warm-up", **_OPEN)
    collect_steps_per_iteration: int = integer(1, 1, 10_000, "env steps per gradient step")
    n_step: int = integer(None, 1, 100, "env steps whose rewards a transition sums", **_OPEN)
    bootstrap_time_limits: bool = switch(True, "a time limit truncates, it does not terminate")
    replay: str = text("reverb", "reverb|tf_uniform", "'reverb' or 'tf_uniform'", "name")
    replay_buffer_capacity: int = integer(1_000_000, 1, 100_000_000, "transitions")
    recent_transitions: int = integer(
        None, 0, 100_000_000, "newest transitions that give half of each batch", **_OPEN
    )
    symmetry_augmentation: bool = switch(
        None, "half of each batch is reflected: left and right are swapped", **_OPEN
    )
    batch_size: int = integer(256, 1, 1_000_000, "transitions, over all replicas")
    steps_per_call: int = integer(10, 1, 1_000, "gradient steps in one TensorFlow call")
    # Loss and optimizers
    critic_learning_rate: float = real(None, 0, 1, "Adam step size", above=True, **_OPEN)
    actor_learning_rate: float = real(None, 0, 1, "Adam step size", above=True, **_OPEN)
    alpha_learning_rate: float = real(None, 0, 1, "Adam step size", above=True, **_OPEN)
    learning_rate_decay_steps: int = integer(
        None, 0, MANY, "steps of an optimizer that halve its learning rate, 0 for no decay", **_OPEN
    )
    actor_update_period: int = integer(
        None, 1, 1_000, "gradient steps of the critics for each of the actor", **_OPEN
    )
    target_update_tau: float = real(0.005, 0, 1, "share of the new weights", above=True)
    target_update_period: int = integer(1, 1, 1_000_000, "gradient steps")
    gamma: float = real(None, 0, 1, "discount per env step", **_OPEN)
    reward_scale_factor: float = real(None, 0, 1e6, "factor", above=True, **_OPEN)
    initial_log_alpha: float = real(None, -20, 20, "natural log of the temperature", **_OPEN)
    target_entropy: float | None = real(None, -1e6, 1e6, "nats", **_OPEN)
    # Networks
    observation_scale: tuple[float, ...] = numbers(
        None, 100_000, 1e-9, 1e9, "divisor of each observation", whole=False, **_OPEN
    )
    actor_fc_layer_params: tuple[int, ...] = numbers(
        (256, 256), 8, 1, 16_384, "units of each layer", whole=True
    )
    critic_joint_fc_layer_params: tuple[int, ...] = numbers(
        (256, 256), 8, 1, 16_384, "units of each layer", whole=True
    )
    critic_layer_norm: bool = switch(None, "normalise each hidden layer of the critics", **_OPEN)
    # Logging and evaluation; an interval of 0 means only after the last gradient step
    log_interval: int = integer(1_000, 0, MANY, "gradient steps")
    eval_interval: int = integer(10_000, 0, MANY, "gradient steps")
    interim_eval_episodes: int = integer(5, 1, 10_000, "episodes")
    num_eval_episodes: int = integer(20, 1, 10_000, "episodes")
    policy_save_interval: int = integer(5_000, 0, MANY, "gradient steps")
    checkpoint_interval: int = integer(0, 0, MANY, "gradient steps")
    checkpoint_seconds: int = integer(300, 0, MANY, "seconds")
    environment_timeout: int = integer(300, 0, MANY, "seconds for one env step or reset")

    def __attrs_post_init__(self) -> None:
        checks.check_capacity(self.replay_buffer_capacity, self.batch_size, "transitions")
        if self.symmetry_augmentation and self.env_name not in REFLECTIONS:
            known = " and ".join(REFLECTIONS)
            allowed = f"False for {self.env_name}: labkit has the reflection of {known} only"
            raise checks.invalid("symmetry_augmentation", True, allowed)

    def check_scale(self, size: int) -> None:
        """Rejects an observation scale that does not fit observations of `size` numbers.

        Raises:
            ParameterError: names how many divisors there must be.
        """
        if len(self.observation_scale) not in (0, size):
            allowed = f"{size} numbers for {self.env_name}, or empty"
            raise checks.invalid("observation_scale", self.observation_scale, allowed)

    @property
    def reflection(self) -> Reflection | None:
        """What `symmetry_augmentation` applies to every second row of a batch; None without it."""
        return REFLECTIONS[self.env_name] if self.symmetry_augmentation else None

    @classmethod
    def names(cls) -> list[str]:
        """The names of all fields, in order."""
        return [field.name for field in attrs.fields(cls)]

    @classmethod
    def parse(cls, parameters: Mapping[str, Any]) -> "SACConfig":
        """Checks parameters of a file or a command line; unknown names are rejected too.

        Raises:
            ParameterError: one line that names the parameter, its value and what is allowed.
        """
        if not isinstance(parameters, Mapping):
            raise checks.invalid("parameters", parameters, "a dictionary from names to values")
        for name in parameters:
            if name not in cls.names():
                raise unknown(name, cls.names())
        return cls(**parameters)

    @classmethod
    def from_notebook(
        cls, namespace: Mapping[str, Any], others: tuple[str, ...] = ()
    ) -> "SACConfig":
        """Checks a notebook's parameters: `SACConfig.from_notebook(globals())`.

        `others` are the names of its further parameters; whatever is not a field is left alone.

        Raises:
            ParameterError: as `parse`; also for a mistyped name in a parameters cell.
        """
        return cls(**checks.from_notebook(namespace, cls.names(), others))
