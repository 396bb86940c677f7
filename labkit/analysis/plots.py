"""Figures of several runs: learning curves with intervals, and the ranking of settings."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.analysis import runs as stored
from labkit.analysis import statistics
from labkit.analysis.runs import BASELINE, StoredRun
from labkit.plotting import style
from labkit.plotting.curves import RETURN, published_curve

MARKERS = "os^Dv*"  # of the colours, for readers who cannot distinguish them
COLORS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, "#E69F00", "#56B4E9")
MOST_WITH_SEEDS = 4  # settings in a figure of curves that also shows their single seeds
LABEL = 60  # characters of a setting's name in a legend
INTERVAL = "nominal 95 % interval"
# Scores of other methods on MinitaurBulletEnv-v0, and the return at which the environment itself
# counts as solved. estool plays up to 3000 steps, where the environment truncates after 1000.
PUBLISHED_SCORES = (
    (11.33, "PPO2, 2 000 000 env steps"),
    (13.96, "evolution strategies (estool)"),
    (15.0, "solved (reward_threshold)"),
)


def curves(found: Sequence[StoredRun], budget: int, *, published: bool = False) -> Figure:
    """Draws returns over env steps: the interquartile mean of each setting, and each seed faintly.

    With five seeds or more, the bootstrap interval is shaded. The baseline is black. The six other
    settings with the best final scores have a colour, further ones are grey. With more than
    `MOST_WITH_SEEDS` settings, the single seeds are left out. With `published`, published results
    for the Minitaur are drawn too. `runs.scores_at` says which runs are left out.
    """
    scores, _ = stored.scores_at(found, budget)
    order = list(stored.rank(scores).index)
    kept = [run for run in found if run.path in set(scores.path)]
    tables = {name: curve([r for r in kept if r.setting == name], budget) for name in order}
    others = [name for name in order if name != BASELINE]
    with style.subplots(8, 4.6) as (figure, axes):
        axes.axhline(0, color=style.GREY, linewidth=1)
        if published:
            _published(axes)
        for name, table in tables.items():
            place = -1 if name == BASELINE else others.index(name)
            if place < len(COLORS):
                color, marker = ("black", "") if place < 0 else (COLORS[place], MARKERS[place])
                _curve(axes, table, name, color, len(order) <= MOST_WITH_SEEDS, marker)
            else:
                label = "further settings: interquartile means" if name == others[-1] else None
                means = table.apply(statistics.interquartile_mean, axis=1)
                axes.plot(means, color=style.GREY, linewidth=1, label=label)
        # The published curve may be longer: its end would leave a part of the axes empty.
        axes.set_xlim(right=1.03 * max(table.index.max() for table in tables.values()))
        style.label_axes(axes, "env steps", RETURN)
        figure.set_figheight(3.8 + 0.2 * len(axes.get_legend_handles_labels()[1]))
        figure.legend(loc="outside lower left")
    return figure


def curve(found: Sequence[StoredRun], budget: int) -> pd.DataFrame:
    """Evaluation returns of the runs of one setting, up to `budget` gradient steps.

    Returns:
        One row per gradient step at which all runs were evaluated; one column per run. The index
        has the env steps at that gradient step: the mean over the runs, which differ on Ray.
    """
    parts = {}
    for run in found:
        rows = run.evaluations[run.evaluations.gradient_step <= budget]
        parts[str(run.path)] = rows.groupby("gradient_step")[["env_step", "eval_return"]].last()
    table = pd.concat(parts, axis=1).dropna().swaplevel(axis=1)
    return table["eval_return"].set_axis(pd.Index(table["env_step"].mean(axis=1), name="env_step"))


def _curve(axes: Axes, table: pd.DataFrame, name: str, color: str, seeds: bool, mark: str) -> None:
    rows = table.to_numpy()
    if seeds:
        axes.plot(table.index, rows, color=color, alpha=0.3, linewidth=0.9)
    label, count = textwrap.shorten(name, LABEL, placeholder=" …"), rows.shape[1]
    if count > 1:  # of fewer than four seeds the interquartile mean is the mean
        label += f": {'interquartile ' * (count > 3)}mean of {count} seeds"
    if count >= statistics.MIN_SEEDS_FOR_INTERVAL:
        low, high = np.transpose([statistics.bootstrap_interval(row) for row in rows])
        axes.fill_between(table.index, low, high, color=color, alpha=0.18, linewidth=0)
        label += f", {INTERVAL}"
    means = table.apply(statistics.interquartile_mean, axis=1)
    axes.plot(means, color=color, label=label, marker=mark, markersize=4.5)


def _published(axes: Axes) -> None:
    published_curve(axes)
    for score, what in PUBLISHED_SCORES:
        axes.axhline(score, color=style.GREY, linestyle=":", linewidth=1.4)
        # Two scores are close to each other: the text of the highest is above its line.
        va = "bottom" if score == PUBLISHED_SCORES[-1][0] else "top"
        look: dict[str, Any] = {"color": style.GREY, "fontsize": 8, "va": va}
        axes.text(1.01, score, what, transform=axes.get_yaxis_transform(), **look)


def ranking(table: pd.DataFrame, repeated: pd.DataFrame | None = None) -> Figure:
    """Draws each seed's final return (see `runs.scores_at`) as a dot, the best setting at the top.

    The baseline is black, with a dashed line at its interquartile mean. `repeated` is a table like
    `table`, with further runs of the same seeds. They are drawn as rings, and do not count.
    """
    order = stored.rank(table)
    again = table.iloc[:0] if repeated is None else repeated
    names = [textwrap.fill(str(name), LABEL // 2) for name in order.index]
    lines = max(len(name.splitlines()) for name in names)
    with style.subplots(8, 1.2 + (0.18 + 0.13 * lines) * len(names)) as (figure, axes):
        axes.axvline(0, color=style.GREY, linewidth=1)
        for row, (name, score) in enumerate(order.iterrows()):
            color = "black" if name == BASELINE else style.BLUE
            # Butt caps: the bar ends exactly at the interval's ends.
            look: dict[str, Any] = {"color": color, "alpha": 0.35, "solid_capstyle": "butt"}
            axes.plot([score.low, score.high], [row, row], linewidth=7, **look)
            for shown, fill in ((table, color), (again, "none")):
                values = shown["return"][shown.setting == name]
                axes.plot(values, [row] * len(values), "o", color=color, alpha=0.7, mfc=fill)
            axes.plot(score.iqm, row, "|", color="black", markersize=16, mew=2)
        if BASELINE in order.index:
            axes.axvline(order.iqm[BASELINE], color="black", linewidth=1, linestyle="--")
        axes.set_yticks(range(len(order)), names)
        axes.set_ylim(len(order) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        ring = ", ring: a repeated seed" if len(again) else ""
        axes.set_xlabel(f"return after training\ndot: one seed{ring}, line: IQM, bar: {INTERVAL}")
    return figure
