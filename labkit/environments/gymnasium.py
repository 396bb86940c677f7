"""Gymnasium's environments, as the Gym 0.23 environments that the rest of labkit works with.

Gymnasium is an optional extra. No function here imports it before it needs it.
"""

import contextlib
import importlib
import importlib.util
import os
import sys
from typing import Any

import gym
import numpy as np

from labkit.environments.checked import TRUNCATED, CheckedEnv, one_number
from labkit.errors import BrokenEnvironmentError, ParameterError, RunError, first_line
from labkit.parameters import did_you_mean, echo, invalid

PREFIX = "gymnasium:"
PACKAGES = ("gymnasium", "mujoco")
INSTALL = "pip install '.[gymnasium]' in labkit's folder"
TRIAL_STEPS = 3  # env steps that show what an environment answers, before any work
STEP_API = "(observation, reward, terminated, truncated, info), as in Gymnasium"
OLD_STEP = "return `terminated` and `truncated` in place of `done`"
DEBIAN_PACKAGES = "libegl1 libgl1-mesa-dri"  # MuJoCo draws with them; as in .ci/run


class GymnasiumEnv(gym.Env):
    """A Gymnasium environment with the methods and spaces of a Gym 0.23 one.

    `terminated` ends an episode. So does `truncated`, which is marked as Gym's own `TimeLimit`
    marks it, unless the step terminates, too. `CheckedEnv` checks and copies the numbers.

    Raises:
        ParameterError: a space is not a `Box`; says what to do.
    """

    def __init__(self, env: Any):
        self.gymnasium_env = env
        self.metadata = env.metadata
        self.observation_space = _box(
            "observation_space",
            getattr(env, "observation_space", None),
            "wrap the environment in gymnasium.wrappers.FlattenObservation",
        )
        self.action_space = _box(
            "action_space",
            getattr(env, "action_space", None),
            "SAC needs real-valued actions, so choose or wrap an environment that has them",
        )
        self._seed: int | None = None

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Stores the seed for the next reset, where Gymnasium takes it."""
        self._seed = seed
        return [seed]

    def reset(self, **kwargs: Any) -> Any:
        """The first observation of an episode.

        Raises:
            BrokenEnvironmentError: `reset` takes no seed, or does not return Gymnasium's pair.
        """
        seed, self._seed = self._seed, None
        try:
            answer = self.gymnasium_env.reset(seed=seed, **kwargs)
        except TypeError as error:
            if "unexpected keyword argument 'seed'" not in str(error):
                raise
            what = "reset must take `seed` and `options`, as in Gymnasium"
            raise BrokenEnvironmentError(f"the environment's {what} ({error})") from None
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
            what = "reset must return (observation, info), as in Gymnasium"
            raise BrokenEnvironmentError(f"the environment's {what}, got {echo(answer)}")
        return answer[0]

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Observation, reward, whether the episode is over, and `info` with the mark.

        Raises:
            BrokenEnvironmentError: the answer does not consist of Gymnasium's five parts.
        """
        try:
            answer = self.gymnasium_env.step(action)
        except ValueError as error:  # of a wrapper that unpacks the answer
            if "expected 5, got 4" not in str(error):
                raise
            what = f"step must return {STEP_API}, got four values"
            raise BrokenEnvironmentError(f"the environment's {what}: {OLD_STEP}") from None
        if not isinstance(answer, tuple) or len(answer) != 5:
            todo = f": {OLD_STEP}" if isinstance(answer, tuple) and len(answer) == 4 else ""
            what = f"step must return {STEP_API}, got {echo(answer)}{todo}"
            raise BrokenEnvironmentError(f"the environment's {what}")
        observation, reward, terminated, truncated, info = answer
        for name, value in {"terminated": terminated, "truncated": truncated}.items():
            if one_number(value) not in (0, 1):
                what = f"{name} must be True or False, got {echo(value)}"
                raise BrokenEnvironmentError(f"the environment's {what}")
        info = dict(info) if isinstance(info, dict) else {}
        info[TRUNCATED] = bool(truncated and not terminated)
        return observation, reward, bool(terminated or truncated), info

    def render(self, mode: str = "rgb_array") -> Any:
        """A picture of the current state, uint8 `[height, width, 3]`.

        Raises:
            ParameterError: the environment was made without `render_mode="rgb_array"`.
            RunError: MuJoCo cannot draw on this machine.
        """
        found = self.gymnasium_env.render_mode
        if found != mode:
            allowed = f"{mode!r} where the environment is made, so that it can be drawn"
            raise invalid("render_mode", found, allowed)
        if not hasattr(self.gymnasium_env.unwrapped, "mujoco_renderer"):
            return self.gymnasium_env.render()
        if os.environ.get("MUJOCO_GL") == "disable":  # as `labkit.runtime` sets it without EGL
            raise _cannot_draw("MUJOCO_GL is 'disable'")
        try:
            return self.gymnasium_env.render()
        except Exception as error:
            # What Gymnasium, PyOpenGL and MuJoCo raise without a driver has no type in common.
            raise _cannot_draw(first_line(error)) from error

    def close(self) -> None:
        """Closes the Gymnasium environment."""
        self.gymnasium_env.close()

    def time_limits(self) -> list[Any]:
        """Every Gymnasium `TimeLimit` around the environment; all have `_max_episode_steps`."""
        from gymnasium import Wrapper
        from gymnasium.wrappers import TimeLimit

        found, env = [], self.gymnasium_env
        while isinstance(env, Wrapper):
            if isinstance(env, TimeLimit):
                found.append(env)
            env = env.env
        return found


