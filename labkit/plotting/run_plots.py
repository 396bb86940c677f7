"""Figures of a run, drawn from its metrics; nothing here trains or touches pyplot's global state.

Each function returns a figure that a notebook displays, once, as the last value of its cell.
"""

from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.plotting.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    STYLE,
    NotebookFigure,
    label_axes,
)

# Evaluation returns of the TF-Agents tutorial "SAC minitaur with the Actor-Learner API", as
# printed in its published output (run of 2023-12-22): after 0, 10 000, …, 100 000 gradient steps,
# each the mean of 20 episodes with *sampled* actions; replay of 10 000, rewards as they come.
PUBLISHED_CURVE = (
    (0, -0.796275),
    (10_000, -0.739843),
    (20_000, -1.259167),
    (30_000, -0.818176),
    (40_000, -1.347950),
    (50_000, -1.182192),
    (60_000, -1.674075),
    (70_000, -1.215892),
    (80_000, -1.224958),
    (90_000, -0.896713),
    (100_000, -0.280301),
)
PUBLISHED_INITIAL_STEPS = 10_000  # env steps by the random policy before the first gradient step
PUBLISHED_LABEL = "TF-Agents tutorial, sampled actions, replay 10 000"


class NothingToDraw(ValueError):
    """A run holds nothing of what a figure shows: not yet, or because it was stopped early."""


def if_any(draw: Callable[..., Figure], *args: Any, **options: Any) -> Figure | None:
    """The figure `draw(*args, **options)`, or one printed line where there is nothing to draw yet.

    A notebook whose training was stopped early goes on to its end with it.
    """
    try:
        return draw(*args, **options)
    except NothingToDraw as nothing:
        print(f"no figure: {nothing}")
        return None


def learning_curve(
    metrics: pd.DataFrame, *, title: str | None = None, published: bool = True
) -> Figure:
    """Evaluation returns over env steps: the mean as a line, each episode as a faint dot.

    Args:
        metrics: a run's metrics; read are `env_step`, `eval_return` (NaN where none was made) and
            `eval_returns` (the episodes' returns, floats).
        title: stands above.
        published: draw `PUBLISHED_CURVE` beside it; it is the Minitaur's.

    Returns:
        The figure; lines in this order: the zero line, the published curve, episodes, mean.

    Raises:
        ValueError: a column is missing; `NothingToDraw`: no evaluation was made.
    """
    evaluated = _evaluations(metrics, "eval_return", "eval_returns")
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(figsize=(8, 4.4), layout="constrained")
        axes = figure.subplots()
        axes.axhline(0, color=GREY, linewidth=1)
        if published:
            published_curve(axes)
        _episodes(axes, evaluated, "eval_returns")
        _mean(axes, evaluated["env_step"], evaluated["eval_return"])
        label_axes(axes, "env steps", "return of an episode (sum of rewards)", title)
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def losses(metrics: pd.DataFrame) -> Figure:
    """Critic loss, actor loss, α loss and α over gradient steps, a panel each.

    Args:
        metrics: a run's metrics; read are `gradient_step`, `critic_loss`, `actor_loss`,
            `alpha_loss` and `alpha`, NaN where nothing was logged.

    Returns:
        The figure with four axes in that order, one line each.

    Raises:
        ValueError: a column is missing; `NothingToDraw`: no loss was logged.
    """
    panels = (
        ("critic_loss", "critic loss (scaled return²)", BLUE),
        ("actor_loss", "actor loss (scaled return)", ORANGE),
        ("alpha_loss", "α loss (nats)", GREEN),
        ("alpha", "α (scaled return per nat)", PURPLE),
    )
    names = [name for name, _, _ in panels]
    _require(metrics, "gradient_step", *names)
    if not len(metrics) or metrics[names].isna().all(axis=None):
        raise NothingToDraw("these metrics hold no losses: no gradient step was logged yet")
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(figsize=(9, 5.2), layout="constrained")
        for axes, (name, label, color) in zip(
            figure.subplots(2, 2, sharex=True).flat, panels, strict=True
        ):
            logged = metrics[["gradient_step", name]].dropna().astype(float)
            steps, values = logged["gradient_step"], logged[name]
            # A few points alone would be an invisible line.
            axes.plot(steps, values, color=color, marker="o" if len(values) < 5 else None)
            # Over more than a factor of 30 a linear axis shows the largest values alone.
            wide = name == "alpha" or values.max() > 30 * values.min()
            if wide and len(values) and values.min() > 0:
                _log_scale(axes)
            label_axes(axes, "gradient steps" if name.startswith("alpha") else "", label)
    return figure


