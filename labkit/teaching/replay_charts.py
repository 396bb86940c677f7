"""Charts of notebook 01: sampling frequencies, a rate limiter over time, and measured costs."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.plotting.style import BLUE, GREEN, GREY, ORANGE, PURPLE, STYLE, NotebookFigure

COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
Event = tuple[str, float, float]  # "insert" or "sample", time of request, time of answer (s)


def frequencies(
    names: Sequence[str], measured: Sequence[float], expected: Mapping[str, Sequence[float]]
) -> Figure:
    """Measured shares of the samples as bars, with the expected shares as marks.

    Args:
        names: labels of the items.
        measured: share of each item in percent.
        expected: name of a formula → its share for each item in percent; at most two formulas.
    """
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(figsize=(7, 3.4), layout="constrained")
        axes = figure.subplots()
        axes.bar(names, measured, color="#9cc9e8", label="measured")
        for (label, shares), marker, colour in zip(
            expected.items(), "Dx", (ORANGE, "black"), strict=False
        ):
            axes.plot(names, shares, marker, color=colour, label=label, markersize=8)
        axes.set_xlabel("priority of the item")
        axes.set_ylabel("share of the samples (%)")
        axes.legend()
        axes.grid(axis="x", visible=False)
    return figure


def balance(events: Sequence[Event], samples_per_insert: float) -> np.ndarray:
    """A rate limiter's balance over time: inserts × samples_per_insert − samples.

    Threads record a request a moment after its answer: two close ones may be in the wrong order.

    Args:
        events: in any order; each counts at the time of its answer.
        samples_per_insert: the limiter's ratio.

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
    events: Sequence[Event],
    samples_per_insert: float,
    bounds: tuple[float, float],
    blocked_seconds: float,
) -> Figure:
    """A rate limiter over time: its balance, and below it the requests that it blocked.

    Args:
        events: all inserts and samples.
        samples_per_insert: the limiter's ratio.
        bounds: `min_diff` and `max_diff`.
        blocked_seconds: a request that took longer than this counts as blocked.
    """
    start = min(asked for _, asked, _ in events)
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(figsize=(8, 4.4), layout="constrained")
        above, below = figure.subplots(2, sharex=True, height_ratios=(3, 1.2))
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
            below.broken_barh(waits, (lane - 0.32, 0.64), facecolor=colour)
        below.set_ylim(1.6, -0.6)
        below.set_xlabel("seconds")
        below.grid(axis="y", visible=False)
    return figure


def lines(series: Mapping[str, tuple[Sequence[float], Sequence[float]]], x: str, y: str) -> Figure:
    """A line with markers for each series; both axes start at 0.

    Args:
        series: label → (values on x, values on y).
        x: label of the x axis, with its unit.
        y: label of the y axis, with its unit.
    """
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(figsize=(7, 3.4), layout="constrained")
        axes = figure.subplots()
        for (name, (xs, ys)), colour in zip(series.items(), COLOURS, strict=False):
            axes.plot(xs, ys, "o-", color=colour, label=name)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.legend()
    return figure


def costs(names: Sequence[str], columns: Mapping[str, Sequence[float]]) -> Figure:
    """A panel of horizontal bars for each measured quantity.

    Args:
        names: what is compared, from top to bottom.
        columns: quantity with its unit → a value for each name; at most four quantities.
    """
    with mpl.rc_context(STYLE):
        height = 1.2 + 0.34 * len(names)
        figure = NotebookFigure(figsize=(9.5, height), layout="constrained")
        panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
        for axes, (label, values), colour in zip(panels, columns.items(), COLOURS, strict=False):
            _bars(axes, names, values, colour)
            axes.set_xlabel(label)
    return figure


def _bars(axes: Axes, names: Sequence[str], values: Sequence[float], colour: str) -> None:
    bars = axes.barh(range(len(names)), values, color=colour, height=0.66)
    axes.bar_label(bars, [f"{v:,.0f}".replace(",", " ") for v in values], padding=3, fontsize=9)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, max(values) * 1.4)
    axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(3))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_color(GREY)
