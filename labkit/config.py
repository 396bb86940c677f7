"""Every hyperparameter of a run, once, with its unit and range.

This module sits at the bottom of the package: it imports nothing of labkit and no
TensorFlow, so that a wrong value is refused before any work starts.
"""

import ast
import difflib
import math
import re
from typing import Any

import attrs


class ParameterError(ValueError):
    """A value that labkit refuses: one line that names parameter, value and range."""

    def _render_traceback_(self) -> list[str]:
        # IPython calls this in place of printing a traceback: the reader of a notebook
        # made a mistake that the message names; our stack frames would only hide it.
        return [f"ParameterError: {self}"]


# What is tuned to one environment: reward scale, initial log α, what each observation is divided
# by, and more. The Minitaur pays about 0.01 per step, so that at log α = 0 the entropy bonus drowns
# the reward; its motor velocities reach 20 rad/s while quaternions stay in 1. One step of 10 ms
# tells little of what an action led to: five in a row tell more. With one-step critics it fell when
# the noise that it had learned with was taken away, unless some episodes were collected without;
# with five steps it is open whether they still help (results/minitaur/README.md).
TUNED: dict[str, dict[str, Any]] = {
    "MinitaurBulletEnv-v0": {
        "reward_scale_factor": 20.0,
        "initial_log_alpha": -4.0,
        "target_entropy": -4.0,
        "greedy_share": 0.3,
        "n_step": 5,
        "critic_layer_norm": True,
        "observation_scale": (3.14,) * 8 + (20.0,) * 8 + (5.7,) * 8 + (1.0,) * 4,
    }
}
UNTUNED: dict[str, Any] = {
    "reward_scale_factor": 1.0,
    "initial_log_alpha": 0.0,
    "target_entropy": None,  # half a nat below zero for each dimension of the action
    "greedy_share": 0.0,
    "n_step": 1,
    # Off elsewhere: a layer normalised without a bias before it forgets how large its input is,
    # which 36 inputs survive and one or two do not.
    "critic_layer_norm": False,
    "observation_scale": (),  # empty: observations are used as they are
}


def refuse(name: str, value: object, allowed: str) -> ParameterError:
    """The one line a user sees, for example `batch_size = 0 is refused: allowed is …`."""
    return ParameterError(f"{name} = {value!r} is refused: allowed is {allowed}")


def nearest(name: str, known: list[str]) -> str:
    """`; did you mean 'x'?` for the closest known name, or an empty string."""
    match = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else ""