def _cannot_draw(reason: str) -> RunError:
    todo = f"it draws with EGL; on Debian: apt install {DEBIAN_PACKAGES}"
    return RunError(f"MuJoCo cannot draw on this machine ({reason}): {todo}")


def _box(name: str, space: Any, todo: str) -> gym.spaces.Box:
    """The same box as a space of Gym 0.23.

    Raises:
        ParameterError: it is another kind of space; says what to do.
    """
    from gymnasium.spaces import Box

    if not isinstance(space, Box):
        raise invalid(name, space, f"a Box of real numbers ({todo})")
    return gym.spaces.Box(space.low, space.high, space.shape, space.dtype)


def hide_deprecations() -> None:
    """Keeps MuJoCo from printing that Gymnasium's own robot models use deprecated attributes.

    It would also write that to a file in the working directory. Its other warnings go to stderr.
    """
    if "gymnasium" not in sys.modules:  # then no environment of it is about to be made
        return
    with contextlib.suppress(ImportError):  # not every environment needs MuJoCo
        import mujoco

        if mujoco.get_mju_user_warning() is None:  # a user's own stays
            mujoco.set_mju_user_warning(_show_warning)


def _show_warning(text: str) -> None:
    if "is deprecated" not in text:
        print(f"MuJoCo: {text}", file=sys.stderr)


def adapted(env: Any) -> Any:
    """A Gymnasium environment as a `GymnasiumEnv`; anything else as it is."""
    loaded = sys.modules.get("gymnasium")  # making such an environment imports it
    return GymnasiumEnv(env) if loaded and isinstance(env, loaded.Env) else env


def errors() -> tuple[type[Exception], ...]:
    """What Gymnasium raises for an environment that it cannot make; empty if it is not loaded."""
    loaded = sys.modules.get("gymnasium")
    return (loaded.error.Error,) if loaded else ()


def check_installed(name: str) -> None:
    """Rejects an id of Gymnasium where that is not installed.

    Raises:
        ParameterError: says what to install.
    """
    if importlib.util.find_spec("gymnasium") is None:
        raise invalid("env_name", name, f"a Gym id here, where Gymnasium is missing ({INSTALL})")


def check_name(name: str) -> None:
    """Rejects `gymnasium:Id` if that id is not registered; the error names the closest one.

    In `gymnasium:module:Id` the module registers the id when Gymnasium imports it.

    Raises:
        ParameterError: the id is not registered, or Gymnasium is not installed.
    """
    check_installed(name)
    import gymnasium

    module, _, wanted = name.removeprefix(PREFIX).rpartition(":")
    if module.startswith("."):
        allowed = "gymnasium:Id or gymnasium:module:Id, where the module has no leading dot"
        raise invalid("env_name", name, allowed)
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            allowed = f"an environment whose module can be imported ({first_line(error)})"
            raise invalid("env_name", name, allowed) from None
    if wanted not in gymnasium.registry:
        names = [PREFIX + known for known in gymnasium.registry]
        known = f"one of the {len(names)} ids that Gymnasium has"
        raise ParameterError(f"{invalid('env_name', name, known)}{did_you_mean(name, names)}")


def is_registered(name: str) -> bool:
    """Whether Gymnasium is installed and has this id, without the prefix."""
    if importlib.util.find_spec("gymnasium") is None:
        return False
    import gymnasium

    return name in gymnasium.registry


def make(name: str) -> Any:
    """The environment of `gymnasium:Id`, which can draw itself if it has that render mode."""
    import gymnasium

    wanted = name.removeprefix(PREFIX)
    try:  # labkit checks the answers itself
        return gymnasium.make(wanted, render_mode="rgb_array", disable_env_checker=True)
    except TypeError as error:
        if "render_mode" not in str(error):
            raise
        return gymnasium.make(wanted, disable_env_checker=True)


def try_out(env: gym.Wrapper) -> None:
    """Resets an adapted environment and takes a few steps, so that a wrong answer is found early.

    The caller seeds it afterwards, which leaves no trace of these steps. Does nothing with a Gym
    environment.

    Args:
        env: a `SeededEnv`.

    Raises:
        BrokenEnvironmentError: see `GymnasiumEnv` and `CheckedEnv`.
    """
    checked, space = env.env, env.action_space
    if not isinstance(env.unwrapped, GymnasiumEnv) or not isinstance(checked, CheckedEnv):
        return
    middle = np.clip(np.zeros(space.shape), space.low, space.high).astype(space.dtype)
    env.reset()
    for _ in range(TRIAL_STEPS):
        if env.step(middle)[2]:
            break
    checked.restart_count()
