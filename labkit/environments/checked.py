"""Checks what a Gym environment returns, copies it as float32, and counts the time limit."""

import math
from collections.abc import Callable
from typing import Any

import gym
import numpy as np

from labkit.errors import BrokenEnvironmentError
from labkit.parameters import echo, invalid

FLOAT32_MAX = float(np.finfo(np.float32).max)
GYM_API = "as in Gym 0.23, not Gymnasium"
TRUNCATED = "TimeLimit.truncated"  # Gym's mark in `info`


class CheckedEnv(gym.Wrapper):
    """A Gym 0.23 environment whose answers can be stored as they are.

    - Observations are copies: an environment may return the buffer that its next step changes. It
      gets a copy of the action for the same reason.
    - Vectors of float64 or float16 become float32 `[obs]`, and float32 actions `[act]` become what
      the environment takes, within its bounds.
    - The time limit is counted here. A truncation is marked as Gym's own `TimeLimit` marks it, with
      `info["TimeLimit.truncated"]`; a `TimeLimit` below other wrappers, and any environment that
      sets this itself, are left as they are.

    `max_episode_steps` replaces every other time limit; None takes the smallest of the registered
    one and those that the user's wrappers set, if any. A `TimeLimit` below a wrapper that repeats
    actions counts the steps of the environment inside.

    Raises:
        ParameterError: a space is missing, empty, or has bounds between which no number lies.
    """

    def __init__(self, env: gym.Env, max_episode_steps: int | None = None):
        own = [limit._max_episode_steps for limit in _time_limits(env)]
        limits = [math.ceil(limit) for limit in own if limit and math.isfinite(limit)]
        # A subclass may do more than Gym's own.
        while type(env) in (gym.wrappers.TimeLimit, gym.wrappers.OrderEnforcing):
            env = env.env
        super().__init__(env)
        # The others are below a wrapper that has to see the end of the episode.
        for limit in _time_limits(env) if max_episode_steps else ():
            limit._max_episode_steps = max_episode_steps
        self.max_episode_steps = max_episode_steps or min(limits, default=None)
        self._steps = self._episode_steps = 0
        for name in ("observation_space", "action_space"):
            _check_space(name, getattr(env, name, None))
        self._to_own_action, self.action_space = _float32_action(env.action_space)
        self._observation_dtype, self.observation_space = _float32_observation(
            env.observation_space
        )

    def reset(self, **kwargs: Any) -> Any:
        """The first observation of an episode.

        Raises:
            BrokenEnvironmentError: it is not an observation, or not finite.
        """
        self._episode_steps = 0
        observation = self.env.reset(**kwargs)
        if isinstance(observation, tuple) and isinstance(self.observation_space, gym.spaces.Box):
            what = f"reset must return the observation alone, {GYM_API}"
            raise BrokenEnvironmentError(f"the environment's {what}, got {echo(observation)}")
        return self._observation(observation, self._after_reset)

    def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        """Observation, reward, whether the episode is over, and `info`.

        Raises:
            BrokenEnvironmentError: the answer does not consist of these, or is not finite.
        """
        self._steps += 1
        self._episode_steps += 1
        try:
            answer = self.env.step(self._to_own_action(action))
        except (
            StopIteration
        ) as error:  # to a generator that calls this, it would mean another thing
            what = f"step raised StopIteration {self._place()}"
            raise BrokenEnvironmentError(f"the environment's {what}") from error
        if not isinstance(answer, tuple) or len(answer) != 4:
            what = f"step must return (observation, reward, done, info), {GYM_API}"
            raise BrokenEnvironmentError(f"the environment's {what}, got {echo(answer)}")
        observation, reward, done, info = answer
        observation = self._observation(observation, self._place)
        info = info if isinstance(info, dict) else {}
        done = self._truth("done", done)
        if info.get(TRUNCATED) is not None:
            self._truth(f"info[{TRUNCATED!r}]", info[TRUNCATED])
        if self._is_at_limit() and not done:
            done, info = True, {**info, TRUNCATED: True}
        return observation, self._reward(reward), done, info

    def _is_at_limit(self) -> bool:
        return self.max_episode_steps is not None and self._episode_steps >= self.max_episode_steps

    def _observation(self, observation: Any, place: Callable[[], str]) -> Any:
        """A checked copy, in float32 if it is one vector of real numbers."""
        dtype = self._observation_dtype
        if dtype is None:  # a dictionary, a tuple or text: not for SAC, but for other lessons
            return observation
        try:
            found = np.asarray(observation)
            if found.dtype.kind not in "biufO" or np.ma.is_masked(observation):
                raise TypeError  # NumPy would drop an imaginary part or a mask, and read text
            with np.errstate(over="ignore"):
                copy = np.array(found, dtype)
        except (TypeError, ValueError):
            what = f"observation is not an array of numbers {place()}: {echo(observation)}"
            raise BrokenEnvironmentError(f"the environment's {what}") from None
        if copy.shape != (expected := self.observation_space.shape):
            what = f"observation has shape {copy.shape}, not {expected}, {place()}"
            raise BrokenEnvironmentError(f"the environment's {what}")
        if not np.isfinite(copy).all():
            index = np.flatnonzero(~np.isfinite(copy))[0]
            what = f"observation[{index}] is {copy.ravel()[index]} {place()}"
            raise BrokenEnvironmentError(f"the environment's {what}")
        return copy

    def _reward(self, reward: Any) -> float:
        number = one_number(reward)
        if number is None:
            what = f"reward must be one number, got {echo(reward)} {self._place()}"
            raise BrokenEnvironmentError(f"the environment's {what}")
        if not abs(number) <= FLOAT32_MAX:
            what = f"reward is {number:g} {self._place()}"
            raise BrokenEnvironmentError(f"the environment's {what}")
        return number

    def _truth(self, name: str, value: Any) -> bool:
        number = one_number(value)
        if number not in (0, 1):
            what = f"{name} must be True or False, got {echo(value)} {self._place()}"
            raise BrokenEnvironmentError(f"the environment's {what}")
        return bool(number)

    def restart_count(self) -> None:
        """Counts env steps from 0 again: those so far were a trial."""
        self._steps = 0

    def _place(self) -> str:
        """Where a step was: counted since this environment was made, and in its episode."""
        return f"at its env step {self._steps}, step {self._episode_steps} of the episode"

    def _after_reset(self) -> str:
        return f"after its reset at env step {self._steps}"


