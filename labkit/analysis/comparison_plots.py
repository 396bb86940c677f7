"""Figures of several runs: curves with intervals, settings in rank, power over seeds."""

import textwrap
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.analysis import compare, statistics
from labkit.plotting import run_plots, style

# Grey is what is published, and the settings that are too many to tell apart by their colours.
COLORS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, "#E69F00", "#56B4E9")
WIDEST = 60  # characters of a setting's name in a legend
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
        The figure; a 95 % bootstrap interval is shaded where there are five seeds or more. The
        six settings with the highest end have a colour, further ones are grey.

    Raises:
        ValueError: no run reached the budget.
    """
    settings = _by_setting(found, budget)
    with mpl.rc_context(style.STYLE):
        figure = style.NotebookFigure(figsize=(8, 4.6), layout="constrained")
        axes = figure.subplots()
        axes.axhline(0, color=style.GREY, linewidth=1)
        if published:
            _published(axes)
        for number, (name, runs) in enumerate(settings.items()):
            table = compare.curve(runs, budget)
            if number < len(COLORS):
                _curve(axes, table, name, COLORS[number])
            else:
                _others(axes, table, len(settings) - number)
        style.label_axes(axes, "env steps", "return of an episode (sum of rewards)", title)
        rows = len(axes.get_legend_handles_labels()[1])
        figure.set_figheight(3.8 + 0.2 * rows)
        figure.legend(loc="outside lower left")
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
    with mpl.rc_context(style.STYLE):
        names = [
            textwrap.fill(name, WIDEST // 2)
            for name in compare.told_apart(list(order.index), WIDEST)
        ]
        most = max(len(name.splitlines()) for name in names)
        height = 1.2 + (0.25 + 0.17 * most) * len(names)
        figure = style.NotebookFigure(figsize=(8, height), layout="constrained")
        axes = figure.subplots()
        axes.axvline(0, color=style.GREY, linewidth=1)
        for row, (name, score) in enumerate(order.iterrows()):
            values = table["return"][table.setting == name]
            axes.plot(
                [score.low, score.high],
                [row, row],
                color=style.BLUE,
                alpha=0.35,
                linewidth=7,
                solid_capstyle="butt",  # the bar ends where the interval does
            )
            axes.plot(values, [row] * len(values), "o", color=style.BLUE, alpha=0.7, mew=0)
            axes.plot(score.iqm, row, "|", color="black", markersize=16, mew=2)
        axes.set_yticks(range(len(order)), names)
        axes.set_ylim(len(order) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        bar = ", bar: its 95 % interval" if order.low.notna().any() else ""
        axes.set_xlabel(f"return after training; dot: one seed, line: interquartile mean{bar}")
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
    with mpl.rc_context(style.STYLE):
        figure = style.NotebookFigure(figsize=(8, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.axhline(0.8, color=style.GREY, linewidth=1, linestyle="--", label="power 0.8")
        for color, difference in zip(COLORS, differences, strict=False):
            found = [statistics.power(difference, (spread, spread), n, 0.05) for n in counts]
            label = f"{difference:.3g} ({difference / spread:.2g} σ)"
            axes.plot(counts, found, "o-", markersize=4, color=color, label=label)
        axes.set_ylim(0, 1.03)
        style.label_axes(axes, "seeds of each setting", "probability to find it")
        figure.legend(title="true difference in return", loc="outside right center")
    return figure


def _by_setting(found: Sequence[compare.Finding], budget: int) -> dict[str, list[compare.Finding]]:
    """The runs that reached the budget, by setting, the setting with the highest end first."""
    table = compare.scores(found, budget)
    if table.empty:
        raise ValueError(f"no run was evaluated after {budget} gradient steps: nothing to draw")
    paths = {run.path: run for run in found}
    return {
        str(name): [paths[path] for path in table.path[table.setting == name]]
        for name in compare.rank(table).index
    }


def _curve(axes: Axes, table: pd.DataFrame, name: str, color: str) -> None:
    rows = table.to_numpy()
    bounds = [statistics.bootstrap_interval(row) for row in rows]
    axes.plot(table.index, rows, color=color, alpha=0.3, linewidth=0.9)
    if all(bounds):
        low, high = zip(*[bound for bound in bounds if bound], strict=True)
        axes.fill_between(table.index, low, high, color=color, alpha=0.18, linewidth=0)
    label = compare.shortened(name, WIDEST)
    if rows.shape[1] > 1:
        # Of fewer than four the interquartile mean leaves none out.
        label += f": {'interquartile ' * (rows.shape[1] > 3)}mean of {rows.shape[1]} seeds"
        label += ", 95 % interval" if all(bounds) else ""
    axes.plot(table.index, _middle(rows), color=color, label=label)


def _others(axes: Axes, table: pd.DataFrame, left: int) -> None:
    """One more setting without a colour; the last of them, with one left, stands for all."""
    label = "further settings: interquartile means" if left == 1 else None
    axes.plot(table.index, _middle(table.to_numpy()), color=style.GREY, linewidth=1, label=label)


def _middle(rows: np.ndarray) -> list[float]:
    """The interquartile mean of each row `[evaluations, seeds]`."""
    return [statistics.interquartile_mean(row) for row in rows]


def _published(axes: Axes) -> None:
    run_plots.published_curve(axes, style.GREY)
    for (score, what), line in zip(PUBLISHED_SCORES, ("--", ":"), strict=True):
        axes.axhline(score, color=style.GREY, linestyle=line, linewidth=1.4, label=what)
