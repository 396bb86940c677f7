"""Environments of Gym 0.23 and Gymnasium as TF-Agents environments, with checked answers."""

import contextlib
import faulthandler
import functools
import os
import random
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import gym
import numpy as np
from tf_agents.environments.gym_wrapper import spec_from_gym_space
from tf_agents.environments.py_environment import PyEnvironment
from tf_agents.trajectories import time_step as ts

from labkit.errors import BrokenEnvironmentError
from labkit.parameters import echo, invalid
from labkit.runtime import quiet

# Modules of environments that live in this process's memory, without thread, socket or GPU, and
# whose episodes depend on their seed alone. Those of Box2D also depend on the episode before.
FORKABLE = r"pybullet_envs|labkit\.environments|gym(nasium)?\.(wrappers|envs\.(classic|mujoco))"
TRUNCATED = "TimeLimit.truncated"  # Gym's mark in `info`
# Held while the global generators belong to one environment: another thread would use them, too.
GENERATORS = threading.RLock()
let_go = GENERATORS.release  # a fork lacks the thread that would do so
os.register_at_fork(before=GENERATORS.acquire, after_in_parent=let_go, after_in_child=let_go)


class GymEnvironment(PyEnvironment):
    """An environment of Gym, or a `GymnasiumEnv`, whose answers can be stored as they are.

    - Observations in a box are copied as float32 `[obs]`: an environment may return the buffer that
      its next step changes. It gets a copy of the action `[act] float32`, in its own dtype and
      within its bounds. Other spaces stay as they are.
    - The environment has its own copy of Python's and NumPy's global random generators, from which
      the Minitaur draws at each reset. Else an evaluation would change what training sees next.
    - `can_fork` is whether forks of this process can play its episodes; not for a user's own.
    - `limit`, in env steps, replaces every other time limit; None takes the smallest one.

    Raises:
        ParameterError: `make` returns no environment; has the `name` of the user's parameter.
        BrokenEnvironmentError: an answer is not finite, or not of its shape; names the step.
    """

    def __init__(
        self, make: Callable[[], Any], limit: int | None, bootstrap: bool, timeout: float, name: str
    ):
        super().__init__(handle_auto_reset=True)
        self.timeout, self.parameter, self._bootstrap = timeout, name, bootstrap
        self._steps = self._episode_steps = 0  # since it was made; in its episode
        self._python_state, self._numpy_generator = random.getstate(), np.random.MT19937()
        with self._in_use(), quiet():
            env = make()
            gymnasium = sys.modules.get("gymnasium")  # making such an environment imports it
            if gymnasium and isinstance(env, gymnasium.Env):
                env = GymnasiumEnv(env)
        if not isinstance(env, gym.Env | GymnasiumEnv):
            raise invalid(name, env, "a function that returns a gym.Env or a gymnasium.Env")
        self.env, self.raw = env, env.unwrapped
        limits: list[int] = []
        self.can_fork = bool(re.match(FORKABLE, type(self.raw).__module__))
        while "env" in vars(env):  # a wrapper; both libraries have one with this attribute
            self.can_fork &= bool(re.match(FORKABLE, type(env).__module__))
            if own := vars(env).get("_max_episode_steps"):
                limits.append(own)
                env._max_episode_steps = sys.maxsize if limit else own
            env = env.env
        self.max_episode_steps = limit or min(limits, default=None)
        self._takes: Any = self.env.action_space
        self.action_space = _own_space(self.env, "action_space", "f")
        self.observation_space = _own_space(self.env, "observation_space", "fiub")

    @property
    def gym(self) -> "GymEnvironment":
        """Itself: wrappers of TF-Agents pass this attribute on."""
        return self

    def action_spec(self) -> Any:
        """The action, `[act] float32` unless the space is no box of real numbers."""
        return spec_from_gym_space(self.action_space, name="action")

    def observation_spec(self) -> Any:
        """The observation, `[obs] float32` unless the space is no box."""
        return spec_from_gym_space(self.observation_space, name="observation")

    def seed(self, seed: int | None = None) -> None:
        """Seeds its copy of the global generators, its action space, then the environment."""
        self._python_state = random.Random(seed).getstate()
        self._numpy_generator = np.random.MT19937(seed)
        self.action_space.seed(seed)
        with self._in_use():
            self.env.seed(seed)

    def get_state(self) -> dict[str, Any]:
        """Its copy of the global generators, as numbers and text for JSON."""
        state = self._numpy_generator.state["state"]
        return {"python": self._python_state, "numpy": {**state, "key": state["key"].tolist()}}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned, also after it was stored as JSON."""
        version, internal, gauss = state["python"]
        self._python_state = version, tuple(internal), gauss
        self._numpy_generator.state = {"bit_generator": "MT19937", "state": state["numpy"]}

    def render(self, mode: str = "rgb_array") -> Any:
        """What the environment draws, uint8 `[height, width, 3]`."""
        return self.env.render(mode=mode)

    def close(self) -> None:
        """Closes the environment."""
        with self._in_use():
            self.env.close()

    def _reset(self) -> ts.TimeStep:
        self._episode_steps = 0
        with self._in_use(), quiet():  # some environments print here
            observation = self.env.reset()
        return ts.restart(self._observation(observation))

    def _step(self, action: Any) -> ts.TimeStep:
        self._steps += 1
        self._episode_steps += 1
        if self.action_space.dtype == np.float32:  # rounded, an action may be beyond a bound
            action = np.array(action, self._takes.dtype)
            action = np.clip(action, self._takes.low, self._takes.high)
        with self._in_use():
            answer = self.env.step(action)
        observation, reward, done, info = _parts(answer, "step", "observation, reward, done, info")
        observation, reward = self._observation(observation), self._reward(reward)
        at_limit = self._episode_steps == self.max_episode_steps
        if self._bootstrap and (info.get(TRUNCATED) if done else at_limit):
            return ts.truncation(observation, reward)
        if done or at_limit:
            return ts.termination(observation, reward)
        return ts.transition(observation, reward)

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        """The environment may run in this block, for `timeout` seconds, with its generators.

        After that time `faulthandler` ends the process, even in a call that holds Python's lock.
        """
        with GENERATORS:
            process, global_python = os.getpid(), random.getstate()
            global_numpy = np.random.get_bit_generator()
            random.setstate(self._python_state)
            np.random.set_bit_generator(self._numpy_generator)
            if self.timeout:
                faulthandler.dump_traceback_later(self.timeout, exit=True, file=_stderr())
            try:
                yield
            finally:
                if os.getpid() != process:  # one that the environment forked must not train, too
                    os._exit(1)
                if self.timeout:
                    faulthandler.cancel_dump_traceback_later()
                self._python_state = random.getstate()
                random.setstate(global_python)
                np.random.set_bit_generator(global_numpy)

    def _observation(self, observation: Any) -> Any:
        if not isinstance(self.observation_space, gym.spaces.Box):
            return observation
        try:
            copy = np.array(observation, np.float32)
        except (TypeError, ValueError):
            self._broken(f"observation must be an array of numbers, got {echo(observation)}")
        if copy.shape != self.observation_space.shape:
            self._broken(f"observation has shape {copy.shape}, not {self.observation_space.shape},")
        if not np.isfinite(copy).all():
            index = np.flatnonzero(~np.isfinite(copy))[0]
            self._broken(f"observation[{index}] is {copy.ravel()[index]}")
        return copy

    def _reward(self, reward: Any) -> float:
        try:
            number = float(np.asarray(reward).item())  # an array of one number will do
        except (TypeError, ValueError):
            self._broken(f"reward must be one number, got {echo(reward)}")
        if not abs(number) <= float(np.finfo(np.float32).max):  # NaN is not, either
            self._broken(f"reward is {number:g}")
        return number

    def _broken(self, what: str) -> NoReturn:
        where = f"at its env step {self._steps}, step {self._episode_steps} of the episode"
        raise BrokenEnvironmentError(f"the environment's {what} {where}")


class GymnasiumEnv:
    """An environment of Gymnasium with the methods of a Gym 0.23 one."""

    def __init__(self, env: Any):
        self.env, self.unwrapped, self.close = env, env.unwrapped, env.close
        self.render = lambda mode: env.render()  # in the mode with which it was made
        self.action_space, self.observation_space = env.action_space, env.observation_space
        self._seed: int | None = None
        self.reset()  # and a step: a wrong answer is found before any work
        self.step(env.action_space.sample())

    def seed(self, seed: int | None) -> None:
        """Stores the seed for the next reset, where Gymnasium takes it."""
        self._seed = seed

    def reset(self) -> Any:
        """The first observation of an episode."""
        seed, self._seed = self._seed, None
        return _parts(self.env.reset(seed=seed), "reset", "observation, info")[0]

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Observation, reward, whether the episode is over, and `info` with Gym's mark."""
        names = "observation, reward, terminated, truncated, info"
        *others, terminated, truncated, info = _parts(self.env.step(action), "step", names)
        return *others, terminated or truncated, {**info, TRUNCATED: truncated and not terminated}


