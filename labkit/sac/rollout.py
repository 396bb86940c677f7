"""Env steps: the one episode loop, the collector that writes transitions, and the evaluation."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from labkit.environments.make import MAX_SEED, forward_position
from labkit.errors import DivergedError, ParameterError
from labkit.parameters import MANY, check_int, echo, grouped, invalid
from labkit.replay.n_step import NStepWriter
from labkit.replay.transitions import Transition, Write

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment
    from tf_agents.trajectories.time_step import TimeStep
    from tf_agents.typing.types import BoundedArraySpec

EPISODE_LIMIT = 100_000  # env steps of an evaluation episode without a time limit
Policy = Callable[[np.ndarray], np.ndarray]  # observation [obs] → action [act], both float32


def random_policy(action_spec: "BoundedArraySpec", seed: int) -> Policy:
    """Draws each action uniformly between the bounds of `action_spec`."""
    generator = np.random.default_rng(seed)
    low = np.broadcast_to(action_spec.minimum, action_spec.shape)
    high = np.broadcast_to(action_spec.maximum, action_spec.shape)
    return lambda _: generator.uniform(low, high).astype(np.float32)


def play(
    env: "PyEnvironment", policy: Policy, time_step: "TimeStep", env_steps: int = 0
) -> Iterator[tuple[Transition, bool]]:
    """Plays an episode to its end; each item of the iterator takes one env step.

    `time_step` is what `env.reset()` returned; error messages count from `env_steps`, the number of
    env steps before this episode.

    Yields:
        Each transition, and whether the episode is over.

    Raises:
        ParameterError: an action has another shape than those of the environment.
        DivergedError: an action is infinite or not a number.
        BrokenEnvironmentError: an observation or a reward is not finite, or of another kind.
    """
    shape = env.action_spec().shape
    while not time_step.is_last():
        observation = time_step.observation
        action = policy(observation)
        env_steps += 1
        if np.shape(action) != shape:
            raise ParameterError(
                f"`policy` must return actions of shape {shape}, got {echo(action)}"
            )
        if not np.isfinite(action).all():
            index = np.flatnonzero(~np.isfinite(action))[0]
            found = f"action[{index}] is {np.ravel(action)[index]} at env step {env_steps}"
            raise DivergedError(f"{found}: the policy's weights are infinite or not numbers")
        time_step = env.step(action)
        reward, discount = time_step.reward, time_step.discount
        transition = Transition(observation, action, reward, discount, time_step.observation)
        yield transition, bool(time_step.is_last())


class Collector:
    """Steps one environment with one policy and hands each transition to `write`.

    The first step begins a new episode.

    Args:
        env: shared with nobody else.
        policy: maps an observation `[obs] float32` to an action `[act] float32`; the attribute may
            be replaced at any time.
        write: takes each transition; see `NStepWriter`.
        before_episode: called before each reset.
        n_step: env steps of a transition, 1 or more.
        gamma: discount per env step.

    Attributes:
        env_steps: env steps so far.
        recent_returns: undiscounted returns of the last ten finished episodes.
    """

    def __init__(
        self,
        env: "PyEnvironment",
        policy: Policy,
        write: Write,
        before_episode: Callable[[], None] = lambda: None,
        n_step: int = 1,
        gamma: float = 1.0,
    ):
        self.policy = policy
        self.env_steps = 0
        self.recent_returns: deque[float] = deque(maxlen=10)
        self._env, self._before_episode = env, before_episode
        self._windows = NStepWriter(write, n_step, gamma)
        self._episode: Iterator[tuple[Transition, bool]] | None = None
        self._return = 0.0

    def run(self, steps: int) -> None:
        """Takes `steps` env steps; resets between episodes do not count."""
        for _ in range(steps):
            if self._episode is None:
                self._before_episode()
                first, self._return = self._env.reset(), 0.0
                self._episode = play(self._env, self._newest_policy, first, self.env_steps)
            transition, over = next(self._episode)
            self._windows.write(transition)
            self._return += float(transition.reward)
            self.env_steps += 1
            if over:
                self._windows.end()
                self.recent_returns.append(self._return)
                self._episode = None

    def _newest_policy(self, observation: np.ndarray) -> np.ndarray:
        return self.policy(observation)

    def end(self) -> None:
        """Writes the n-step windows that are still open; no step may follow."""
        self._windows.end()

    def get_state(self) -> dict[str, Any]:
        """What a new collector needs to resume, for JSON; not the unfinished episode."""
        return {"env_steps": self.env_steps, "recent_returns": list(self.recent_returns)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned; the next step begins a new episode."""
        self.env_steps = state["env_steps"]
        self.recent_returns = deque(state["recent_returns"], maxlen=10)
        self._episode = None
        self._windows.drop()

    def mean_return(self) -> float:
        """Mean return of the last ten finished episodes; NaN before the first."""
        return float(np.mean(self.recent_returns)) if self.recent_returns else float("nan")


