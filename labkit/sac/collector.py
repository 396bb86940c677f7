"""Env steps: the one episode loop, and the collector that writes transitions with it."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.errors import DivergedError, ParameterError
from labkit.parameters import echo
from labkit.replay.n_step import NStepWriter
from labkit.replay.transitions import Transition, Write
from labkit.sac.policies import Policy

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment
    from tf_agents.trajectories.time_step import TimeStep


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
        BrokenEnvironmentError: see `CheckedEnv`.
    """
    shape = env.action_spec().shape
    while not time_step.is_last():
        observation = time_step.observation
        action = policy(observation)
        if np.shape(action) != shape:
            raise ParameterError(
                f"`policy` must return actions of shape {shape}, got {echo(action)}"
            )
        env_steps += 1
        check_finite(action, env_steps)
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
                newest = lambda observation: self.policy(observation)  # noqa: E731
                self._episode = play(self._env, newest, first, self.env_steps)
            transition, over = next(self._episode)
            self._windows.write(transition)
            self._return += float(transition.reward)
            self.env_steps += 1
            if over:
                self._windows.end()
                self.recent_returns.append(self._return)
                self._episode = None

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


def check_finite(action: np.ndarray, env_step: int) -> None:
    """Rejects an action that is infinite or not a number; `CheckedEnv` checks the rest.

    Raises:
        DivergedError: the policy's weights are infinite or not numbers.
    """
    if not np.isfinite(action).all():
        index = np.flatnonzero(~np.isfinite(action))[0]
        found = f"action[{index}] is {np.ravel(action)[index]} at env step {env_step}"
        raise DivergedError(f"{found}: the policy's weights are infinite or not numbers")
