"""Colours, style and labels of every figure, and a figure that displays and describes itself."""

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# From Okabe and Ito's palette, and a grey. Readers without red or green cones cannot tell all of
# them apart as thin lines: two lines in one panel also need different markers or dashes.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#767676"

STYLE: dict[Any, Any] = {
    # A transparent figure is unreadable on a dark page.
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "white"),
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), "black"),
    "figure.dpi": 120,
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "lines.linewidth": 1.8,
    "legend.frameon": False,
}


class NotebookFigure(Figure):
    """A figure that displays itself: IPython displays others only after pyplot was imported."""

    def _repr_png_(self) -> tuple[bytes, dict[str, str]]:
        return png_of(self), {"alt": describe(self)}


@contextlib.contextmanager
def subplots(
    width: float, height: float, rows: int = 1, columns: int = 1, grid: bool = True, **options: Any
) -> Iterator[tuple[NotebookFigure, Any]]:
    """A figure (size in inches) and its axes, like `pyplot.subplots`; inside, `STYLE` applies."""
    with mpl.rc_context({**STYLE, "axes.grid": grid}):
        figure = NotebookFigure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots(rows, columns, **options)


def png_of(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG file."""
    png = io.BytesIO()
    figure.savefig(png, format="png")
    return png.getvalue()


def describe(figure: Figure) -> str:
    """Alternative text for readers who cannot see the picture: title, axes, legend of each panel.

    For example `Figure. Returns. Shows return over env steps; drawn: each episode, mean.`
    """
    sentences = ["Figure"]
    for axes in figure.axes:
        title = axes.get_title(loc="left") or axes.get_title()
        x, y = (" ".join(text.split()) for text in (axes.get_xlabel(), axes.get_ylabel()))
        labels = dict.fromkeys(str(text) for text in axes.get_legend_handles_labels()[1])
        if title and x and not y:  # the title names the quantity, or the bars are horizontal
            title, x = f"{title}, along {x}", ""
        shown = f"{y} over {x}" if x and y else x or y
        parts = (shown and f"shows {shown}", labels and f"drawn: {', '.join(labels)}")
        sentences += [title, "; ".join(part for part in parts if part)]
    # A Greek letter is a symbol: it does not become a capital letter.
    kept = [t[0].upper() + t[1:] if t[0].isascii() else t for t in sentences if t]
    return " ".join(f"{text}." for text in dict.fromkeys(kept))


def label_axes(axes: Axes, x: str, y: str, title: str | None = None) -> None:
    """Sets labels and title, and puts ticks of the x axis at whole steps."""
    axes.set(xlabel=x, ylabel=y, title=title or "")
    left, right = axes.get_xlim()
    if right - left < 2:  # a single step: fractions of a step do not exist
        axes.set_xlim((left + right) / 2 - 1, (left + right) / 2 + 1)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}".replace(",", " "))
