"""Charts of notebook 01: sampling frequencies, a rate limiter over time, and measured costs."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from labkit.plotting.style import BLUE, GREEN, GREY, ORANGE, PURPLE, subplots

COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
Bounds = tuple[float, float]  # `min_diff` and `max_diff` of a rate limiter
Event = tuple[str, float, float]  # "insert" or "sample", time of request, time of answer (s)


def frequencies(
    names: Sequence[str], measured: Sequence[float], expected: Mapping[str, Sequence[float]]
) -> Figure:
    """Measured shares of the samples as bars, with the expected shares as marks, all in percent.

    `names` are labels of the items. `expected` maps the name of a formula to its share for each
    item; it has at most two formulas.
    """
    marks = (("D", ORANGE), ("x", "black"))
    with subplots(7, 3.4) as (figure, axes):
        axes.bar(names, measured, color="#9cc9e8", label="measured")
        for (label, shares), (marker, colour) in zip(expected.items(), marks, strict=False):
            axes.plot(names, shares, marker, color=colour, label=label, markersize=8)
        axes.set(xlabel="priority of the item", ylabel="share of the samples (%)")
        axes.legend()
        axes.grid(axis="x", visible=False)
    return figure


def balance(events: Sequence[Event], samples_per_insert: float) -> np.ndarray:
    """A rate limiter's balance over time: inserts × samples_per_insert − samples.

    Events may be in any order; each counts at the time of its answer. Threads record a request a
    moment after its answer: two close ones may be in the wrong order.

    Returns:
        float64 [events + 1, 2]: time in seconds, balance. The first row is the time of the first
        request, with balance 0.
    """
    change = {"insert": samples_per_insert, "sample": -1.0}
    start = min(asked for _, asked, _ in events)
    rows = [(0.0, 0.0)]
    for kind, _, answered in sorted(events, key=lambda event: event[2]):
        rows.append((answered - start, rows[-1][1] + change[kind]))
    return np.array(rows)


def limiter(
    events: Sequence[Event], samples_per_insert: float, bounds: Bounds, blocked_seconds: float
) -> Figure:
    """A rate limiter over time: its balance, and below it the requests that it blocked.

    A request that took longer than `blocked_seconds` counts as blocked.
    """
    start = min(asked for _, asked, _ in events)
    with subplots(8, 4.4, 2, sharex=True, height_ratios=(3, 1.2)) as (figure, (above, below)):
        times, values = balance(events, samples_per_insert).T
        above.axhspan(*bounds, facecolor="#c5e3cd", edgecolor=GREEN, label="allowed")
        above.step(times, values, where="post", color=BLUE, label="balance")
        above.set_ylabel(f"{samples_per_insert:g} × inserts − samples")
        above.set_ylim(top=bounds[1] * 1.15)
        above.legend(loc="lower right", ncols=2)
        below.set_yticks([0, 1], ["insert blocked", "sample blocked"])
        for lane, (kind, colour) in enumerate((("insert", ORANGE), ("sample", PURPLE))):
            waits = [
                (asked - start, answered - asked)
                for name, asked, answered in events
                if name == kind and answered - asked > blocked_seconds
            ]
            # The white edge divides requests that follow each other directly.
            below.broken_barh(waits, (lane - 0.32, 0.64), facecolor=colour, edgecolor="white")
        below.set(ylim=(1.6, -0.6), xlabel="seconds")
        below.grid(axis="y", visible=False)
    return figure


def lines(series: Mapping[str, tuple[Sequence[float], Sequence[float]]], x: str, y: str) -> Figure:
    """A line with markers for each series (label → values on x and on y); both axes start at 0.

    `x` and `y` are the labels of the axes, with their units.
    """
    with subplots(7, 3.4) as (figure, axes):
        for (name, (xs, ys)), colour in zip(series.items(), COLOURS, strict=False):
            axes.plot(xs, ys, "o-", color=colour, label=name)
        axes.set(xlabel=x, ylabel=y, xlim=(0, None), ylim=(0, None))
        axes.legend()
    return figure


def costs(names: Sequence[str], columns: Mapping[str, Sequence[float]]) -> Figure:
    """A panel of horizontal bars for each measured quantity, one bar for each name from the top.

    `columns` maps at most four quantities with their units to a value for each name.
    """
    height, count = 1.2 + 0.34 * len(names), len(columns)
    with subplots(9.5, height, 1, count, sharey=True, squeeze=False) as (figure, panels):
        for axes, label, colour in zip(panels[0], columns, COLOURS, strict=False):
            _bars(axes, names, columns[label], colour)
            axes.set_xlabel(label)
    return figure


def _bars(axes: Axes, names: Sequence[str], values: Sequence[float], colour: str) -> None:
    bars = axes.barh(range(len(names)), values, color=colour, height=0.66)
    axes.bar_label(bars, [f"{v:,.0f}".replace(",", " ") for v in values], padding=3, fontsize=9)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlim=(0, max(values) * 1.4), ylim=(len(names) - 0.5, -0.5))
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_color(GREY)
