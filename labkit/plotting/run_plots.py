"""Figures of one run, drawn from its metrics.

Each function returns a figure, which a notebook displays as the last value of its cell. Nothing
here trains or uses pyplot's global state. The live figure of a training (`training_figure`) and
the final figures draw their panels with the same functions.
"""

from collections.abc import Callable, Sequence
from typing import ParamSpec

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import ticker
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
PUBLISHED_INITIAL_STEPS = 10_000  # env steps of warm-up, before the first gradient step
PUBLISHED_LABEL = "TF-Agents tutorial, sampled actions, replay 10 000"

MAX_MARKERS = 40  # on a line of evaluations

RETURN = "return of an episode (sum of rewards)"
NOTES = {  # the titles of the panels of `losses`
    "critic_loss": "half the squared TD errors",
    "actor_loss": "about −Q: falls as the robot improves",
    "alpha_loss": "0 where the entropy meets its target",
    "alpha": "the price of a nat of entropy",
}
LOGGED = {  # column of the metrics: (label with its unit, colour)
    "critic_loss": ("critic loss (scaled return²)", BLUE),
    "actor_loss": ("actor loss (scaled return)", ORANGE),
    "alpha_loss": ("α loss (nats)", GREEN),
    "alpha": ("α (scaled return per nat)", PURPLE),
}
Parameters = ParamSpec("Parameters")


class NothingToDraw(ValueError):
    """The metrics hold no value that the figure shows, for example because the run was stopped."""


def if_any(
    draw: Callable[Parameters, Figure], *args: Parameters.args, **options: Parameters.kwargs
) -> Figure | None:
    """Returns `draw(*args, **options)`; prints one line instead when there is nothing to draw.

    With it, a notebook whose training was stopped early still runs to its end.
    """
    try:
        return draw(*args, **options)
    except NothingToDraw as nothing:
        print(f"no figure: {nothing}")
        return None


def learning_curve(
    metrics: pd.DataFrame, *, title: str | None = None, published: bool = True
) -> Figure:
    """Draws evaluation returns over env steps: the mean as a line, each episode as a faint dot.

    Columns used of a run's metrics: `env_step`, `eval_return` (NaN in rows without an evaluation)
    and `eval_returns` (a tuple of floats, one per episode). With `published`, it also draws
    `PUBLISHED_CURVE`, which is for the Minitaur. The order of the lines in the figure is: zero
    line, published curve, episodes, mean.

    Raises:
        ValueError: a column is missing.
        NothingToDraw: there is no evaluation.
    """
    evaluated = _evaluations(metrics, "env_step", "eval_return", "eval_returns")
    with style.subplots(8, 4.4) as (figure, axes):
        axes.axhline(0, color=GREY, linewidth=1)
        if published:
            published_curve(axes)
        _draw_episodes(axes, evaluated, "env_step", "eval_returns")
        _draw_mean(axes, evaluated["env_step"], evaluated["eval_return"])
        label_axes(axes, "env steps", RETURN, title)
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def losses(metrics: pd.DataFrame) -> Figure:
    """Draws critic loss, actor loss, α loss and α over gradient steps, one panel and line each.

    Columns used of a run's metrics: `gradient_step` and those in `LOGGED`, NaN in rows without a
    logged value.

    Raises:
        ValueError: a column is missing.
        NothingToDraw: no loss was logged.
    """
    _require(metrics, "gradient_step", *LOGGED)
    if not len(metrics) or metrics[list(LOGGED)].isna().all(axis=None):
        raise NothingToDraw("these metrics hold no losses: no gradient step was logged yet")
    with style.subplots(9, 5.2, 2, 2, sharex=True) as (figure, panels):
        for axes, (name, (label, _)) in zip(panels.flat, LOGGED.items(), strict=True):
            values = _draw_logged(axes, metrics, name)
            # On a linear axis, a range of more than a factor of 30 shows only its largest values.
            wide = name == "alpha" or values.max() > 30 * values.min()
            if wide and len(values) and values.min() > 0:
                _log_scale(axes)
            below = "gradient steps" if name.startswith("alpha") else ""
            label_axes(axes, below, label, NOTES[name])
    return figure


def both_policies(metrics: pd.DataFrame) -> Figure:
    """Draws the returns of deterministic and of sampled actions over env steps, as two lines.

    Columns used of a run's metrics: `env_step`, `eval_return` (deterministic) and `collect_return`
    (mean of the last ten episodes that collected).

    Raises:
        ValueError: a column is missing.
        NothingToDraw: there is neither.
    """
    _require(metrics, "env_step", "eval_return", "collect_return")
    if metrics[["eval_return", "collect_return"]].isna().all(axis=None):
        raise NothingToDraw("these metrics hold no returns: nothing to draw yet")
    with style.subplots(8, 4) as (figure, axes):
        for name, label, color in (
            ("eval_return", "deterministic actions (evaluation)", BLUE),
            ("collect_return", "sampled actions (collecting)", ORANGE),
        ):
            drawn = metrics[["env_step", name]].dropna().astype(float)
            axes.plot(drawn["env_step"], drawn[name], "o-", color=color, markersize=4, label=label)
        label_axes(axes, "env steps", RETURN)
        figure.legend(loc="outside lower center", ncols=1)
    return figure


