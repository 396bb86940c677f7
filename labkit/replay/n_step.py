"""Transitions over several env steps: their rewards summed, their discounts multiplied."""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np


class NStepWriter:
    """Turns single env steps into transitions over `steps` of them, one for each step taken.

    With rewards r, the environment's discounts d and γ it writes, for the step at time t,

        r_t = Σ_k γ^k d_1 … d_k r_{t+k},  discount_t = γ^(n-1) d_1 … d_n,  obs_t: n steps later

    so that a critic that computes r_t + γ · discount_t · V(obs_t) learns from n rewards at once
    (Sutton and Barto 2018, equation 7.1; no correction for the actions in between being older than
    the policy). At the end of an episode the last windows are shorter.

    Args:
        write: takes `(obs_tm1 [obs], a_tm1 [act], r_t, discount_t, obs_t [obs])`.
        steps: n, 1 or more; with 1 each step is written as it is.
        gamma: γ, the discount per env step.
    """

    def __init__(self, write: Callable[..., Any], steps: int, gamma: float):
        self._write, self._steps, self._gamma = write, steps, gamma
        self._open: deque[list[Any]] = (
            deque()
        )  # [observation, action, reward, discount], oldest first
        self._newest: Any = None

    def write(self, obs_tm1, a_tm1, r_t, discount_t, obs_t) -> None:
        """Adds one env step; writes the window that is now full."""
        for window in self._open:
            window[2] += self._gamma * window[3] * r_t
            window[3] *= self._gamma * discount_t
        self._open.append([obs_tm1, a_tm1, np.float32(r_t), np.float32(discount_t)])
        self._newest = obs_t
        if len(self._open) == self._steps:
            self._write(*self._open.popleft(), obs_t)

    def end(self) -> None:
        """Writes the windows that are not full: the episode, or the collection, is over."""
        while self._open:
            self._write(*self._open.popleft(), self._newest)

    def drop(self) -> None:
        """Forgets them: what comes next does not follow from what came before."""
        self._open.clear()
