"""Figures of several runs: curves with intervals, the ranking of settings, power over seeds."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.analysis import compare, statistics
from labkit.analysis.compare import TrackedRun
from labkit.plotting import run_plots, style
from labkit.plotting.run_plots import NothingToDraw

# Grey is for published results, and for settings beyond the sixth.
BASELINE = "black"
MARKERS = "os^Dv*"  # of the colours, for readers who cannot distinguish them
COLORS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, "#E69F00", "#56B4E9")
MOST_WITH_SEEDS = 4  # settings in a figure of curves that also shows their single seeds
MAX_LABEL_LENGTH = 60  # characters of a setting's name in a legend
MAX_SEEDS = 20  # in the figure of the power
# estool plays up to 3000 steps (`max_episode_length` in its model.py), where the registered
# environment truncates after 1000: its score may come from longer episodes.
ESTOOL_STEPS = 3000
# Scores of other methods on MinitaurBulletEnv-v0, and the return at which the environment itself
# counts as solved (`gym.spec(…).reward_threshold`): (return, method and source).
PUBLISHED_SCORES = (
    (11.33, "PPO2, 2 000 000 env steps"),
    (13.96, "evolution strategies (estool)"),
    (15.0, "solved (reward_threshold)"),
)


def curves(
    runs: Sequence[TrackedRun],
    budget: int,
    *,
    published: bool = False,
    title: str | None = None,
    baseline: str | None = None,
) -> Figure:
    """Draws returns over env steps: the interquartile mean of each setting, and each seed faintly.

    With five seeds or more, the bootstrap interval is shaded; the legend has its nominal and its
    actual coverage, see `statistics.interval_coverage`. The six settings with the best
    final scores have a colour, further ones are grey. With more than `MOST_WITH_SEEDS` settings,
    the single seeds are left out. Runs that were not evaluated after `budget` gradient steps are
    left out. With `published`, published results for the Minitaur are drawn too. The setting named
    `baseline` is black.

    Raises:
        NothingToDraw: no run reached the budget.
    """
    settings = _by_setting(runs, budget)
    with style.subplots(8, 4.6) as (figure, axes):
        axes.axhline(0, color=style.GREY, linewidth=1)
        if published:
            _published(axes)
        others = [name for name in settings if name != baseline]
        tables = {name: compare.curve(members, budget) for name, members in settings.items()}
        seeds = len(settings) <= MOST_WITH_SEEDS
        for name, table in tables.items():
            if name == baseline:
                _curve(axes, table, name, BASELINE, seeds)
            elif name in others[: len(COLORS)]:
                place = others.index(name)
                _curve(axes, table, name, COLORS[place], seeds, MARKERS[place])
            else:
                _grey_curve(axes, table, last=name == others[-1])
        # The published curve may be longer: its end would leave a part of the axes empty.
        axes.set_xlim(right=1.03 * max(table.index.max() for table in tables.values()))
        style.label_axes(axes, "env steps", run_plots.RETURN, title)
        rows = len(axes.get_legend_handles_labels()[1])
        figure.set_figheight(3.8 + 0.2 * rows)
        figure.legend(loc="outside lower left")
    return figure


def ranking(
    table: pd.DataFrame,
    *,
    title: str | None = None,
    baseline: str | None = None,
    repeated: pd.DataFrame | None = None,
) -> Figure:
    """Draws each seed's final return (see `compare.scores`) as a dot, the best setting at the top.

    The setting named `baseline` is black, with a dashed line at its interquartile mean. `repeated`
    is a table like `table`, with further runs of the same seeds. They are drawn as rings, and do
    not count.

    Raises:
        NothingToDraw: the table is empty.
    """
    if table.empty:
        raise NothingToDraw("no run reached this budget: nothing to rank")
    order = compare.rank(table)
    labels = compare.distinct_labels(list(order.index), MAX_LABEL_LENGTH)
    names = [textwrap.fill(label, MAX_LABEL_LENGTH // 2) for label in labels]
    most = max(len(name.splitlines()) for name in names)
    with style.subplots(8, 1.2 + (0.18 + 0.13 * most) * len(names)) as (figure, axes):
        axes.axvline(0, color=style.GREY, linewidth=1)
        for row, (name, score) in enumerate(order.iterrows()):
            color = BASELINE if name == baseline else style.BLUE
            _ranking_row(axes, row, score, color, _returns(table, name), _returns(repeated, name))
        if baseline in order.index:
            axes.axvline(order.iqm[baseline], color=BASELINE, linewidth=1, linestyle="--")
        axes.set_yticks(range(len(order)), names)
        axes.set_ylim(len(order) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        rings = repeated is not None and len(repeated) > 0
        axes.set_xlabel(_ranking_legend(order, baseline, rings))
        axes.set_title(title or "")
    return figure


def _returns(table: pd.DataFrame | None, setting: Any) -> list[float]:
    """The returns of a setting; empty without a table."""
    return [] if table is None else table["return"][table.setting == setting].tolist()


def _ranking_row(
    axes: Axes, row: int, score: Any, color: str, values: list[float], again: list[float]
) -> None:
    """The seeds of a setting as dots, repeated ones as rings, and the mean with its interval."""
    # Butt caps: the bar ends exactly at the interval's ends.
    look: dict[str, Any] = {"color": color, "alpha": 0.35, "solid_capstyle": "butt"}
    axes.plot([score.low, score.high], [row, row], linewidth=7, **look)
    axes.plot(values, [row] * len(values), "o", color=color, alpha=0.7, mew=0)
    axes.plot(again, [row] * len(again), "o", color=color, mfc="none")
    axes.plot(score.iqm, row, "|", color="black", markersize=16, mew=2)


def _ranking_legend(order: pd.DataFrame, baseline: str | None, rings: bool) -> str:
    """What the marks of a ranking mean."""
    text = "return after training; dot: one seed, line: interquartile mean"
    text += f",\ndashed: that of {baseline}" if baseline in order.index else ""
    text += ", ring: a repeated seed" if rings else ""
    if order.low.notna().any():
        fewest = int(order.seeds[order.low.notna()].min())
        label = statistics.interval_label(fewest)
        text += f",\nbar: interval of this mean ({label} with {fewest} seeds)"
    return text


def power_over_seeds(std: float, differences: Sequence[float]) -> Figure:
    """Draws the power of a study of two settings over the number of seeds of each.

    `std` is the standard deviation of the final return over seeds, the same for both settings.
    Each of the `differences` of the true means has a line, up to `MAX_SEEDS`.
    """
    counts = np.arange(2, MAX_SEEDS + 1)
    with style.subplots(8, 3.6) as (figure, axes):
        axes.axhline(0.8, color=style.GREY, linewidth=1, linestyle="--")
        axes.text(2, 0.81, "power 0.8", color=style.GREY, va="bottom", fontsize=9)
        for color, difference in zip(COLORS, differences, strict=False):
            powers = [statistics.power(difference, (std, std), n, 0.05) for n in counts]
            label = f"{difference:.2g} ({difference / std:.2g} σ)"
            axes.plot(counts, powers, "o-", markersize=4, color=color, label=label)
        axes.set_ylim(0, 1.03)
        style.label_axes(axes, "seeds of each setting", "power (probability of detection)")
        figure.legend(title="true difference in return", loc="outside right center")
    return figure


def _by_setting(runs: Sequence[TrackedRun], budget: int) -> dict[str, list[TrackedRun]]:
    """The runs with an evaluation at the budget, by setting, the best setting first."""
    table = compare.scores(runs, budget)
    if table.empty:
        what = f"no run was evaluated after {budget} gradient steps"
        raise NothingToDraw(f"{what}: nothing to draw")
    by_path = {run.path: run for run in runs}
    return {
        str(name): [by_path[path] for path in table.path[table.setting == name]]
        for name in compare.rank(table).index
    }


def _curve(
    axes: Axes, table: pd.DataFrame, name: str, color: str, seeds: bool, marker: str = ""
) -> None:
    rows = table.to_numpy()
    bounds = [statistics.bootstrap_interval(row) for row in rows]
    if seeds:
        axes.plot(table.index, rows, color=color, alpha=0.3, linewidth=0.9)
    if all(bounds):
        low, high = zip(*[bound for bound in bounds if bound], strict=True)
        axes.fill_between(table.index, low, high, color=color, alpha=0.18, linewidth=0)
    label = compare.shorten(name, MAX_LABEL_LENGTH)
    if rows.shape[1] > 1:
        # Of fewer than four seeds the interquartile mean is the mean.
        label += f": {'interquartile ' * (rows.shape[1] > 3)}mean of {rows.shape[1]} seeds"
        label += f", {statistics.interval_label(rows.shape[1])}" if all(bounds) else ""
    axes.plot(table.index, _iqm(rows), color=color, label=label, marker=marker, markersize=4.5)


def _grey_curve(axes: Axes, table: pd.DataFrame, last: bool) -> None:
    """A setting without its own colour; the last of them adds one legend entry for all."""
    label = "further settings: interquartile means" if last else None
    axes.plot(table.index, _iqm(table.to_numpy()), color=style.GREY, linewidth=1, label=label)


def _iqm(rows: np.ndarray) -> list[float]:
    """The interquartile mean of each row `[evaluations, seeds]`."""
    return [statistics.interquartile_mean(row) for row in rows]


def _published(axes: Axes) -> None:
    run_plots.published_curve(axes)
    for score, what in PUBLISHED_SCORES:
        axes.axhline(score, color=style.GREY, linestyle=":", linewidth=1.4)
        # Two scores are close to each other: the text of the highest is above its line.
        va = "bottom" if score == PUBLISHED_SCORES[-1][0] else "top"
        look: dict[str, Any] = {"color": style.GREY, "fontsize": 8, "va": va}
        axes.text(1.01, score, what, transform=axes.get_yaxis_transform(), **look)
