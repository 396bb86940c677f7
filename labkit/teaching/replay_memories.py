"""Replay memories of notebook 02 in plain NumPy: a ring, and a ring with priorities.

The notebook shows these two classes in full; a test compares them with its cells.
"""

from typing import Any

import numpy as np

Sample = tuple[np.ndarray, np.ndarray]

# One transition of CartPole, named by time: the action a_tm1 in obs_tm1 led to r_t and obs_t.
CARTPOLE_ROW = np.dtype(
    [
        ("obs_tm1", np.float32, 4),
        ("a_tm1", np.int64),
        ("r_t", np.float32),
        ("discount_t", np.float32),  # 0 at a termination, else 1
        ("obs_t", np.float32, 4),
    ]
)


class RingBuffer:
    """Keeps the newest `capacity` rows in one NumPy array."""

    def __init__(self, capacity: int, dtype: Any) -> None:
        self.rows = np.zeros(capacity, dtype)
        self.added = 0  # rows so far, overwritten ones included

    def __len__(self) -> int:
        return min(self.added, len(self.rows))

    def add(self, row: Any) -> None:
        """Stores a row at index k % capacity, where k counts from 0."""
        self.rows[self.added % len(self.rows)] = row  # a full ring overwrites its oldest row
        self.added += 1

    def sample(self, size: int, rng: np.random.Generator) -> Sample:
        """Indices [size] and rows [size], drawn uniformly and with replacement."""
        index = rng.integers(len(self), size=size)
        return index, self.rows[index]


class PrioritizedBuffer(RingBuffer):
    """Draws row i with probability p_i^α / Σ p_k^α, where p_i = |TD error| + ε."""

    def __init__(
        self, capacity: int, dtype: Any, alpha: float = 0.6, epsilon: float = 0.01
    ) -> None:
        super().__init__(capacity, dtype)
        self.alpha, self.epsilon = alpha, epsilon
        self.scaled = np.zeros(capacity)  # p^α of each row, float64

    def add(self, row: Any) -> None:
        """Stores a row with the largest priority there is."""
        # Its error is unknown. The largest priority so far makes an early draw likely.
        self.scaled[self.added % len(self.rows)] = self.scaled.max() or 1.0
        super().add(row)

    def sample(self, size: int, rng: np.random.Generator) -> Sample:
        """Indices [size] and rows [size], drawn in proportion to p^α, with replacement."""
        total = np.cumsum(self.scaled[: len(self)])
        index = np.searchsorted(total, rng.random(size) * total[-1], side="right")
        return index, self.rows[index]

    def weights(self, index: np.ndarray, beta: float) -> np.ndarray:
        """Importance weights (N P(i))^-β, divided by the largest of the batch."""
        probability = self.scaled[index] / self.scaled.sum()
        weights = (len(self) * probability) ** -beta
        return weights / weights.max()

    def update(self, index: np.ndarray, errors: np.ndarray) -> None:
        """Sets the priorities of the rows at `index` [n] from their TD errors [n]."""
        self.scaled[index] = (np.abs(errors) + self.epsilon) ** self.alpha