def one_number(value: Any) -> float | None:
    """A real number or a truth value as a float; None for anything else."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of several lengths
        return None
    if array.shape != () or array.dtype.kind not in "biuf" or np.ma.is_masked(value):
        return None
    return float(array)


def _check_space(name: str, space: Any) -> None:
    """Rejects anything but a space, and a box that contains no number."""
    if not isinstance(space, gym.Space):
        raise invalid(name, space, "a gym.Space of the environment")
    if not isinstance(space, gym.spaces.Box):
        return
    if 0 in space.shape:
        raise invalid(name, space, f"a space of one number or more, not of shape {space.shape}")
    if not (space.low <= space.high).all():  # nor is NaN
        index = np.flatnonzero(~(space.low <= space.high))[0]
        low, high = space.low.ravel()[index], space.high.ravel()[index]
        allowed = (
            f"a box whose lower bounds are at most its upper ones; [{index}] has {low}, {high}"
        )
        raise invalid(name, space, allowed)


def _time_limits(env: gym.Env) -> list[Any]:
    """Every `TimeLimit` in a chain of wrappers, Gymnasium's in a `GymnasiumEnv` included."""
    found: list[Any] = []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            found.append(env)
        env = env.env
    return found + (env.time_limits() if hasattr(env, "time_limits") else [])


def _is_float(space: gym.Space) -> bool:
    return isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating)


def _in_float32(space: gym.spaces.Box) -> gym.spaces.Box:
    if space.dtype == np.float32:
        return space
    with np.errstate(over="ignore"):  # a bound that float32 cannot hold is no bound
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    return gym.spaces.Box(low, high, dtype=np.float32)


def _float32_observation(space: gym.Space) -> tuple[Any, gym.Space]:
    """The dtype of the copies of observations (None: no copy), and the resulting space."""
    if _is_float(space):
        return np.float32, _in_float32(space)
    return (space.dtype if isinstance(space, gym.spaces.Box) else None), space


def _float32_action(space: gym.Space) -> tuple[Callable[[Any], Any], gym.Space]:
    """A function that makes the environment's copy of an action; and the space for the policy."""
    if not _is_float(space):
        return lambda action: action, space
    dtype, low, high = space.dtype, space.low, space.high
    # Rounded to float32, an action may be beyond a bound.
    return lambda action: np.clip(np.array(action, dtype), low, high), _in_float32(space)
