"""Figures of several runs: curves with intervals, settings in rank, power over seeds."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit import compare, figures, intervals, plots

COLORS = (
    figures.BLUE,
    figures.ORANGE,
    figures.GREEN,
    figures.PURPLE,
    "#E69F00",
    "#56B4E9",
    figures.GREY,
)
# Scores of other methods on MinitaurBulletEnv-v0: (return, what it is, short source).
PUBLISHED_SCORES = (
    (11.33, "PPO2 after 2 000 000 env steps (rl-baselines-zoo)"),
    (13.96, "evolution strategies, best (estool)"),
)


def curves(
    found: Sequence[compare.Finding],
    budget: int,
    *,
    published: bool = False,
    title: str | None = None,
) -> Figure:
    """Returns over env steps, a line a setting: its interquartile mean, each seed faint behind it.

    Args:
        found: the runs; those that were not evaluated after `budget` gradient steps are left out.
        budget: gradient steps.
        published: draw what is published for the Minitaur beside them.
        title: stands above.

    Returns:
        The figure; a 95 % bootstrap interval is shaded where there are five seeds or more.

    Raises:
        ValueError: no run reached the budget.
    """
    settings = _by_setting(found, budget)
    with mpl.rc_context(figures.STYLE):
        figure = figures.NotebookFigure(figsize=(8, 4.6), layout="constrained")
        axes = figure.subplots()
        axes.axhline(0, color=figures.GREY, linewidth=1)
        if published:
            _published(axes)
        for color, (name, runs) in zip(_colors(settings), settings.items(), strict=True):
            _curve(axes, compare.curve(runs, budget), name, color)
        figures.label_axes(axes, "env steps", "return of an episode (sum of rewards)", title)
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def ranking(table: pd.DataFrame, *, title: str | None = None) -> Figure:
    """Each seed's final return as a dot, a row a setting, the best on top.

    Args:
        table: see `compare.scores`.
        title: stands above.

    Raises:
        ValueError: the table is empty.
    """
    if table.empty:
        raise ValueError("no run reached this budget: nothing to rank")
    order = compare.rank(table)
    with mpl.rc_context(figures.STYLE):
        height = 1.2 + 0.42 * len(order)
        figure = figures.NotebookFigure(figsize=(8, height), layout="constrained")
        axes = figure.subplots()
        axes.axvline(0, color=figures.GREY, linewidth=1)
        for row, (name, score) in enumerate(order.iterrows()):
            values = table["return"][table.setting == name]
            axes.plot([score.low, score.high], [row, row], color=figures.BLUE, alpha=0.35, lw=7)
            axes.plot(values, [row] * len(values), "o", color=figures.BLUE, alpha=0.7, mew=0)
            axes.plot(score.iqm, row, "|", color="black", markersize=16, mew=2)
        axes.set_yticks(range(len(order)), [str(name) for name in order.index])
        axes.set_ylim(len(order) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("return after training; dot: one seed, line: interquartile mean")
        axes.set_title(title or "")
    return figure


def power_over_seeds(spread: float, differences: Sequence[float], most: int = 20) -> Figure:
    """How likely a study finds a difference between two settings, over the seeds of each.

    Args:
        spread: standard deviation of the final return over seeds, of either setting.
        differences: of the true means, a line each.
        most: seeds, the right end.
    """
    counts = np.arange(2, most + 1)
    with mpl.rc_context(figures.STYLE):
        figure = figures.NotebookFigure(figsize=(8, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.axhline(0.8, color=figures.GREY, linewidth=1, linestyle="--")
        for color, difference in zip(COLORS, differences, strict=False):
            found = [intervals.power(difference, (spread, spread), n, 0.05) for n in counts]
            axes.plot(counts, found, "o-", markersize=4, color=color, label=f"{difference:.3g}")
        axes.set_ylim(0, 1.03)
        figures.label_axes(axes, "seeds of each setting", "probability to find it")
        figure.legend(title="true difference", loc="outside right center")
    return figure


def _by_setting(found: Sequence[compare.Finding], budget: int) -> dict[str, list[compare.Finding]]:
    settings: dict[str, list[compare.Finding]] = {}
    for run in found:
        if run.scored(budget) is not None:
            settings.setdefault(run.setting, []).append(run)
    if not settings:
        raise ValueError(f"no run was evaluated after {budget} gradient steps: nothing to draw")
    return settings


def _colors(settings: Mapping) -> list[str]:
    return [COLORS[i % len(COLORS)] for i in range(len(settings))]


def _curve(axes: Axes, table: pd.DataFrame, name: str, color: str) -> None:
    rows = table.to_numpy()
    middle = [intervals.interquartile_mean(row) for row in rows]
    bounds = [intervals.bootstrap_interval(row) for row in rows]
    axes.plot(table.index, rows, color=color, alpha=0.3, linewidth=0.9)
    if all(bounds):
        low, high = zip(*[bound for bound in bounds if bound], strict=True)
        axes.fill_between(table.index, low, high, color=color, alpha=0.18, linewidth=0)
    what = f"{name}: interquartile mean of {rows.shape[1]} seeds"
    what += ", 95 % interval" if all(bounds) else ""
    axes.plot(table.index, middle, color=color, label=what if rows.shape[1] > 1 else name)


def _published(axes: Axes) -> None:
    plots.published_curve(axes)
    for (score, what), style in zip(PUBLISHED_SCORES, ("--", ":"), strict=True):
        axes.axhline(score, color=figures.GREY, linestyle=style, linewidth=1.4, label=what)
