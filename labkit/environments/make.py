"""Environments by id or factory, and what SAC needs of them."""

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gym
import numpy as np

from labkit.errors import BrokenEnvironmentError, ParameterError, first_line
from labkit.parameters import MANY, check_int, invalid
from labkit.runtime import quiet

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

MINITAUR = "MinitaurBulletEnv-v0"
PREFIX = "gymnasium:"  # of an id of Gymnasium
MAX_SEED = 2**32 - 1
MAX_ACTION = 1e9  # beyond it the critic's float32 loss overflows


def make_environment(
    name: str | Callable[[], Any],
    seed: int | None = None,
    max_episode_steps: int | None = None,
    bootstrap_time_limits: bool = True,
    timeout: float = 0,
) -> "PyEnvironment":
    """A TF-Agents `PyEnvironment`: a truncation keeps discount 1, a termination has discount 0.

    Args:
        name: a registered id, `gymnasium:Id` for one of Gymnasium's, or a callable that returns
            an environment of Gym 0.23 or Gymnasium, such as a class.
        seed: of everything random in the environment; None leaves it unpredictable.
        max_episode_steps: env steps until the time limit; None takes the registered one, if any.
        bootstrap_time_limits: False makes a truncation a termination, as gym's own time limit
            does, for comparison (Pardo et al. 2018, "Time Limits in Reinforcement Learning").
        timeout: seconds that the constructor, a reset or a step may take before the process ends
            and prints the line that hangs. 0 sets no limit.

    Raises:
        ParameterError: an unknown id, or an environment that cannot be made or used here.
    """
    limit = max_episode_steps
    if limit is not None:
        limit = check_int("max_episode_steps", limit, 1, MANY, "env steps, or None")
    if seed is not None:
        seed = check_int("seed", seed, 0, MAX_SEED, "a seed, or None")
    maker, parameter = constructor(name), "env_name" if isinstance(name, str) else "make_env"
    from labkit.environments.adapt import GymEnvironment  # imports TensorFlow

    try:
        env = GymEnvironment(maker, limit, bootstrap_time_limits, timeout, parameter)
        env.seed(seed)
    except Exception as error:  # a constructor may raise anything; that of a user is shown in full
        own = maker is name and not isinstance(error, BrokenEnvironmentError)
        if own or isinstance(error, ParameterError):
            raise
        reason = first_line(error)
        raise invalid(parameter, name, f"an environment that works here ({reason})") from None
    return env


def constructor(source: Any) -> Callable[[], Any]:
    """What makes the environment: a registered id's constructor, or the user's own."""
    if callable(source):
        return source
    if not isinstance(source, str):
        raise invalid("make_env", source, "a class or a function that returns an environment")
    check_name(source)
    if source == MINITAUR:
        with quiet():  # PyBullet prints folder names when it is imported
            from labkit.environments import minitaur
        return minitaur.make
    if not source.startswith(PREFIX):
        return gym.spec(source).make
    import gymnasium

    with contextlib.suppress(ImportError):  # not every environment needs MuJoCo
        import mujoco

        # It reports, in a file in the working directory, that its robot models are deprecated.
        mujoco.set_mju_user_warning(lambda text: print(text, file=sys.stderr))
    options: Any = {"render_mode": "rgb_array", "disable_env_checker": True}  # labkit has its own
    return functools.partial(gymnasium.make, source.removeprefix(PREFIX), **options)


def check_name(name: str) -> None:
    """Rejects an id that is not registered; the error often has a similar one that is."""
    short = name.removeprefix(PREFIX)
    try:
        if name == short:
            with quiet():
                import pybullet_envs  # noqa: F401  (importing it registers its environments)
            gym.spec(name)
        elif ":" not in short:  # `gymnasium:module:Id` is registered when it is made
            import gymnasium

            gymnasium.spec(short)
    except Exception as error:  # each library has its own
        allowed = f"a registered id of Gym, or gymnasium:Id ({first_line(error)})"
        raise invalid("env_name", name, allowed) from None


def check_separate(collect_env: "PyEnvironment", eval_env: "PyEnvironment") -> None:
    """Rejects one environment in two roles: an evaluation would disturb the collection."""
    if raw_env(collect_env) is raw_env(eval_env):
        wanted = "two environments, a new one each time it is made, got the same one twice"
        raise ParameterError(f"`{collect_env.gym.parameter}` must give {wanted}")


def check_specs(env: "PyEnvironment") -> None:
    """Rejects what SAC cannot train on: anything but flat observations and bounded actions."""
    parameter, name = env.gym.parameter, environment_name(env)
    for kind, spec in (("observations", env.observation_spec()), ("actions", env.action_spec())):
        shape, dtype = getattr(spec, "shape", None), getattr(spec, "dtype", None)
        if shape is None or len(shape) != 1 or dtype != np.float32:
            wanted = f"an environment whose {kind} are one vector of real numbers (wrap it)"
            found = f"this one has {kind} of shape {shape} and dtype {dtype}"
            raise invalid(parameter, name, f"{wanted}; {found}")
    low, high = np.min(spec.minimum), np.max(spec.maximum)  # infinity is the largest float32 here
    if max(-low, high) > MAX_ACTION or not np.all(spec.minimum < spec.maximum):
        found = f"those of this one range from {low:g} to {high:g}"
        wanted = f"an environment whose actions have two bounds within ±{MAX_ACTION:g} (wrap it)"
        raise invalid(parameter, name, f"{wanted}; {found}")


def raw_env(env: "PyEnvironment") -> Any:
    """The environment inside every wrapper, of Gym 0.23 or of Gymnasium."""
    return env.gym.raw


def environment_name(env: "PyEnvironment") -> str:
    """The registered id, with Gymnasium's prefix; or the class, if it is not registered."""
    raw = raw_env(env)
    if raw.spec is None:
        return type(raw).__name__
    return raw.spec.id if isinstance(raw, gym.Env) else PREFIX + raw.spec.id


def step_seconds(env: "PyEnvironment") -> float:
    """Simulated seconds of one env step: 0.01 for the Minitaur, whose metadata are wrong."""
    raw = raw_env(env)
    if hasattr(raw, "minitaur"):
        return raw._time_step * raw._action_repeat
    # Robots of PyBullet; CartPole; the pendulum, and Gymnasium's robots of MuJoCo.
    scene = getattr(raw, "scene", None)
    found = [getattr(scene, "dt", None), getattr(raw, "tau", None), getattr(raw, "dt", None)]
    rates = [raw.metadata.get(key) for key in ("render_fps", "video.frames_per_second")]
    return next(one for one in [*found, *(1 / rate for rate in rates if rate), 0.02] if one)


def forward_position(env: "PyEnvironment") -> float | None:
    """The base's position along the axis that the reward counts, in metres; None without one."""
    raw = raw_env(env)
    if hasattr(raw, "minitaur"):
        return float(raw.minitaur.GetBasePosition()[0])
    walks = hasattr(getattr(raw, "robot", None), "walk_target_x")
    return float(raw.robot.body_xyz[0]) if walks else None