def _parts(answer: Any, method: str, names: str) -> Any:
    if isinstance(answer, tuple) and len(answer) == 1 + names.count(","):
        return answer  # that of the other library has other parts
    what = f"{method} must return ({names}), got {echo(answer)}"
    raise BrokenEnvironmentError(f"the environment's {what}")


def _own_space(env: Any, name: str, kinds: str) -> gym.Space:
    """A box of float32 for a box of these kinds of dtype; another space of Gym as it is."""
    space: Any = getattr(env, name, None)
    if type(space).__name__ == "Box" and space.dtype.kind in kinds:  # of either library
        with np.errstate(over="ignore"):  # a bound that float32 cannot hold is no bound
            low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        return gym.spaces.Box(low, high, dtype=np.float32)
    if isinstance(space, gym.Space):
        return space
    raise invalid(name, space, "a Box of real numbers (see gymnasium.wrappers.FlattenObservation)")


@functools.cache
def _stderr() -> int:
    """A copy of stderr's descriptor, which neither `quiet` nor Jupyter redirects."""
    if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGTSTP, _suspend)
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return os.dup(sys.stderr.fileno())
    return os.dup(2)


def _suspend(*_: Any) -> None:
    """Ctrl-Z: without this, a limit reached while the process is suspended would end it."""
    faulthandler.cancel_dump_traceback_later()
    os.kill(os.getpid(), signal.SIGSTOP)
