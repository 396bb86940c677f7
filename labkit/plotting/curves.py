"""Figures of one run, drawn from its metrics: the learning curve, losses, the live figure.

`metrics` is the table of a run. Each row has `env_step`, `gradient_step` and `wall_seconds`, and
either logged scalars or an evaluation (`eval_return`, and with one float per episode
`eval_returns`, `eval_lengths`, `eval_distances`); what a row lacks is NaN.
"""

import contextlib
import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.plotting import style
from labkit.plotting.style import BLUE, GREEN, GREY, ORANGE, PURPLE, label_axes

# Evaluation returns of the TF-Agents tutorial "SAC minitaur with the Actor-Learner API", as printed
# in its published output (run of 2023-12-22): (gradient steps, mean return of 20 episodes with
# *sampled* actions). Its replay buffer held 10 000 transitions; its rewards were not scaled.
PUBLISHED_CURVE = (
    *((0, -0.796275), (10_000, -0.739843), (20_000, -1.259167), (30_000, -0.818176)),
    *((40_000, -1.347950), (50_000, -1.182192), (60_000, -1.674075), (70_000, -1.215892)),
    *((80_000, -1.224958), (90_000, -0.896713), (100_000, -0.280301)),
)

RETURN = "return of an episode (sum of rewards)"


class NothingToDraw(ValueError):
    """The metrics hold no value that the figure shows, for example because the run was stopped."""


def learning_curve(metrics: pd.DataFrame, *, title: str = "", published: bool = True) -> Figure:
    """Draws evaluation returns over env steps: the mean as a line, each episode as a faint dot.

    With `published`, it also draws `PUBLISHED_CURVE`, which is for the Minitaur.

    Raises:
        NothingToDraw: there is no evaluation.
    """
    if "eval_return" not in metrics or metrics["eval_return"].isna().all():
        raise NothingToDraw("these metrics hold no evaluation: nothing to draw yet")
    evaluated = metrics[metrics["eval_return"].notna()]
    with style.subplots(8, 4.4) as (figure, axes):
        axes.axhline(0, color=GREY, linewidth=1)
        if published:
            published_curve(axes)
        draw_episodes(axes, evaluated, "env_step", "eval_returns")
        label_axes(axes, "env steps", RETURN, title)
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def losses(metrics: pd.DataFrame) -> Figure:
    """Draws every logged scalar over gradient steps, a panel each; see `scalars`.

    Raises:
        NothingToDraw: no scalar was logged.
    """
    if not (names := scalars(metrics)):
        raise NothingToDraw("these metrics hold no losses: no gradient step was logged yet")
    with _panels(metrics, names) as (figure, _):
        return figure


def training_figure(metrics: pd.DataFrame) -> Figure:
    """Draws a run while it trains: returns, gradient steps per second, every logged scalar.

    All are over gradient steps. The metrics need at least one row.
    """
    with _panels(metrics, scalars(metrics), 2) as (figure, (returns, speed)):
        collected = column(metrics, "gradient_step", "collect_return")
        draw_line(returns, collected, ORANGE, "sampled actions")
        evaluated = metrics[metrics["eval_return"].notna()]
        draw_episodes(returns, evaluated, "gradient_step", "eval_returns")
        label_axes(returns, "gradient steps", "", RETURN)
        draw_line(speed, steps_per_second(metrics), GREEN)
        label_axes(speed, "gradient steps", "", "gradient steps per second")
        speed.set_ylim(bottom=0)
        figure.legend(*returns.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def published_curve(axes: Axes) -> None:
    """Draws `PUBLISHED_CURVE` over env steps: 10 000 of warm-up, then one a gradient step."""
    steps, returns = np.array(PUBLISHED_CURVE).T
    label = "TF-Agents tutorial, sampled actions, replay 10 000"
    axes.plot(steps + 10_000, returns, "s--", color=GREY, markersize=4, label=label)


def steps_per_second(metrics: pd.DataFrame) -> pd.Series:
    """Gradient steps per second since the row before, by gradient step; without evaluations."""
    if not metrics["gradient_step"].is_monotonic_increasing:  # Ray trains while it evaluates
        metrics = metrics[metrics["eval_return"].isna()]
    change = metrics[["gradient_step", "wall_seconds"]].astype(float).diff()
    trained = (change > 0).all(axis=1) & metrics["eval_return"].isna()
    rates = change["gradient_step"] / change["wall_seconds"]
    return rates[trained].set_axis(metrics["gradient_step"][trained])


def scalars(metrics: pd.DataFrame) -> list[str]:
    """The columns that the update logged: all with numbers but counters, times and returns."""
    others = {"env_step", "gradient_step", "wall_seconds", "collect_return"}
    numbers = metrics.select_dtypes("number").dropna(axis="columns", how="all")
    return [name for name in numbers if name not in others and not name.startswith("eval_")]


def column(metrics: pd.DataFrame, x: str, name: str) -> pd.Series:
    """The numbers in a column by those in the column `x`; empty where the column is missing."""
    return metrics.reindex(columns=[x, name]).dropna().astype(float).set_index(x)[name]


def draw_episodes(axes: Axes, evaluated: pd.DataFrame, x: str, name: str) -> None:
    """A dot for each episode of the column `name`, and a line through their means."""
    episodes = evaluated[[x, name]].explode(name).astype(float)
    steps, values = episodes[x], episodes[name]
    axes.plot(steps, values, "o", color=BLUE, alpha=0.3, ms=4, mew=0, label="each episode")
    means = evaluated[name].map(np.mean)
    marker = "o" if len(means) <= 40 else None  # more would hide the line
    axes.plot(evaluated[x], means, color=BLUE, marker=marker, ms=5, label="evaluation mean")


def draw_line(axes: Axes, values: pd.Series, color: str, label: str | None = None) -> None:
    """A line over the index, with markers while it has so few points that it could be invisible."""
    marker = "o" if len(values) < 5 else None
    axes.plot(values, color=color, marker=marker, markersize=4, label=label)


@contextlib.contextmanager
def _panels(
    metrics: pd.DataFrame, names: list[str], before: int = 0
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure in rows of two or three panels: those `before`, then one a scalar, drawn already."""
    count = before + len(names)
    columns = 2 if count <= 4 else 3
    rows = -(-count // columns)
    size = 3 + 3 * columns, 2.6 * rows
    with style.subplots(*size, rows, columns, squeeze=False) as (figure, grid):
        for unused in grid.flat[count:]:
            unused.set_axis_off()
        colors = itertools.cycle((BLUE, ORANGE, GREEN, PURPLE))
        for axes, name in zip(grid.flat[before:count], names, strict=True):
            values = column(metrics, "gradient_step", name)
            draw_line(axes, values, next(colors))
            # On a linear axis, a range of more than a factor of 30 shows only its largest values.
            if 0 < values.min() < values.max() / 30:
                axes.set_yscale("log")
            label_axes(axes, "gradient steps", "", name.replace("_", " "))
        yield figure, list(grid.flat[:before])