def distance_and_length(metrics: pd.DataFrame) -> Figure:
    """Forward distance and length of the evaluation episodes over env steps, a panel each.

    Args:
        metrics: a run's metrics; read are `env_step`, `eval_return`, `eval_distances` (metres) and
            `eval_lengths` (env steps), floats a row's episodes.

    Returns:
        The figure; without distances (NaN: nothing there walks) it has the lengths' panel alone.

    Raises:
        ValueError: a column is missing; `NothingToDraw`: no evaluation was made.
    """
    evaluated = _evaluations(metrics, "eval_return", "eval_distances", "eval_lengths")
    panels = [
        ("eval_distances", "forward distance (m)"),
        ("eval_lengths", "episode length (env steps)"),
    ]
    panels = [panel for panel in panels if _spread(evaluated, panel[0])[1].size]
    if not panels:
        raise ValueError("these evaluations hold neither distances nor lengths of episodes")
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(figsize=(4.6 * len(panels), 3.4), layout="constrained")
        for axes, (name, label) in zip(
            figure.subplots(1, len(panels), squeeze=False).flat, panels, strict=True
        ):
            means = [float(np.mean(_floats(episodes) or np.nan)) for episodes in evaluated[name]]
            _episodes(axes, evaluated, name)
            _mean(axes, evaluated["env_step"], means)
            label_axes(axes, "env steps", label)
            axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def published_curve(axes: Axes, color: str = ORANGE) -> None:
    """Draws `PUBLISHED_CURVE`."""
    steps, returns = np.array(PUBLISHED_CURVE).T
    axes.plot(
        steps + PUBLISHED_INITIAL_STEPS,
        returns,
        color=color,
        linestyle="--",
        marker="s",
        markersize=4,
        label=PUBLISHED_LABEL,
    )


def _require(metrics: pd.DataFrame, *names: str) -> None:
    missing = [name for name in names if name not in metrics.columns]
    if missing:
        raise ValueError(f"these metrics have no column {', '.join(missing)}")


def _evaluations(metrics: pd.DataFrame, *names: str) -> pd.DataFrame:
    """The rows with an evaluation."""
    _require(metrics, "env_step", *names)
    evaluated = metrics[metrics["eval_return"].notna()]
    if evaluated.empty:
        raise NothingToDraw("these metrics hold no evaluation: nothing to draw yet")
    return evaluated


def _floats(episodes: Any) -> list[float]:
    """The finite numbers of one cell: a sequence, or NaN where there were no episodes."""
    values = np.atleast_1d(np.asarray(episodes, float))
    return values[np.isfinite(values)].tolist()


def _spread(evaluated: pd.DataFrame, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Each episode's (env step, value), float64 [episodes] both."""
    pairs = [
        (step, value)
        for step, episodes in zip(evaluated["env_step"], evaluated[name], strict=True)
        for value in _floats(episodes)
    ]
    steps, values = np.array(pairs, float).reshape(-1, 2).T
    return steps, values


def _episodes(axes: Axes, evaluated: pd.DataFrame, name: str) -> None:
    steps, values = _spread(evaluated, name)
    axes.plot(steps, values, "o", color=BLUE, alpha=0.3, markersize=4, mew=0, label="each episode")


def _mean(axes: Axes, steps: Sequence[float], means: Sequence[float]) -> None:
    axes.plot(steps, means, color=BLUE, marker="o", markersize=5, label="evaluation mean")


def _log_scale(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(ticker.LogLocator(subs=(2, 5)))
    for axis_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        axis_formatter(lambda value, _: f"{value:g}")
