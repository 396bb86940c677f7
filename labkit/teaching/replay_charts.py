"""Charts beside the pictures of tables: frequencies, a rate limiter at work, what things cost."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.plotting.style import BLUE, GREEN, GREY, ORANGE, PURPLE, STYLE, NotebookFigure

COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
Event = tuple[
    str, float, float
]  # "insert" or "sample", when it was asked for, when it was done (s)


def frequencies(
    names: Sequence[str], measured: Sequence[float], expected: Mapping[str, Sequence[float]]
) -> Figure:
    """Shares of all samples as bars, and each formula's shares as marks over them.

    Args:
        names: of the items, below the bars.
        measured: the bars, in percent.
        expected: what each formula says, in percent, by its name.
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
    """How a limiter's balance went: rows `[time in s, inserts × samples_per_insert − samples]`.

    Threads note their requests a moment after the server has granted them: two that follow one
    another closely may be noted the wrong way round.

    Args:
        events: in any order; each counts when it is done.
        samples_per_insert: the limiter's ratio.

    Returns:
        float64 [events + 1, 2]; the first row is the moment of the first request, at balance 0.
    """
    change = {"insert": samples_per_insert, "sample": -1.0}
    begin = min(asked for _, asked, _ in events)
    rows = [(0.0, 0.0)]
    for kind, _, done in sorted(events, key=lambda event: event[2]):
        rows.append((done - begin, rows[-1][1] + change[kind]))
    return np.array(rows)


def limiter(
    events: Sequence[Event],
    samples_per_insert: float,
    bounds: tuple[float, float],
    held_seconds: float,
) -> Figure:
    """A rate limiter over time: its balance above, and below it who was held back, and when.

    Args:
        events: all inserts and samples.
        samples_per_insert: the limiter's ratio.
        bounds: `min_diff` and `max_diff`.
        held_seconds: a request that took longer than this was held.
    """
    begin = min(start for _, start, _ in events)
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(figsize=(8, 4.4), layout="constrained")
        above, below = figure.subplots(2, sharex=True, height_ratios=(3, 1.2))
        times, values = balance(events, samples_per_insert).T
        above.axhspan(*bounds, facecolor="#c5e3cd", edgecolor=GREEN, label="allowed")
        above.step(times, values, where="post", color=BLUE, label="balance")
        above.set_ylabel(f"{samples_per_insert:g} × inserts − samples")
        above.set_ylim(top=bounds[1] * 1.15)
        above.legend(loc="lower right", ncols=2)
        below.set_yticks([0, 1], ["insert held", "sample held"])
        for lane, (kind, colour) in enumerate((("insert", ORANGE), ("sample", PURPLE))):
            waits = [(a - begin, b - a) for k, a, b in events if k == kind and b - a > held_seconds]
            below.broken_barh(waits, (lane - 0.32, 0.64), facecolor=colour)
        below.set_ylim(1.6, -0.6)
        below.set_xlabel("seconds")
        below.grid(axis="y", visible=False)
    return figure


def lines(series: Mapping[str, tuple[Sequence[float], Sequence[float]]], x: str, y: str) -> Figure:
    """Lines with their points.

    Args:
        series: values along x and along y by the line's name.
        x: what goes along x, with its unit.
        y: the same for y.
    """
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(figsize=(7, 3.4), layout="constrained")
        axes = figure.subplots()
        for (name, (along, values)), colour in zip(series.items(), COLOURS, strict=False):
            axes.plot(along, values, "o-", color=colour, label=name)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.legend()
    return figure


def costs(names: Sequence[str], columns: Mapping[str, Sequence[float]]) -> Figure:
    """A panel of horizontal bars for each thing that was measured.

    Args:
        names: what was compared, from top to bottom.
        columns: a value for each name, by what it is, with its unit.
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
