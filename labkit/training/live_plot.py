"""A training as it goes: one figure and one line in the training's cell, replaced in place.

In JupyterLab, VS Code and Colab both are drawn anew while the cell runs. Under papermill and nbval
they come once, at the end, and in plain Python there is neither.
"""

import base64
import time
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tqdm import tqdm

from labkit.plotting import style
from labkit.training import run_directory
from labkit.training.progress import Display, Sink, in_kernel, watched

SECONDS_BETWEEN_FIGURES = 5.0
LARGEST_SHARE = 0.02  # of the time may go into drawing; on a slow machine figures come less often


class View(Sink):
    """Shows a run's metrics as they come; a context that leaves the final figure and line.

    Args:
        run: whose `metrics.csv` is drawn.
    """

    def __init__(self, run: run_directory.Run):
        self._run = run
        self._line, self._figure = Display(), Display()
        self._summary = "training: stopped before its first iteration"
        self._drawn_bytes, self._next = 0, 0.0
        self.aside: Sink = _Aside(self)

    def show(self, bar: tqdm, facts: dict[str, Any]) -> None:
        """Told by the progress at most twice a second, between two iterations."""
        if watched():
            self._line.put({"text/plain": str(bar)})
            if time.monotonic() >= self._next:
                self._draw()

    def end(self, summary: str) -> None:
        """Keeps the line to leave behind."""
        self._summary = summary

    def __enter__(self) -> "View":
        return self

    def __exit__(self, *error: Any) -> None:
        if in_kernel():
            self._line.put({"text/plain": self._summary})
            self._draw()

    def _draw(self) -> None:
        """Replaces the figure, unless it shows all there is."""
        begin, size = time.monotonic(), self._run.metrics_bytes()
        if size != self._drawn_bytes and len(metrics := self._run.metrics()):
            figure = training_figure(metrics)
            png = base64.b64encode(style.png_of(figure)).decode()
            alt = {"image/png": {"alt": style.describe(figure)}}
            self._figure.put({"image/png": png, "text/plain": "the training so far"}, alt)
            self._drawn_bytes = size
        spent = time.monotonic() - begin
        self._next = begin + max(SECONDS_BETWEEN_FIGURES, spent / LARGEST_SHARE)


class _Aside(Sink):
    """Shows an evaluation on the training's line and leaves nothing there."""

    def __init__(self, view: View):
        self.show = view.show  # type: ignore[method-assign]


def iterations_per_second(metrics: pd.DataFrame) -> tuple[list[float], list[float]]:
    """Gradient steps a second between one row and the next, evaluations left out.

    Args:
        metrics: a run's metrics; read are `gradient_step` and `wall_seconds`.

    Returns:
        Gradient steps at the end of each span, and the rate over it, both [spans].
    """
    spans = metrics[["gradient_step", "wall_seconds"]].astype(float).diff()
    moved = (spans["gradient_step"] > 0) & (spans["wall_seconds"] > 0)
    rates = spans["gradient_step"] / spans["wall_seconds"]
    return metrics["gradient_step"][moved].astype(float).tolist(), rates[moved].tolist()


def training_figure(metrics: pd.DataFrame) -> Figure:
    """Returns on the left; critic loss, actor loss, α and iterations a second beside them.

    Args:
        metrics: a run's metrics, one row at least; what was not logged yet stays an empty panel.
    """
    panels = (
        ("critic_loss", "critic loss (scaled return²)", style.BLUE),
        ("actor_loss", "actor loss (scaled return)", style.ORANGE),
        ("alpha", "α (scaled return per nat)", style.PURPLE),
    )
    with mpl.rc_context({**style.STYLE, "font.size": 9, "lines.linewidth": 1.5}):
        # Margins by hand: matplotlib would take as long to find them as to draw the rest.
        figure = style.NotebookFigure(figsize=(10, 4.2))
        figure.subplots_adjust(0.065, 0.115, 0.965, 0.93, wspace=0.32, hspace=0.5)
        returns, *others = figure.subplot_mosaic(
            [["returns", "a", "b"], ["returns", "c", "d"]], width_ratios=(1.5, 1, 1)
        ).values()
        _returns(returns, metrics)
        for axes, (name, label, color) in zip(others, panels, strict=False):
            logged = metrics[["gradient_step", name]].dropna().astype(float)
            _line(axes, logged["gradient_step"].tolist(), logged[name].tolist(), label, color)
        _line(others[3], *iterations_per_second(metrics), "iterations/s", style.GREEN)
        others[3].set_ylim(bottom=0)
    return figure


def _returns(axes: Axes, metrics: pd.DataFrame) -> None:
    collected = metrics[["gradient_step", "collect_return"]].dropna().astype(float)
    axes.plot(*collected.to_numpy().T, color=style.GREY, label="collected, with noise")
    evaluated = metrics[metrics["eval_return"].notna()]
    for step, returns in zip(evaluated["gradient_step"], evaluated["eval_returns"], strict=True):
        axes.plot([step] * len(returns), returns, "o", color=style.BLUE, alpha=0.3, mew=0, ms=4)
    means = evaluated[["gradient_step", "eval_return"]].to_numpy(float).T
    axes.plot(*means, color=style.BLUE, marker="o", ms=5, label="evaluation, greedy")
    style.label_axes(axes, "gradient steps", "return of an episode (sum of rewards)")
    # Above the curves, which may be anywhere.
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 0.99), ncols=2, frameon=False)


def _line(axes: Axes, steps: list[float], values: list[float], label: str, color: str) -> None:
    axes.plot(steps, values, color=color, marker="o" if len(values) < 5 else None, ms=4)
    style.label_axes(axes, "gradient steps", "", label)
    axes.locator_params(axis="x", nbins=3)
