"""An environment with its own random generators, which no other random draw can disturb."""

import contextlib
import faulthandler
import functools
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import gym
import numpy as np

from labkit.environments import gymnasium
from labkit.environments.checked import CheckedEnv
from labkit.errors import first_line
from labkit.parameters import invalid
from labkit.runtime import quiet

# Held while the global generators belong to one environment: another thread would use them, too.
GENERATORS = threading.RLock()

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment


@functools.cache
def _stderr() -> int:
    """A copy of stderr's descriptor, which neither `quiet` nor Jupyter redirects."""
    if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGTSTP, _suspend)
    try:
        return os.dup(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):
        return os.dup(2)


def _suspend(*_: Any) -> None:
    """Ctrl-Z: without this, a limit reached while the process is suspended would end it."""
    faulthandler.cancel_dump_traceback_later()
    os.kill(os.getpid(), signal.SIGSTOP)


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Ends the process if the block takes longer, even in a call that holds Python's lock.

    Python's `faulthandler` then prints where each thread is. Arming and cancelling takes 40 µs.
    """
    process = os.getpid()
    if seconds:
        faulthandler.dump_traceback_later(seconds, exit=True, file=_stderr())
    try:
        yield
    finally:
        if os.getpid() != process:  # a process that the environment forked must not train, too
            os._exit(1)
        if seconds:
            faulthandler.cancel_dump_traceback_later()


class SeededEnv(gym.Wrapper):
    """Gives one environment its own copy of the global random generators.

    The Minitaur's randomizer draws masses, battery voltage and friction from Python's and
    NumPy's global generators at each reset, and `env.seed` does not reach it: without this,
    an evaluation between two training steps would change what training sees next.

    Args:
        make: returns the environment, of Gym 0.23 or of Gymnasium; `CheckedEnv` checks and copies
            what that returns.
        max_episode_steps: env steps until the time limit; None takes the registered one, if any.
        timeout: seconds that a constructor, `seed`, a reset or a step may take; then Python's
            `faulthandler` prints the line that hangs and ends the process. 0 sets no limit.

    Raises:
        ParameterError: `make` does not return an environment of one of these.
    """

    came_from = "make_env"  # the user's parameter that chose it, for errors

    def __init__(
        self,
        make: Callable[[], Any],
        max_episode_steps: int | None = None,
        timeout: float = 0,
    ):
        self.timeout = timeout
        self._python_state = random.getstate()
        self._numpy_generator = np.random.MT19937()
        with self._own_generators(), quiet():
            gymnasium.hide_deprecations()
            env = gymnasium.adapted(make())
        if not isinstance(env, gym.Env):
            allowed = "a function that returns a gym.Env of Gym 0.23, or a gymnasium.Env"
            raise invalid("make_env", env, allowed)
        super().__init__(CheckedEnv(env, max_episode_steps))

    @contextlib.contextmanager
    def _own_generators(self) -> Iterator[None]:
        with GENERATORS, _limited(self.timeout), self._swapped():
            yield

    @contextlib.contextmanager
    def _swapped(self) -> Iterator[None]:
        global_python, global_numpy = random.getstate(), np.random.get_bit_generator()
        random.setstate(self._python_state)
        np.random.set_bit_generator(self._numpy_generator)
        try:
            yield
        finally:
            self._python_state = random.getstate()
            random.setstate(global_python)
            np.random.set_bit_generator(global_numpy)

    def seed(self, seed: int | None = None) -> Any:
        """Seeds its copy of the global generators, its action space, then the environment."""
        self._python_state = random.Random(seed).getstate()
        self._numpy_generator = np.random.MT19937(seed)
        self.env.action_space.seed(seed)
        with self._own_generators():
            return self.env.seed(seed)

    def get_state(self) -> dict[str, Any]:
        """Its copy of the global generators, as numbers and text for JSON."""
        numpy_state = self._numpy_generator.state
        key, position = numpy_state["state"]["key"].tolist(), numpy_state["state"]["pos"]
        return {"python": self._python_state, "numpy": {"key": key, "pos": int(position)}}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned, also after it was stored as JSON."""
        version, internal, gauss = state["python"]
        self._python_state = (version, tuple(internal), gauss)
        key = np.array(state["numpy"]["key"], np.uint32)
        inner: Any = {"key": key, "pos": state["numpy"]["pos"]}
        self._numpy_generator.state = {"bit_generator": "MT19937", "state": inner}

    def reset(self, **kwargs: Any) -> Any:
        """Begins an episode with this environment's own generators."""
        with self._own_generators(), quiet():  # some environments print here
            return self.env.reset(**kwargs)

    def close(self) -> None:
        """Closes the environment. An error is printed, not raised: no result depends on it."""
        try:
            with _limited(self.timeout):
                self.env.close()
        except Exception as error:
            why = f"{type(error).__name__}: {first_line(error)}"
            print(f"the environment could not be closed: {why}")

    def step(self, action: Any) -> Any:
        """Steps with this environment's own generators."""
        with self._own_generators():
            return self.env.step(action)


def seeded_env(env: "PyEnvironment") -> SeededEnv:
    """The wrapper that holds the environment's own generators."""
    return env.gym  # each wrapper of TF-Agents passes attributes on


def parameter_of(env: "PyEnvironment") -> str:
    """The parameter that chose the environment: `env_name` for an id, else `make_env`."""
    return getattr(seeded_env(env), "came_from", "make_env")


def raw_env(env: "PyEnvironment") -> Any:
    """The environment inside every wrapper, of Gym 0.23 or of Gymnasium."""
    inner = seeded_env(env).unwrapped
    return inner.gymnasium_env.unwrapped if isinstance(inner, gymnasium.GymnasiumEnv) else inner


def environment_name(env: "PyEnvironment") -> str:
    """The registered id, with Gymnasium's prefix; or the class, if it is not registered."""
    raw = raw_env(env)
    name = getattr(getattr(raw, "spec", None), "id", None)
    if not isinstance(name, str):
        return type(raw).__name__
    return name if isinstance(raw, gym.Env) else f"{gymnasium.PREFIX}{name}"
