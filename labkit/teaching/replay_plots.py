"""Figures of "Why replay?" in notebook 02: correlation, coverage, and the curves of its runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullLocator

from labkit.parameters import grouped
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
            axes.axhspan(-band, band, color="#dddddd", label="± 2/√n: independent rows")
            for name, curve, colour in zip(OBSERVATIONS, curves, COLOURS[1:], strict=True):
                axes.plot(lags, curve, color=colour, label=name)
            label_axes(axes, "lag (transitions)", "autocorrelation", title)
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
                draw(edge, color=GREY, linewidth=0.6)
        left.grid(visible=False)
        left.set(xlabel="cart position (m)", ylabel="pole angle (degrees)")
        left.set_title("states of two batches")
        right.plot(sizes, covered, "o-", color=BLUE)
        right.set(xscale="log", xlabel="buffer size (newest transitions)", ylim=(0, None))
        ticks = [size for size in sizes if not sizes[-1] / 2 < size < sizes[-1]]  # no overlap
        right.set_xticks(ticks, [grouped(size) for size in ticks])
        right.xaxis.set_minor_locator(NullLocator())
        right.set(ylabel="cells covered (of 100)", title="coverage of a batch")
        figure.legend(loc="outside lower left", ncols=3, markerscale=1.5)
    return figure


def return_curves(table: pd.DataFrame) -> Figure:
    """A panel for each memory: the mean of its seeds, and the band from the worst to the best.

    `table` has the columns of `replay_results.COLUMNS`. A panel repeats the mean of `large`, if
    that is one of the memories, as a dashed line.
    """
    names = list(dict.fromkeys(table.memory))
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    grid: dict[str, Any] = {"sharex": True, "sharey": True, "squeeze": False}
    with subplots(9, 2.6 * rows, rows, columns, **grid) as (figure, panels):
        for axes, name, colour in zip(panels.flat, names, COLOURS, strict=False):
            runs = _runs(table, name)
            if "large" in names and name != "large":
                large = _runs(table, "large").mean(axis=1)
                axes.plot(large.index, large, "--", color=BLUE, linewidth=1, label="mean of large")
            low, high = runs.min(axis=1), runs.max(axis=1)
            band = "worst to best seed"
            axes.fill_between(runs.index, low, high, color=colour, alpha=0.2, label=band)
            axes.plot(runs.index, runs.mean(axis=1), color=colour, label="mean of the seeds")
            label_axes(axes, "", "", name)
            axes.xaxis.set_major_locator(MaxNLocator(3))
            axes.set_ylim(0, 205)
        for axes in panels.flat[len(names) :]:
            axes.set_visible(False)
        for axes in panels.flat[max(0, len(names) - columns) : len(names)]:
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("env steps after the warm-up")
        for axes in panels[:, 0]:
            axes.set_ylabel("mean return")
        handles = [
            Line2D([], [], color=GREY, label="mean of the seeds"),
            Patch(color=GREY, alpha=0.3, label="worst to best seed"),
        ]
        if "large" in names:
            dashed = Line2D([], [], color=BLUE, linestyle="--", linewidth=1, label="mean of large")
            handles.append(dashed)
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def _runs(table: pd.DataFrame, memory: str) -> pd.DataFrame:
    """Mean returns of a memory: a row for each env step, a column for each seed."""
    one = table[table.memory == memory]
    return one.pivot_table(index="env_step", columns="seed", values="mean_return")
