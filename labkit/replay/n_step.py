"""N-step transitions, made of single env steps."""

import numpy as np

from labkit.replay.transitions import Transition, Write


class NStepWriter:
    """Turns single env steps into transitions over `n_step` of them.

    With rewards r, the environment's discounts d and γ it writes, for the step at time t,

        reward = Σ_k γ^k d_1 … d_k r_{t+k},  discount = γ^(n-1) d_1 … d_n,

    with the observation n steps later as next observation. A critic that computes
    reward + γ · discount · V(next observation) learns from n rewards at once (Sutton and Barto
    2018, equation 7.1; without correction for the older policy that took the actions in between).
    At the end of an episode the last windows are shorter.

    Args:
        write: takes each finished transition.
        n_step: n, 1 or more; with 1 each step is written as it is.
        gamma: γ, the discount per env step.
    """

    def __init__(self, write: Write, n_step: int, gamma: float):
        self._write, self._n_step, self._gamma = write, n_step, gamma
        self._open: list[Transition] = []  # windows that later steps extend, oldest first

    def write(self, step: Transition) -> None:
        """Adds one env step; writes the window that is now full."""
        self._open = [
            window._replace(
                reward=window.reward + self._gamma * window.discount * step.reward,
                discount=window.discount * (self._gamma * step.discount),
                next_observation=step.next_observation,
            )
            for window in self._open
        ]
        reward, discount = np.float32(step.reward), np.float32(step.discount)
        self._open.append(step._replace(reward=reward, discount=discount))
        if len(self._open) == self._n_step:
            self._write(self._open.pop(0))

    def end(self) -> None:
        """Writes the windows that are not full: the episode, or the collection, is over."""
        while self._open:
            self._write(self._open.pop(0))