def entropy(metrics: pd.DataFrame, target: float) -> Figure:
    """Draws the policy's entropy over gradient steps: the first fifth of the run, then all of it.

    The second panel is cut off where only the first half of the run goes.

    The metrics hold the temperature loss log α · (entropy − target), hence the entropy is the
    target plus that loss over log α: an estimate, because log α changes between two rows.

    Columns used: `gradient_step`, `alpha_loss` and `alpha`. `target` is in nats.

    Raises:
        ValueError: a column is missing.
        NothingToDraw: no loss was logged.
    """
    _require(metrics, "gradient_step", "alpha_loss", "alpha")
    logged = metrics[["gradient_step", "alpha_loss", "alpha"]].dropna().astype(float)
    logged = logged[logged["alpha"] != 1]  # log 1 = 0: the loss says nothing about the entropy
    if logged.empty:
        raise NothingToDraw("these metrics hold no temperature: no gradient step was logged yet")
    nats = target + logged["alpha_loss"] / np.log(logged["alpha"])
    steps = logged["gradient_step"]
    first = steps <= max(steps.min(), steps.max() / 5)
    with style.subplots(9, 3.4, 1, 2) as (figure, (left, right)):
        _draw_line(left, steps[first], nats[first], GREEN, "policy")
        _draw_line(right, steps, nats, GREEN)
        distance = 1.1 * max(0.5, (nats[len(nats) // 2 :] - target).abs().max())
        right.set_ylim(target - distance, target + distance)
        for axes in (left, right):
            axes.axhline(target, color="black", linestyle="--", linewidth=1, label="target")
        label_axes(left, "gradient steps", "entropy (nats)", "the first fifth of the run")
        label_axes(right, "gradient steps", "", "the whole run, near the target")
        left.legend()
    return figure


def distance_and_length(metrics: pd.DataFrame) -> Figure:
    """Draws forward distance and length of the evaluation episodes over env steps, a panel each.

    Columns used of a run's metrics: `env_step`, `eval_return`, `eval_distances` (metres) and
    `eval_lengths` (env steps), the last two with one float per episode. Without distances (NaN:
    the robot has no position) the figure has only the panel of the lengths.

    Raises:
        ValueError: a column is missing, or holds no number.
        NothingToDraw: there is no evaluation.
    """
    evaluated = _evaluations(metrics, "env_step", "eval_return", "eval_distances", "eval_lengths")
    labels = {
        "eval_distances": "forward distance (m)",
        "eval_lengths": "episode length (env steps)",
    }
    drawn = [name for name in labels if _per_episode(evaluated, "env_step", name)[1].size]
    if not drawn:
        raise ValueError("these evaluations hold neither distances nor lengths of episodes")
    count = len(drawn)
    with style.subplots(4.6 * count, 3.4, 1, count, squeeze=False) as (figure, panels):
        for axes, name in zip(panels.flat, drawn, strict=True):
            means = [float(np.mean(_finite(episodes) or np.nan)) for episodes in evaluated[name]]
            _draw_episodes(axes, evaluated, "env_step", name)
            _draw_mean(axes, evaluated["env_step"], means)
            label_axes(axes, "env steps", labels[name])
            low, high = axes.get_ylim()
            low = min(0, low)
            axes.set_ylim(low, high + 0.03 * (high - low))  # dots at the top are not cut
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def training_figure(metrics: pd.DataFrame) -> Figure:
    """Draws a run while it trains: returns; critic loss, actor loss, α; gradient steps per second.

    Its five axes are in that order, over gradient steps. The metrics need at least one row; a
    panel without logged values stays empty.
    """
    with mpl.rc_context({**style.STYLE, "font.size": 9, "lines.linewidth": 1.5}):
        # Fixed margins: a constrained layout would take as long as the rest of the drawing.
        figure = style.NotebookFigure(figsize=(10, 4.2))
        figure.subplots_adjust(0.08, 0.115, 0.965, 0.93, wspace=0.32, hspace=0.5)
        panels = figure.subplot_mosaic("rca;rαs", width_ratios=(1.5, 1, 1))
        returns, critic, actor, alpha, speed = panels.values()
        collected = metrics[["gradient_step", "collect_return"]].dropna().astype(float)
        steps, means = collected["gradient_step"], collected["collect_return"]
        _draw_line(returns, steps, means, ORANGE, "sampled actions")
        evaluated = metrics[metrics["eval_return"].notna()]
        steps, means = evaluated["gradient_step"], evaluated["eval_return"]
        _draw_episodes(returns, evaluated, "gradient_step", "eval_returns", label=None)
        _draw_mean(returns, steps, means, "deterministic actions")
        label_axes(returns, "gradient steps", RETURN)
        # The legend is above the axes, because the curves may be anywhere inside.
        returns.legend(loc="lower left", bbox_to_anchor=(-0.02, 0.99), ncols=2, frameon=False)
        for name, axes in {"critic_loss": critic, "actor_loss": actor, "alpha": alpha}.items():
            _draw_logged(axes, metrics, name)
            label_axes(axes, "gradient steps", "", LOGGED[name][0])
        _draw_line(speed, *iterations_per_second(metrics), GREEN)
        label_axes(speed, "gradient steps", "", "gradient steps/s")
        speed.set_ylim(bottom=0)
        returns.locator_params(axis="x", nbins=5)  # so that the labels of a million do not overlap
        for axes in (critic, actor, alpha, speed):
            axes.locator_params(axis="x", nbins=3)
    return figure


def iterations_per_second(metrics: pd.DataFrame) -> tuple[list[float], list[float]]:
    """Gradient steps per second between consecutive rows, the time of evaluations excluded.

    Columns used of a run's metrics: `gradient_step`, `wall_seconds` and `eval_return`.

    Returns:
        The gradient step at the end of each interval, and the rate in it; both `[intervals]`.
    """
    if not metrics["gradient_step"].is_monotonic_increasing:  # Ray trains while it evaluates
        metrics = metrics[metrics["eval_return"].isna()]
    change = metrics[["gradient_step", "wall_seconds"]].astype(float).diff()
    trained = (change["gradient_step"] > 0) & (change["wall_seconds"] > 0)
    trained &= metrics["eval_return"].isna()  # such an interval includes an evaluation
    rates = change["gradient_step"] / change["wall_seconds"]
    return metrics["gradient_step"][trained].astype(float).tolist(), rates[trained].tolist()


# --- what the figures share: one panel, or a part of one


def published_curve(axes: Axes) -> None:
    """Draws `PUBLISHED_CURVE` over env steps; the tutorial takes one for each gradient step."""
    steps, returns = np.array(PUBLISHED_CURVE).T
    steps += PUBLISHED_INITIAL_STEPS
    axes.plot(steps, returns, "s--", color=GREY, markersize=4, label=PUBLISHED_LABEL)


def _draw_episodes(
    axes: Axes, evaluated: pd.DataFrame, x: str, name: str, label: str | None = "each episode"
) -> None:
    """A dot for each episode; without a label, the legend does not mention them."""
    steps, values = _per_episode(evaluated, x, name)
    axes.plot(steps, values, "o", color=BLUE, alpha=0.3, markersize=4, mew=0, label=label)


def _draw_mean(
    axes: Axes, steps: Sequence[float], means: Sequence[float], label: str = "evaluation mean"
) -> None:
    marker = "o" if len(steps) <= MAX_MARKERS else None  # more of them would hide the line
    axes.plot(steps, means, color=BLUE, marker=marker, markersize=5, label=label)


def _draw_logged(axes: Axes, metrics: pd.DataFrame, name: str) -> pd.Series:
    """One column of `LOGGED` over gradient steps; returns its values, without NaN."""
    logged = metrics[["gradient_step", name]].dropna().astype(float)
    _draw_line(axes, logged["gradient_step"], logged[name], LOGGED[name][1])
    return logged[name]


def _draw_line(
    axes: Axes,
    steps: Sequence[float],
    values: Sequence[float],
    color: str,
    label: str | None = None,
) -> None:
    """A line, with markers while it has so few points that it could be invisible."""
    marker = "o" if len(values) < 5 else None
    axes.plot(steps, values, color=color, marker=marker, markersize=4, label=label)


def _log_scale(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(ticker.LogLocator(subs=(2, 3, 5)))
    axes.grid(visible=True, which="minor", axis="y")  # an axis may span less than a decade
    for set_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        set_formatter(lambda value, _: f"{value:g}")


# --- reading the metrics


def _require(metrics: pd.DataFrame, *names: str) -> None:
    missing = [name for name in names if name not in metrics.columns]
    if missing:
        raise ValueError(f"these metrics have no column {', '.join(missing)}")


def _evaluations(metrics: pd.DataFrame, *names: str) -> pd.DataFrame:
    """The rows with an evaluation, from metrics that must have these columns."""
    _require(metrics, *names)
    evaluated = metrics[metrics["eval_return"].notna()]
    if evaluated.empty:
        raise NothingToDraw("these metrics hold no evaluation: nothing to draw yet")
    return evaluated


def _finite(episodes: Sequence[float] | float) -> list[float]:
    """The finite numbers of one cell: a sequence, or NaN where there were no episodes."""
    values = np.atleast_1d(np.asarray(episodes, float))
    return values[np.isfinite(values)].tolist()


def _per_episode(evaluated: pd.DataFrame, x: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The values of the columns `x` and `name` for each episode, both float64 `[episodes]`."""
    pairs = evaluated[[x, name]].explode(name).astype(float).to_numpy()
    steps, values = pairs[np.isfinite(pairs[:, 1])].T
    return steps, values
