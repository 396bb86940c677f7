"""Environments by name: seeded on their own, quiet, and honest about time limits."""

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import gym
import numpy as np

from labkit.config import ParameterError, nearest
from labkit.runtime import quiet
from labkit.watchdog import Watchdog


def known_names() -> list[str]:
    """Ids of every registered Gym and PyBullet environment, sorted."""
    with quiet():
        import pybullet_envs  # noqa: F401  (importing it registers its environments)
    return sorted(spec.id for spec in gym.envs.registry.all())


def check_name(name: str) -> None:
    """Refuses an id that is not registered, and names the nearest one that is.

    Raises:
        ParameterError: `name` is not registered.
    """
    names = known_names()
    if name not in names:
        raise ParameterError(
            f"env_name = {name!r} is refused: allowed is a registered Gym id "
            f"({len(names)} are known){nearest(name, names)}"
        )


class Isolated(gym.Wrapper):
    """Gives one environment its own copy of the global random generators.

    The Minitaur's randomizer draws masses, battery voltage and friction from Python's and
    NumPy's global generators at each reset, and `env.seed` does not reach it: without this,
    an evaluation between two training steps would change what training sees next.
    """

    def __init__(
        self,
        make: Callable[[], gym.Env],
        max_episode_steps: int | None = None,
        bootstrap_time_limits: bool = True,
    ):
        self.watchdog = Watchdog()  # one that watches nothing
        self._python_state = random.getstate()
        self._numpy_generator = np.random.MT19937()
        with self._own_generators(), quiet():
            env = make()
        # gym's TimeLimit reports the end of time as a terminal state; TF-Agents' own wrapper,
        # put around this one in `make`, ends the episode and leaves the discount at 1.
        registered = None
        while isinstance(env, gym.wrappers.TimeLimit | gym.wrappers.OrderEnforcing):
            if isinstance(env, gym.wrappers.TimeLimit):
                registered = env._max_episode_steps
            env = env.env
        self.max_episode_steps = max_episode_steps or registered
        if self.max_episode_steps and not bootstrap_time_limits:
            env = gym.wrappers.TimeLimit(env, self.max_episode_steps)
            self.max_episode_steps = None
        super().__init__(env)

    @contextlib.contextmanager
    def _own_generators(self) -> Iterator[None]:
        self.watchdog.turn()
        global_python, global_numpy = random.getstate(), np.random.get_bit_generator()
        random.setstate(self._python_state)
        np.random.set_bit_generator(self._numpy_generator)
        try:
            yield
        finally:
            self._python_state = random.getstate()
            random.setstate(global_python)
            np.random.set_bit_generator(global_numpy)
            self.watchdog.turn()

    def seed(self, seed: int | None = None) -> Any:
        """Seeds the environment, its action space and its copy of the global generators."""
        self._python_state = random.Random(seed).getstate()
        self._numpy_generator = np.random.MT19937(seed)
        self.env.action_space.seed(seed)
        return self.env.seed(seed)

    def get_state(self) -> dict[str, Any]:
        """Its copy of the global generators, as numbers and text that JSON holds."""
        numpy_state = self._numpy_generator.state
        key, position = numpy_state["state"]["key"].tolist(), numpy_state["state"]["pos"]
        return {"python": self._python_state, "numpy": {"key": key, "pos": int(position)}}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes what `get_state` gave, also after a way through JSON."""
        version, internal, gauss = state["python"]
        self._python_state = (version, tuple(internal), gauss)
        key = np.array(state["numpy"]["key"], np.uint32)
        inner: Any = {"key": key, "pos": state["numpy"]["pos"]}
        self._numpy_generator.state = {"bit_generator": "MT19937", "state": inner}

    def reset(self, **kwargs: Any) -> Any:
        """Begins an episode with this environment's own generators."""
        with self._own_generators(), quiet():  # some environments first connect here, and print
            return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        """Steps with this environment's own generators."""
        with self._own_generators():
            return self.env.step(action)