def _number(value: Any) -> float | int | None:
    """A finite number from a number or from text, else None. Truth values are no numbers."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number


def _in_range(value: object, low: float, high: float, above: bool, whole: bool):
    number = _number(value)
    if number is None or (whole and not isinstance(number, int)):
        return None
    inside = (low < number if above else low <= number) and number <= high
    return number if inside else None


def whole(name: str, value: object, low: int, high: int, unit: str) -> int:
    """A notebook's parameter as a whole number; papermill passes `1e4` as `10000.0`.

    Raises:
        ParameterError: it is none, or out of range.
    """
    number = _in_range(value, low, high, above=False, whole=True)
    if number is None:
        raise refuse(name, value, f"a whole number from {low} to {high} ({unit})")
    return int(number)


def _field(default, convert, allowed: str, unit: str, optional: bool = False):
    """An attrs field whose converter checks, and whose errors name the field."""

    def converter(value, self, field):
        if optional and (value is None or value == "None"):
            return TUNED.get(self.env_name, UNTUNED)[field.name]
        converted = convert(value)
        if converted is None:
            raise refuse(field.name, value, allowed + (", or None" if optional else ""))
        return converted

    return attrs.field(
        default=default,
        converter=attrs.Converter(converter, takes_self=True, takes_field=True),
        metadata={"unit": unit, "allowed": allowed},
    )


def _integer(default: int | None, low: int, high: int, unit: str, optional: bool = False):
    return _field(
        default,
        lambda value: _in_range(value, low, high, above=False, whole=True),
        f"a whole number from {low:,} to {high:,}".replace(",", " ") + f" ({unit})",
        unit,
        optional,
    )


def _real(default, low: float, high: float, unit: str, above=False, optional=False):
    def convert(value):
        number = _in_range(value, low, high, above, whole=False)
        return None if number is None else float(number)

    bound = f"above {low:g} and up to {high:g}" if above else f"from {low:g} to {high:g}"
    return _field(default, convert, f"a number {bound} ({unit})", unit, optional)


def _tuple(default, length: int, low: float, high: float, whole: bool, unit: str, optional=False):
    def convert(value):
        if isinstance(value, str):
            try:
                value = ast.literal_eval(value.strip())
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                return None
        items = tuple(value) if isinstance(value, list | tuple) else (value,)
        numbers = [_in_range(item, low, high, above=not whole, whole=whole) for item in items]
        if None in numbers or len(numbers) > length or (whole and not numbers):
            return None
        return tuple(n if whole else float(n) for n in numbers)

    kind = f"{'1' if whole else '0'} to {length} {'whole numbers' if whole else 'numbers'}"
    return _field(
        default, convert, f"{kind} between {low:g} and {high:g}, such as (256, 256)", unit, optional
    )


def _text(default: str, pattern: str, allowed: str, unit: str):
    def convert(value):
        return value if isinstance(value, str) and re.fullmatch(pattern, value) else None

    return _field(default, convert, allowed, unit)


def _switch(default: bool | None, unit: str, optional: bool = False):
    def convert(value):
        return {"true": True, "1": True, "false": False, "0": False}.get(str(value).lower())

    return _field(default, convert, f"True or False ({unit})", unit, optional)


def check_capacity(config, unit: str) -> None:
    """Refuses a replay buffer that a batch does not fit into.

    Raises:
        ParameterError: names both.
    """
    if config.replay_buffer_capacity < config.batch_size:
        allowed = f"at least batch_size = {config.batch_size} ({unit})"
        raise refuse("replay_buffer_capacity", config.replay_buffer_capacity, allowed)


MANY = 10**9
# These do not change what is learned: a run may be resumed with others.
FREE_TO_CHANGE = ("strategy", "checkpoint_interval", "checkpoint_seconds", "environment_timeout")
STRATEGIES = "'auto', 'cpu', 'gpu', 'tpu', 'mirrored' or 'mirrored:N' with N from 1 to 64"
STRATEGY_PATTERN = r"auto|cpu|gpu|tpu|mirrored(:([1-9]|[1-5]\d|6[0-4]))?"


@attrs.frozen(kw_only=True)
class SACConfig:
    """Soft Actor-Critic on one environment. Names follow the TF-Agents SAC tutorial.

    Whole floats (papermill passes `1e6` as `1000000.0`) and numbers given as text are taken
    for what they mean. `None` for a field in `TUNED` becomes that environment's value.

    Raises:
        ParameterError: for the first field that is not allowed, in the order below.
    """

    # Run
    env_name = _text("MinitaurBulletEnv-v0", r"\S+", "the id of a Gym environment", "Gym id")
    num_iterations = _integer(100_000, 1, MANY, "gradient steps")
    seed = _integer(0, 0, 2**31 - 1, "seed of every generator that labkit owns")
    strategy = _text("auto", STRATEGY_PATTERN, STRATEGIES, "name")
    # Collection and replay
    initial_collect_steps = _integer(10_000, 1, MANY, "env steps")
    collect_steps_per_iteration = _integer(1, 1, 10_000, "env steps per gradient step")
    greedy_share = _real(None, 0, 1, "share of episodes collected without noise", optional=True)
    n_step = _integer(None, 1, 100, "env steps whose rewards a transition sums", optional=True)
    bootstrap_time_limits = _switch(True, "value what would follow a time limit")
    replay = _text("reverb", "reverb|tf_uniform", "'reverb' or 'tf_uniform'", "name")
    replay_buffer_capacity = _integer(1_000_000, 1, 100_000_000, "transitions")
    batch_size = _integer(256, 1, 1_000_000, "transitions, over all replicas")
    steps_per_call = _integer(10, 1, 1_000, "gradient steps taken at once, while as many are acted")
    # Loss and optimizers
    critic_learning_rate = _real(3e-4, 0, 1, "Adam step size", above=True)
    actor_learning_rate = _real(3e-4, 0, 1, "Adam step size", above=True)
    alpha_learning_rate = _real(3e-4, 0, 1, "Adam step size", above=True)
    target_update_tau = _real(0.005, 0, 1, "share of the new weights", above=True)
    target_update_period = _integer(1, 1, 1_000_000, "gradient steps")
    gamma = _real(0.99, 0, 1, "discount per env step")
    reward_scale_factor = _real(None, 0, 1e6, "factor", above=True, optional=True)
    initial_log_alpha = _real(None, -20, 20, "natural log of the temperature", optional=True)
    target_entropy = _real(None, -1e6, 1e6, "nats that the policy is held at", optional=True)
    # Networks
    observation_scale = _tuple(
        None, 100_000, 0, 1e9, False, "divisor of each observation", optional=True
    )
    actor_fc_layer_params = _tuple((256, 256), 8, 1, 16_384, True, "units of each layer")
    critic_joint_fc_layer_params = _tuple((256, 256), 8, 1, 16_384, True, "units of each layer")
    critic_layer_norm = _switch(None, "normalise each hidden layer of the critics", optional=True)
    # Logging and evaluation; an interval of 0 means never
    log_interval = _integer(1_000, 0, MANY, "gradient steps")
    eval_interval = _integer(10_000, 0, MANY, "gradient steps")
    interim_eval_episodes = _integer(5, 1, 10_000, "episodes")
    num_eval_episodes = _integer(20, 1, 10_000, "episodes")
    policy_save_interval = _integer(5_000, 0, MANY, "gradient steps")
    checkpoint_interval = _integer(0, 0, MANY, "gradient steps")
    checkpoint_seconds = _integer(300, 0, MANY, "seconds")
    environment_timeout = _integer(300, 0, MANY, "seconds for one env step or reset")

    def __attrs_post_init__(self):
        check_capacity(self, "transitions")

    @classmethod
    def parse(cls, parameters: dict[str, Any]) -> "SACConfig":
        """Checks a notebook's parameters; unknown names are refused too.

        Raises:
            ParameterError: one line that names the parameter, its value and what is allowed.
        """
        known = [field.name for field in attrs.fields(cls)]
        for name in parameters:
            if name not in known:
                shown = name if name.isidentifier() else repr(name)
                raise ParameterError(f"{shown} is not a parameter{nearest(name, known)}")
        return cls(**parameters)
