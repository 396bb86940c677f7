"""Figures of "Why replay?" in notebook 02: correlation, coverage, and the curves of its runs."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from labkit.plotting.style import BLUE, GREEN, GREY, ORANGE, PURPLE, label_axes, subplots

COLOURS = (GREY, PURPLE, ORANGE, BLUE, GREEN)
OBSERVATIONS = ("cart position", "cart velocity", "pole angle", "pole angular velocity")


def correlations(
    lags: Sequence[int], in_order: np.ndarray, drawn: np.ndarray, count: int
) -> Figure:
    """Autocorrelation of the four observations: in the order of collection, and of uniform draws.

    Args:
        lags: distances in a batch, the x axis.
        in_order: float `[4, lags]`.
        drawn: float `[4, lags]`.
        count: values behind each correlation, for the band of ± 2/√count.
    """
    with subplots(10, 3.6, 1, 2, sharey=True) as (figure, panels):
        titles = ("in the order of collection", "drawn uniformly from the buffer")
        for axes, title, curves in zip(panels, titles, (in_order, drawn), strict=True):
            band = 2 / np.sqrt(count)
            axes.axhspan(-band, band, color="#dddddd", label="± 2/√n")
            for name, curve, colour in zip(OBSERVATIONS, curves, COLOURS[1:], strict=True):
                axes.plot(lags, curve, color=colour, label=name)
            label_axes(axes, "transitions apart", "autocorrelation", title)
        panels[1].set_ylabel("")
        panels[1].legend(loc="upper right")
    return figure


def coverage(
    points: np.ndarray,
    batches: Mapping[str, np.ndarray],
    sizes: Sequence[int],
    covered: np.ndarray,
    edges: np.ndarray,
) -> Figure:
    """Two batches among all states on the left, covered cells over the buffer's size on the right.

    Args:
        points: cart position and pole angle (degrees) of all transitions, `[n, 2]`.
        batches: label → the points of a batch, `[batch, 2]`.
        sizes: of buffers, in transitions.
        covered: mean number of cells that a batch covers, `[sizes]`.
        edges: inner edges of the cells along both axes, `[cells - 1, 2]`.
    """
    with subplots(10, 3.8, 1, 2) as (figure, (left, right)):
        left.plot(*points.T, ".", color="#cccccc", markersize=2, label="all transitions")
        for (label, batch), colour in zip(batches.items(), (ORANGE, BLUE), strict=False):
            left.plot(*batch.T, "o", color=colour, markersize=4, label=label)
        for draw, along in zip((left.axvline, left.axhline), edges.T, strict=True):
            for edge in along:
                draw(edge, color="#dddddd", linewidth=0.8, zorder=0)
        left.grid(visible=False)
        left.set(xlabel="cart position (m)", ylabel="pole angle (degrees)")
        left.set_title("states of two batches")
        left.legend(loc="lower right", fontsize=8, frameon=True, markerscale=3)
        right.plot(sizes, covered, "o-", color=BLUE)
        right.set(xscale="log", xlabel="newest transitions in the buffer", ylim=(0, None))
        right.set(ylabel="cells covered, of 100", title="what a batch covers")
    return figure


def return_curves(table: pd.DataFrame) -> Figure:
    """A panel for each memory: each seed, their mean, and the band from the worst to the best.

    `table` has the columns of `replay_results.COLUMNS`. A panel repeats the mean of `large`, if
    that is one of the memories, as a dashed line.
    """
    names = list(dict.fromkeys(table.memory))
    with subplots(2.5 * len(names), 3, 1, len(names), sharey=True, squeeze=False) as (figure, rows):
        for axes, name, colour in zip(rows[0], names, COLOURS, strict=False):
            runs = _runs(table, name)
            if "large" in names and name != "large":
                large = _runs(table, "large").mean(axis=1)
                axes.plot(large.index, large, "--", color=BLUE, linewidth=1, label="mean of large")
            low, high = runs.min(axis=1), runs.max(axis=1)
            band = "worst to best seed"
            axes.fill_between(runs.index, low, high, color=colour, alpha=0.2, label=band)
            axes.plot(runs.index, runs.mean(axis=1), color=colour, label="mean of the seeds")
            label_axes(axes, "env steps after the warm-up", "", name)
            axes.xaxis.set_major_locator(MaxNLocator(3))
            axes.set_ylim(0, 205)
        rows[0][0].set_ylabel("mean return")
        rows[0][-1].legend(loc="lower right", fontsize=8)
    return figure


def _runs(table: pd.DataFrame, memory: str) -> pd.DataFrame:
    """Mean returns of a memory: a row for each env step, a column for each seed."""
    one = table[table.memory == memory]
    return one.pivot_table(index="env_step", columns="seed", values="mean_return")
