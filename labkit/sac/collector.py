"""One environment, one policy, one writer: env steps become transitions in the replay table."""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from labkit.environments.physics import forward_position
from labkit.errors import BrokenEnvironmentError, DivergedError
from labkit.replay.n_step import NStepWriter
from labkit.sac.policies import Policy


class Collector:
    """Steps one environment with one policy and hands each transition to `write`.

    Args:
        env: a TF-Agents `PyEnvironment`; a new episode is begun at the first step.
        policy: maps an observation `[obs]` to an action `[act]`.
        write: takes `(obs_tm1, a_tm1, r_t, discount_t, obs_t)`, such as `ReverbReplay.write`.
        new_episode: is called before each episode.
        n_step, gamma: each transition spans that many env steps, see `NStepWriter`.
    """

    def __init__(
        self,
        env,
        policy: Policy,
        write: Callable[..., None],
        new_episode: Callable[[], None] = lambda: None,
        n_step: int = 1,
        gamma: float = 1.0,
    ):
        self.policy = policy
        self.env_steps = 0
        self.recent_returns: deque[float] = deque(maxlen=10)
        self._env, self._new_episode = env, new_episode
        self._rows = NStepWriter(write, n_step, gamma)
        self._time_step: Any = None
        self._return = 0.0

    def run(self, steps: int) -> None:
        """Takes `steps` env steps; resets between episodes are not counted."""
        for _ in range(steps):
            if self._time_step is None or self._time_step.is_last():
                self._new_episode()
                self._time_step, self._return = self._env.reset(), 0.0
            observation = self._time_step.observation
            action = self.policy(observation)
            self._time_step = self._env.step(action)
            check_answer(observation, action, self._time_step, self.env_steps + 1)
            reward, discount = self._time_step.reward, self._time_step.discount
            self._rows.write(observation, action, reward, discount, self._time_step.observation)
            self._return += float(reward)
            self.env_steps += 1
            if self._time_step.is_last():
                self._rows.end()
                self.recent_returns.append(self._return)

    def end(self) -> None:
        """Writes what waits for the rest of its window; no step may follow."""
        self._rows.end()

    def get_state(self) -> dict[str, Any]:
        """What a new collector needs to go on, an unfinished episode excepted; fit for JSON."""
        return {"env_steps": self.env_steps, "recent_returns": list(self.recent_returns)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes what `get_state` gave; the next step begins a new episode."""
        self.env_steps = state["env_steps"]
        self.recent_returns = deque(state["recent_returns"], maxlen=10)
        self._time_step = None
        self._rows.drop()

    def mean_return(self) -> float:
        """Mean return of the last ten finished episodes; NaN before the first."""
        return float(np.mean(self.recent_returns)) if self.recent_returns else float("nan")


def check_answer(asked: np.ndarray, action: np.ndarray, step, env_step: int) -> None:
    """Refuses to go on with what is infinite or not a number; it would spread into every weight.

    Args:
        asked: the observation that the policy was given, `[obs]`.
        action: what it chose, `[act]`.
        step: what the environment answered, a `TimeStep`.
        env_step: says in the message where that was.

    Raises:
        DivergedError: the action is not finite.
        BrokenEnvironmentError: the observation or the reward is not, or has another shape.
    """
    observation, reward = step.observation, step.reward
    if observation.shape != asked.shape:
        raise BrokenEnvironmentError(
            f"the environment's observation has shape {observation.shape}, not {asked.shape}, "
            f"at env step {env_step}"
        )
    for name, value in (("action", action), ("observation", observation), ("reward", reward)):
        if np.isfinite(value).all():
            continue
        where = np.flatnonzero(~np.isfinite(value))[0]
        place = f"{name}[{where}]" if np.ndim(value) else name
        said = f"{place} is {np.ravel(value)[where]} at env step {env_step}"
        if name == "action":
            raise DivergedError(f"{said}: the policy's weights are infinite or not numbers")
        raise BrokenEnvironmentError(f"the environment's {said}")


def play_episode(env, policy: Policy) -> tuple[float, int, float]:
    """One episode: its return, its length in env steps, its forward distance in metres.

    The distance is NaN where the environment has no base that moves forward.
    """
    step, total, length = env.reset(), 0.0, 0
    start = forward_position(env)
    while not step.is_last():
        observation = step.observation
        action = policy(observation)
        step = env.step(action)
        length += 1
        check_answer(observation, action, step, length)
        total += float(step.reward)
    end = forward_position(env)
    moved = float("nan") if start is None or end is None else end - start
    return total, length, moved
