"""Environments by id or factory, with separate seeds; a time limit truncates an episode."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gym
import numpy as np

from labkit.environments import gymnasium
from labkit.environments.seeding import (
    SeededEnv,
    environment_name,
    parameter_of,
    raw_env,
    seeded_env,
)
from labkit.errors import BrokenEnvironmentError, ParameterError, first_line
from labkit.parameters import MANY, check_int, check_real, did_you_mean, echo, invalid
from labkit.runtime import quiet

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

MINITAUR = "MinitaurBulletEnv-v0"
FACTORY = "a class or a function that returns a new Gym or Gymnasium environment each time"
SEPARATE = {  # what each parameter must be, so that collection and evaluation do not share one
    "env_name": "the id of an environment that is new each time it is made",
    "make_env": FACTORY,
    "components": "TrainingComponents with two environments, `collect_env` and `eval_env`",
}
EXPECTED = (ImportError, gym.error.Error, BrokenEnvironmentError)
MAX_SEED = 2**32 - 1
MAX_ACTION = 1e9  # beyond it the critic's float32 loss overflows


def known_names() -> list[str]:
    """Ids of every registered Gym and PyBullet environment, sorted."""
    with quiet():
        import pybullet_envs  # noqa: F401  (importing it registers its environments)
    return sorted(spec.id for spec in gym.envs.registry.all())


def check_name(name: str) -> None:
    """Rejects an id that is not registered; the error names the closest one that is.

    `gymnasium:Id` is an id of Gymnasium. Gym 0.23 would take it for a module and an id in it.

    Raises:
        ParameterError: `name` is not registered, or Gymnasium is not installed.
    """
    if name.startswith(gymnasium.PREFIX):
        return gymnasium.check_name(name)
    names = known_names()
    if name not in names:
        known = f"one of the {len(names)} registered Gym ids"
        hint = did_you_mean(name, names)
        if gymnasium.is_registered(name):
            hint = f"; did you mean {gymnasium.PREFIX + name!r}?"
        raise ParameterError(f"{invalid('env_name', name, known)}{hint}")


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
            an environment of Gym 0.23 or Gymnasium, for example
            `make_environment(MyEnv, max_episode_steps=200)`.
        seed: of everything random in the environment; None leaves it unpredictable.
        max_episode_steps: env steps until the time limit; None takes the registered one, if any.
        bootstrap_time_limits: False makes a truncation a termination, as gym's own time limit
            does, for comparison (Pardo et al. 2018, "Time Limits in Reinforcement Learning").
        timeout: seconds that the constructor, a reset or a step may take; then the line that hangs
            is printed, and the process ends. 0 sets no limit.

    Raises:
        ParameterError: an unknown id, an environment that this host cannot make, a callable that
            does not return an environment, an environment of Gymnasium whose first steps are
            wrong, or a seed or time limit that is not allowed.
    """
    max_episode_steps = check_max_episode_steps(max_episode_steps)
    if not isinstance(bootstrap_time_limits, bool):
        raise invalid("bootstrap_time_limits", bootstrap_time_limits, "True or False")
    if seed is not None:
        seed = check_int("seed", seed, 0, MAX_SEED, "or None")
    timeout = check_real("timeout", timeout, 0, MANY, "seconds; 0 for no limit")
    try:
        seeded = SeededEnv(_maker(name), max_episode_steps, timeout)
        seeded.came_from = _parameter(name)
        gymnasium.try_out(seeded)
    except Exception as error:  # a constructor may raise anything
        users_own = not isinstance(name, str)  # the user must see its errors in full
        if isinstance(error, ParameterError):
            raise
        if users_own and not isinstance(error, (*EXPECTED, *gymnasium.errors())):
            raise
        reason = first_line(error)
        if getattr(error, "name", None) in gymnasium.PACKAGES:
            reason += f"; {gymnasium.INSTALL}"
        allowed = f"an environment that works here ({reason})"
        raise invalid(_parameter(name), name, allowed) from None
    seeded.seed(seed)
    from labkit.environments.truncation import TruncatingGymWrapper  # imports TensorFlow

    try:
        return TruncatingGymWrapper(seeded, bootstrap_time_limits)
    except (TypeError, ValueError) as error:  # a space for which TF-Agents has no specification
        allowed = f"an environment whose spaces TF-Agents can describe ({first_line(error)})"
        raise invalid(_parameter(name), name, allowed) from None


def _parameter(name: Any) -> str:
    """The parameter that an environment comes from."""
    return "env_name" if isinstance(name, str) else "make_env"