@attrs.frozen
class Evaluation:
    """The results of some episodes; each field holds one float per episode.

    Attributes:
        returns: undiscounted sums of the environment's own, unscaled reward.
        lengths: env steps.
        distances: metres forward; NaN where the environment has no base that moves forward.
    """

    returns: tuple[float, ...]
    lengths: tuple[float, ...]
    distances: tuple[float, ...]

    @property
    def mean_return(self) -> float:
        """Mean of the returns."""
        return float(np.mean(self.returns))

    def __str__(self) -> str:
        spread = f" ± {np.std(self.returns, ddof=1):.2f}" if len(self.returns) > 1 else ""
        text = f"mean return {self.mean_return:+.2f}{spread} over {len(self.returns)} episodes"
        text += f", mean length {np.mean(self.lengths):.0f} steps"
        if np.isfinite(self.distances).all():
            text += f", mean forward distance {np.mean(self.distances):.2f} m"
        return text


def evaluate(
    env: "PyEnvironment",
    policy: Policy,
    episodes: int,
    seed: int,
    after_episode: Callable[[int], None] = lambda done: None,
    after_step: Callable[[], None] = lambda: None,
) -> Evaluation:
    """Plays `episodes` episodes; the same seed gives the same episodes.

    The environment is seeded here: training must not share it. The policy maps an observation
    `[obs]` to an action `[act]` and is deterministic for a final score. `after_episode` receives
    the number of finished episodes, for a progress display; `after_step` may raise to stop.

    In an environment without a time limit an episode is cut after `EPISODE_LIMIT` env steps, with a
    message.

    Raises:
        ParameterError: `env` is of another kind, such as a Gym environment; `policy` is no
            function, or its actions have another shape; `episodes` or `seed` is not allowed.
        DivergedError: an action is not finite.
        BrokenEnvironmentError: an observation or a reward is not finite, or of another kind.
    """
    if not (hasattr(env, "time_step_spec") and hasattr(env, "gym")):
        raise invalid("env", env, "what labkit.make_environment(id or MyEnv) returns")
    if not callable(policy):
        raise invalid("policy", policy, "a function from an observation to an action")
    episodes = check_int("episodes", episodes, 1, MANY, "episodes")
    seed = check_int("seed", seed, 0, MAX_SEED, "seed of the episodes")
    env.seed(seed)
    rows = []
    for done in range(1, episodes + 1):
        rows.append(play_episode(env, policy, after_step))
        after_episode(done)
    returns, lengths, distances = zip(*rows, strict=True)
    return Evaluation(returns, tuple(float(n) for n in lengths), distances)


def play_episode(
    env: "PyEnvironment", policy: Policy, after_step: Callable[[], None] = lambda: None
) -> tuple[float, int, float]:
    """One episode: its return, its length in env steps, its forward distance in metres.

    The distance is NaN where the environment has no base that moves forward.
    """
    first, total, length = env.reset(), 0.0, 0
    start = forward_position(env)
    limited = getattr(env.gym, "max_episode_steps", None) is not None
    for transition, over in play(env, policy, first):
        total += float(transition.reward)
        length += 1
        after_step()
        if length == EPISODE_LIMIT and not limited and not over:
            print(
                f"an evaluation episode was cut after {grouped(length)} env steps: this "
                "environment has no time limit; `max_episode_steps` sets one"
            )
            break
    end = forward_position(env)
    moved = float("nan") if start is None or end is None else end - start
    return total, length, moved
