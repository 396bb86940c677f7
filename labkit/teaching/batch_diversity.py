"""How diverse a batch is: correlation of neighbours, covered states (notebook 02)."""

from collections.abc import Sequence

import numpy as np


def autocorrelation(values: np.ndarray, lags: Sequence[int]) -> np.ndarray:
    """Correlation of values `[n]` with those `lag` places later, float64 `[lags]`.

    With independent values it is 0 up to about 2/√n.
    """
    centred = np.asarray(values, np.float64) - np.mean(values)
    square = float(centred @ centred)
    return np.array([centred[: len(centred) - lag] @ centred[lag:] / square for lag in lags])


def effective_sample_size(values: np.ndarray, batch: int) -> float:
    """How many independent values average as well as `batch` consecutive ones.

    The variance of all values, divided by that of the means of consecutive batches: `batch` if the
    values are independent, 1 if all values of a batch are equal.
    """
    kept = np.asarray(values, np.float64)[: len(values) // batch * batch]
    return float(kept.var() / kept.reshape(-1, batch).mean(axis=1).var())


class Grid:
    """Cells of equal size over two columns of observations.

    The grid spans the 1st to the 99th percentile; points outside count in the outermost cells.
    """

    def __init__(self, points: np.ndarray, cells: int = 10) -> None:
        """`points` is float `[n, 2]`; `cells` is their number along each axis."""
        low, high = np.percentile(points, [1, 99], axis=0)
        self.edges = np.linspace(low, high, cells + 1)[1:-1]  # inner edges [cells - 1, 2]

    def cells(self, points: np.ndarray) -> np.ndarray:
        """The cell of each point, int64 `[n]`."""
        x, y = (np.searchsorted(self.edges[:, axis], points[:, axis]) for axis in (0, 1))
        return x * (len(self.edges) + 1) + y

    def covered(self, points: np.ndarray) -> int:
        """The number of cells with a point."""
        return len(np.unique(self.cells(points)))


def coverage(
    points: np.ndarray,
    sizes: Sequence[int],
    batch: int,
    rng: np.random.Generator,
    batches: int = 100,
) -> np.ndarray:
    """Mean number of cells that a batch covers, float64 `[sizes]`.

    For each size, each batch is drawn uniformly from that many consecutive points, which end at a
    random place in the second half of `points`, float `[n, 2]`.
    """
    grid, means = Grid(points), []
    for size in sizes:
        ends = rng.integers(max(len(points) // 2, size), len(points) + 1, size=batches)
        index = ends[:, None] - 1 - rng.integers(size, size=(batches, batch))
        means.append(np.mean([grid.covered(points[one]) for one in index]))
    return np.array(means)
