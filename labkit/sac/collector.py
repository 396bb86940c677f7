"""Env steps: the one episode loop, and the collector that writes transitions with it."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.errors import DivergedError, ParameterError
from labkit.parameters import MANY, check_int, echo
from labkit.replay.n_step import NStepWriter
from labkit.replay.transitions import Transition, Write
from labkit.sac.policies import Policy, RepeatedPolicy, action_repeat

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment
    from tf_agents.trajectories.time_step import TimeStep


def play(
    env: "PyEnvironment", policy: Policy, time_step: "TimeStep", env_steps: int = 0
) -> Iterator[tuple[Transition, bool]]:
    """Plays an episode to its end; each item of the iterator takes one env step.

    The policy chooses an action in the first env step of the episode; from then on it chooses one
    in every k-th, with k its `action_repeat`. In between, the last action is taken again.

    `time_step` is what `env.reset()` returned; error messages count from `env_steps`, the number of
    env steps before this episode.

    Yields:
        Each transition, and whether the episode is over.

    Raises:
        ParameterError: an action has another shape than those of the environment, or the policy's
            `action_repeat` is not a whole number above 0.
        DivergedError: an action is infinite or not a number.
        BrokenEnvironmentError: see `CheckedEnv`.
    """
    repeat = check_int("policy.action_repeat", action_repeat(policy), 1, MANY, "env steps")
    left = 0
    shape = env.action_spec().shape
    while not time_step.is_last():
        observation = time_step.observation
        if left == 0:
            action, left = policy(observation), repeat
            if np.shape(action) != shape:
                raise ParameterError(
                    f"`policy` must return actions of shape {shape}, got {echo(action)}"
                )
        left -= 1
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
            be replaced at any time, by a policy of the same `action_repeat`.
        write: takes each transition: one for each action that the policy chose (see `NStepWriter`).
        before_episode: called before each reset.
        n_step: actions of a transition, 1 or more; it spans as many env steps as these last.
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
        self._repeat = action_repeat(policy)
        self._windows = NStepWriter(write, n_step * self._repeat, gamma)
        self._episode: Iterator[tuple[Transition, bool]] | None = None
        self._return, self._length = 0.0, 0

    def run(self, steps: int) -> None:
        """Takes `steps` env steps; resets between episodes do not count."""
        for _ in range(steps):
            if self._episode is None:
                self._before_episode()
                first, self._return, self._length = self._env.reset(), 0.0, 0
                newest = RepeatedPolicy(lambda observed: self.policy(observed), self._repeat)
                self._episode = play(self._env, newest, first, self.env_steps)
            transition, over = next(self._episode)
            self._windows.write(transition, chosen=self._length % self._repeat == 0)
            self._return += float(transition.reward)
            self._length += 1
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


def transitions_of(env_steps: int, repeat: int) -> int:
    """Transitions that `env_steps` env steps give if each action lasts `repeat` of them."""
    return -(-env_steps // repeat)


def env_steps_of(transitions: int, repeat: int) -> int:
    """Env steps that gave `transitions` transitions, if each action lasts `repeat` of them.

    The end of an episode may cut its last action: then it had up to `repeat` - 1 env steps fewer.
    """
    return transitions * repeat


def check_finite(action: np.ndarray, env_step: int) -> None:
    """Rejects an action that is infinite or not a number; `CheckedEnv` checks the rest.

    Raises:
        DivergedError: the policy's weights are infinite or not numbers.
    """
    if not np.isfinite(action).all():
        index = np.flatnonzero(~np.isfinite(action))[0]
        found = f"action[{index}] is {np.ravel(action)[index]} at env step {env_step}"
        raise DivergedError(f"{found}: the policy's weights are infinite or not numbers")