def make(
    name: str | Callable[[], gym.Env],
    seed: int | None = None,
    max_episode_steps: int | None = None,
    bootstrap_time_limits: bool = True,
):
    """A TF-Agents `PyEnvironment`; a time limit ends an episode with discount 1, a fall with 0.

    Args:
        name: a registered id, or a callable that returns a Gym 0.23 environment: one's own
            environment is `make(MyEnv, max_episode_steps=200)`.
        seed: seeds everything the environment draws from; None leaves it unpredictable.
        max_episode_steps: env steps until the time limit; None takes the registered one, if any.
        bootstrap_time_limits: False gives the end of time discount 0 too, as gym's own time limit
            does: for comparison (Pardo et al. 2018, "Time Limits in Reinforcement Learning").

    Raises:
        ParameterError: an unknown id, or an environment that this host cannot make.
    """
    if isinstance(name, str):
        check_name(name)
        maker: Callable[[], gym.Env] = gym.spec(name).make
    else:
        maker = name
    try:
        isolated = Isolated(maker, max_episode_steps, bootstrap_time_limits)
    except (ImportError, gym.error.Error) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ParameterError(f"env_name = {name!r} cannot be made here: {reason}") from None
    isolated.seed(seed)
    from tf_agents.environments import suite_gym  # imports TensorFlow: not before it is needed

    return suite_gym.wrap_env(isolated, max_episode_steps=isolated.max_episode_steps)


def check_specs(env) -> None:
    """Refuses what SAC cannot train on: anything but flat observations and bounded actions.

    Raises:
        ParameterError: names the environment and what it offers.
    """
    action_spec = env.action_spec()
    name = raw(env).spec.id if raw(env).spec else type(raw(env)).__name__
    for kind, spec in (("observations", env.observation_spec()), ("actions", action_spec)):
        shape, dtype = getattr(spec, "shape", None), getattr(spec, "dtype", None)
        if shape is None or len(shape) != 1 or not np.issubdtype(dtype, np.floating):
            raise ParameterError(
                f"env_name = {name!r} is refused: SAC needs one vector of real-valued {kind}; this "
                f"one has {kind} of shape {shape} and dtype {dtype}"
            )
    # TF-Agents makes the largest float32 of an infinite bound.
    if np.max(np.abs([action_spec.minimum, action_spec.maximum])) >= np.finfo(np.float32).max:
        raise ParameterError(
            f"env_name = {name!r} is refused: SAC needs bounded actions; this one's reach from "
            f"{np.min(action_spec.minimum):g} to {np.max(action_spec.maximum):g}"
        )


def isolated(env) -> Isolated:
    """The wrapper that holds the environment's own generators."""
    while hasattr(env, "wrapped_env"):
        env = env.wrapped_env()
    return env.gym


def raw(env) -> gym.Env:
    """The Gym environment inside every wrapper."""
    return isolated(env).unwrapped


def step_seconds(env) -> float:
    """Simulated seconds of one env step: 0.01 for the Minitaur, whatever its metadata say."""
    inner = raw(env)
    if hasattr(inner, "_action_repeat") and hasattr(inner, "_time_step"):
        return inner._time_step * inner._action_repeat
    if getattr(inner, "scene", None) is not None and hasattr(inner.scene, "dt"):
        return inner.scene.dt
    if hasattr(inner, "tau"):
        return inner.tau
    rates = [inner.metadata.get(key) for key in ("render_fps", "video.frames_per_second")]
    return 1.0 / next((rate for rate in rates if rate), 50)


def forward_position(env) -> float | None:
    """The base's place along the axis it is paid to move along, in metres; None without one."""
    inner = raw(env)
    if hasattr(inner, "minitaur"):
        return float(inner.minitaur.GetBasePosition()[0])
    if hasattr(getattr(inner, "robot", None), "walk_target_x"):
        return float(inner.robot.body_xyz[0])
    return None
