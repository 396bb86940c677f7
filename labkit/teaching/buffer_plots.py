"""Figures of what replay buffers hold and how fast they are, drawn from plain data."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle
from matplotlib.ticker import NullFormatter

from labkit.plotting.style import BLUE, GREEN, GREY, ORANGE, subplots
from labkit.teaching.buffer_benchmark import Measurement

EPISODE_COLORS = ("#CFE5F3", "#FBE3B5", "#CDEBE0", "#F3DCE8")  # Okabe-Ito hues, lightened
BAND, BAND_COLOR = 6, "#dddddd"  # standard deviations
Point = tuple[float, float]


@attrs.frozen
class BufferWindows:
    """The steps in one buffer and the windows that were drawn from them.

    `rows`, int64 [segments, slots], holds the counter in each slot; Reverb's steps are in order of
    time. An `episode` is its number of entries, its boundary included; counters start at a multiple
    of it.
    """

    title: str
    rows: np.ndarray
    head: int | None  # the slot that is written next; None if the buffer is not a ring
    episode: int
    counts: Counter[tuple[int, ...]]  # windows drawn, `{(3, 4): 120, …}`

    def crosses(self, window: tuple[int, ...]) -> bool:
        """Whether the two counters of a window belong to different episodes."""
        return window[0] // self.episode != window[1] // self.episode


def windows(buffers: Sequence[BufferWindows]) -> Figure:
    """Each buffer's slots and windows on the left, and how often it drew each on the right.

    The left axes have a rectangle for each slot and an arc for each window, the right axes a bar
    for each window.
    """
    heights = [1.1 + 1.1 * len(buffer.rows) for buffer in buffers]
    grid: dict[str, Any] = {"height_ratios": heights, "width_ratios": (1.5, 1), "squeeze": False}
    with subplots(11, sum(heights), len(buffers), 2, **grid) as (figure, panels):
        for (left, right), buffer in zip(panels, buffers, strict=True):
            _slots(left, buffer)
            _bars(right, buffer)
        handles = [
            Line2D([], [], color=BLUE, label="within an episode"),
            Line2D([], [], color=ORANGE, linestyle="--", label="joins two episodes"),
            Line2D([], [], color=GREY, linewidth=3, label="boundary entry"),
            Patch(facecolor=BAND_COLOR, label=f"± {BAND} standard deviations"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def _slots(axes: Axes, buffer: BufferWindows) -> None:
    """Boxes with counters; an arc joins the two steps of every window that was drawn."""
    place: dict[int, Point] = {}
    for row, counters in enumerate(buffer.rows):
        y = -1.9 * row
        for slot, counter in enumerate(counters):
            color = EPISODE_COLORS[counter // buffer.episode % len(EPISODE_COLORS)]
            axes.add_patch(Rectangle((slot, y), 1, 0.6, facecolor=color, edgecolor="white", lw=2))
            axes.text(slot + 0.5, y + 0.3, str(counter), ha="center", va="center")
            if counter % buffer.episode == buffer.episode - 1:  # the boundary entry
                axes.plot([slot + 0.1, slot + 0.9], [y + 0.06] * 2, color=GREY, lw=2)
            place[int(counter)] = (slot + 0.5, y + 0.62)
        if buffer.head is not None:
            axes.plot([buffer.head] * 2, [y - 0.15, y + 0.75], color="black", lw=3)
    for window in buffer.counts:
        _arc(axes, place[window[0]], place[window[1]], buffer.crosses(window))
    bottom = -1.9 * (len(buffer.rows) - 1)
    if buffer.head is not None:
        axes.text(buffer.head, bottom - 0.25, "next write", ha="center", va="top")
    axes.set(xlim=(-0.3, max(8, buffer.rows.shape[1]) + 0.3), ylim=(bottom - 0.6, 1.8))
    axes.set_title(buffer.title)
    axes.set_axis_off()


def _arc(axes: Axes, start: Point, end: Point, crosses: bool) -> None:
    distance = abs(end[0] - start[0])
    bend = (-1 if end[0] > start[0] else 1) * (0.45 if distance < 2 else 0.19)
    arrow = FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, shrinkA=0, shrinkB=0)
    arrow.set(connectionstyle=f"arc3,rad={bend}", linewidth=1.6)
    arrow.set(color=ORANGE if crosses else BLUE, linestyle="--" if crosses else "-")
    axes.add_patch(arrow)


def _bars(axes: Axes, buffer: BufferWindows) -> None:
    """How often each window was drawn, and the band within which uniform draws stay."""
    drawn = sorted(buffer.counts)
    counts = np.array([buffer.counts[window] for window in drawn])
    colors = [ORANGE if buffer.crosses(window) else BLUE for window in drawn]
    axes.bar(range(len(drawn)), counts, color=colors, width=0.8)
    mean = counts.mean()
    sigma = np.sqrt(mean * (1 - 1 / len(counts)))
    low, high = mean - BAND * sigma, mean + BAND * sigma
    axes.axhspan(low, high, color=BAND_COLOR, lw=0, zorder=0.5)
    axes.hlines([low, high], -0.5, len(counts) - 0.5, color="black", lw=0.8, linestyle=":")
    labels = [f"{first}→{second}" for first, second in drawn]
    axes.set_xticks(range(len(drawn)), labels, rotation=90 if len(drawn) > 8 else 45)
    axes.tick_params(axis="x", labelsize=8)
    axes.set(ylim=(0, max(counts.max(), high) * 1.1), ylabel="times drawn")
    axes.grid(axis="x", visible=False)


def speeds(measurements: dict[str, Measurement]) -> Figure:
    """Inserts, samples, bytes and start-up time of each buffer, on four logarithmic axes.

    Each buffer has a dot and the number next to it. Dots instead of bars, because the length of a
    bar on a logarithmic axis means nothing.
    """
    panels = (
        ("inserts_per_second", "steps written per second", BLUE),
        ("samples_per_second", "windows read per second", GREEN),
        ("bytes_per_step", "bytes per stored step", ORANGE),
        ("startup_seconds", "seconds until the first batch", GREY),
    )
    names = list(measurements)
    with subplots(10, 1.5 + 0.75 * len(names), 2, 2, sharey=True) as (figure, grid):
        for axes, (field, label, color) in zip(grid.flat, panels, strict=True):
            values = [getattr(measurements[name], field) for name in names]
            # A logarithmic axis cannot show 0: the memory of a process that did not grow.
            drawn = [max(value, 1e-6) for value in values]
            axes.plot(drawn, names, "o", color=color, markersize=8)
            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set(xlim=(min(drawn) / 4, max(drawn) * 6), ylim=(-0.6, len(names) - 0.4))
            for row, value in enumerate(values):
                axes.text(drawn[row] * 1.3, row, _short(value), va="center")
            axes.set_title(label)
        grid[0, 0].invert_yaxis()
    return figure


def _short(value: float) -> str:
    """Two significant digits, without an exponent: 17 000, 0.15."""
    return f"{float(f'{value:.2g}'):,.10g}".replace(",", " ")