def _maker(source: Any) -> Callable[[], Any]:
    """What makes the environment: a registered id's constructor, or the user's own."""
    if isinstance(source, str):
        check_name(source)
        if source.startswith(gymnasium.PREFIX):
            return functools.partial(gymnasium.make, source)
        return _make_minitaur if source == MINITAUR else gym.spec(source).make
    check_factory(source)
    return source


def _make_minitaur() -> gym.Env:
    with quiet():  # PyBullet prints folder names when it is imported
        from labkit.environments import minitaur
    return minitaur.make()


def check_factory(make_env: Any) -> None:
    """Rejects anything that cannot be called, for example an environment.

    Raises:
        ParameterError: `make_env` cannot be called.
    """
    if not callable(make_env):
        raise invalid("make_env", make_env, FACTORY)


def check_max_episode_steps(steps: int | None) -> int | None:
    """A time limit as a whole number of env steps; None takes the registered one.

    Raises:
        ParameterError: it is neither.
    """
    if steps is None:
        return None
    return check_int("max_episode_steps", steps, 1, MANY, "env steps; or None")


def check_separate(
    collect_env: "PyEnvironment", eval_env: "PyEnvironment", parameter: str | None = None
) -> None:
    """Rejects one environment in two roles: an evaluation would disturb the collection.

    Args:
        collect_env: collects experience.
        eval_env: plays the evaluations.
        parameter: the user's, for errors; None takes the one that chose `collect_env`.

    Raises:
        ParameterError: both are the same, have the same Gym environment inside, or differ in the
            shapes of observations or actions, or in the bounds of actions.
    """
    parameter = parameter or parameter_of(collect_env)
    wanted = f"`{parameter}` must be {SEPARATE[parameter]}"
    if raw_env(collect_env) is raw_env(eval_env):
        raise ParameterError(f"{wanted}, got the same environment twice")
    for name in ("observation_space", "action_space"):
        one, two = (getattr(seeded_env(env), name) for env in (collect_env, eval_env))
        # Nothing depends on the bounds of observations.
        if one.shape != two.shape or (name == "action_space" and one != two):
            found = f"with the same `{name}`, got {echo(one)} and then {echo(two)}"
            raise ParameterError(f"{wanted}, {found}")


def check_specs(env: "PyEnvironment", parameter: str | None = None) -> None:
    """Rejects what SAC cannot train on: anything but flat observations and bounded actions.

    Args:
        env: see `make_environment`.
        parameter: the user's, for errors; None takes the one that chose the environment.

    Raises:
        ParameterError: names the environment and its shapes or bounds, and says what to do.
    """
    if problem := _spec_problem(env):
        allowed = f"an environment {problem}"
        raise invalid(parameter or parameter_of(env), environment_name(env), allowed)


def _spec_problem(env: "PyEnvironment") -> str:
    """What SAC needs, and what this environment has instead; empty if SAC can train on it."""
    action_spec = env.action_spec()
    for kind, spec in (("observations", env.observation_spec()), ("actions", action_spec)):
        shape, dtype = getattr(spec, "shape", None), getattr(spec, "dtype", None)
        if shape is None or len(shape) != 1 or not np.issubdtype(dtype, np.floating):
            found = f"this one has {kind} of shape {shape} and dtype {dtype}{_todo(kind, shape)}"
            return f"whose {kind} are one vector of real numbers; {found}"
    # TF-Agents turns an infinite bound into the largest float32.
    low, high = np.min(action_spec.minimum), np.max(action_spec.maximum)
    if max(-low, high) > MAX_ACTION:
        found = f"within ±{MAX_ACTION:g}; those of this one range from {low:g} to {high:g}"
        return f"with bounded actions, {found} (wrap it, with an `action_space` that has bounds)"
    fixed = np.broadcast_to(action_spec.minimum >= action_spec.maximum, action_spec.shape)
    if fixed.any():
        return (
            f"whose actions have two bounds; action[{np.argmax(fixed)}] of this one has one value"
        )
    return ""


def _todo(kind: str, shape: tuple[int, ...] | None) -> str:
    """What to do about observations or actions of this shape."""
    if kind == "observations" and shape is not None and len(shape) == 3:
        return " (labkit has no networks for images: choose an environment without)"
    if kind == "observations":
        return " (the wrapper FlattenObservation makes them one vector; then cast it to float32)"
    if shape in (None, ()):
        return " (SAC needs real-valued actions)"
    return " (wrap it, with an `action_space` of shape (n,) and dtype float32)"
