"""Figures of notebook 04: the processes of a distributed run, its throughput and its returns."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from labkit.parameters import grouped
from labkit.plotting.style import BLUE, GREEN, GREY, ORANGE, PURPLE, label_axes, subplots

# name: (x, y, its task or content)
BOXES = {
    "driver": (1.0, 1.8, "the notebook: starts, watches and stops every other process"),
    "rollout workers": (0.0, 1.0, "environment, NumPy actor"),
    "evaluator": (0.0, 0.0, "deterministic episodes"),
    "replay": (1.0, 1.0, "Reverb: table, rate limiter"),
    "parameter server": (1.0, 0.0, "newest actor weights"),
    "learner": (2.0, 0.5, "SAC, optimizers, run directory"),
}
FLOWS = [  # from, to, what flows
    ("rollout workers", "replay", "rows"),
    ("replay", "learner", "batches"),
    ("learner", "parameter server", "weights"),
    ("parameter server", "rollout workers", "weights"),
    ("parameter server", "evaluator", "weights"),
]
WIDTH, HEIGHT = 0.72, 0.46
COLORS = (BLUE, ORANGE, GREEN, PURPLE)  # of runs


def processes() -> Figure:
    """The processes of `labkit.train_on_ray` as boxes, and the data between them as arrows."""
    with subplots(9, 4.2) as (figure, axes):
        for name in BOXES:
            _box(axes, name)
        for start, end, what in FLOWS:
            _arrow(axes, start, end, what)
        axes.plot([0, 0], [-HEIGHT / 2, -0.5], color=GREY, linewidth=1)
        axes.plot([0, 2], [-0.5, -0.5], color=GREY, linewidth=1)
        arrow = {"arrowstyle": "->", "color": GREY}
        axes.annotate("", (2.0, 0.5 - HEIGHT / 2), (2.0, -0.5), arrowprops=arrow)
        axes.text(1.0, -0.47, "returns, into metrics.csv", ha="center", va="bottom", fontsize=9)
        axes.set(xlim=(-0.5, 2.5), ylim=(-0.65, 2.1))
        # The axis is off: the label appears only in the alt text, see `style.describe`.
        axes.set_ylabel("driver, replay, learner, parameter server, rollout workers and evaluator")
        axes.axis("off")
    return figure


def _box(axes: Axes, name: str) -> None:
    x, y, content = BOXES[name]
    width = WIDTH if name != "driver" else 2 + WIDTH  # above all other boxes
    corner = (x - width / 2, y - HEIGHT / 2)
    colour = ORANGE if name == "learner" else BLUE if name != "driver" else GREY
    shape = "round,pad=0.0,rounding_size=0.05"
    inside = FancyBboxPatch(corner, width, HEIGHT, shape, facecolor=colour, alpha=0.15, linewidth=0)
    border = FancyBboxPatch(corner, width, HEIGHT, shape, fill=False, edgecolor=colour)
    axes.add_patch(inside)
    axes.add_patch(border)
    axes.text(x, y + 0.07, name, ha="center", va="center", weight="bold")
    axes.text(x, y - 0.09, content, ha="center", va="center", fontsize=8.5)


def _arrow(axes: Axes, start: str, end: str, what: str) -> None:
    (x0, y0, _), (x1, y1, _) = BOXES[start], BOXES[end]
    side = 1 if x1 > x0 else -1
    begin, finish = (x0 + side * WIDTH / 2, y0), (x1 - side * WIDTH / 2, y1)
    axes.annotate("", finish, begin, arrowprops={"arrowstyle": "->", "color": "black"})
    middle = ((begin[0] + finish[0]) / 2, (y0 + y1) / 2)
    # The label is on its arrow, on white; next to it, it could cover another arrow.
    white = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    axes.text(*middle, what, ha="center", va="center", fontsize=9, bbox=white)


def evaluations(runs: Mapping[str, pd.DataFrame]) -> Figure:
    """Mean return of the evaluations over env steps, and env steps over minutes; a line per run.

    The last evaluation is a square without a line: it plays other episodes than those before.
    `runs` maps a label to the table of `run.metrics()`.
    """
    with subplots(9, 3.6, 1, 2) as (figure, (left, right)):
        for (label, table), colour in zip(runs.items(), itertools.cycle(COLORS), strict=False):
            shown = table.dropna(subset="eval_return").sort_values("gradient_step")
            steps, returns = shown.env_step, shown.eval_return
            left.plot(steps[:-1], returns[:-1], "o-", ms=4, color=colour, label=label)
            left.plot(steps[-1:], returns[-1:], "s", ms=6, color=colour)
            right.plot(shown.wall_seconds / 60, steps, "o-", ms=4, color=colour)
        left.plot([], [], "s", color=GREY, label="final evaluation, other episodes")
        label_axes(left, "env steps", "mean deterministic return")
        right.set(xlabel="time (minutes)", ylabel="env steps", ylim=(0, None))
        right.yaxis.set_major_formatter(lambda steps, _: grouped(round(steps)))
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def learning_curve(points: pd.DataFrame, goal: float) -> Figure:
    """Mean return of the evaluations of one run over env steps, with the return that solves it.

    `points` has the columns `env_steps` and `mean_return`, one row per evaluation.
    """
    with subplots(7, 3.2) as (figure, axes):
        axes.plot(points.env_steps, points.mean_return, "o-", markersize=4, color=BLUE)
        solved_line(axes, goal)
        label_axes(axes, "env steps", "mean deterministic return")
    return figure


def throughput(counts: pd.DataFrame, events: Mapping[str, float], window: float = 2.0) -> Figure:
    """Env steps per second of each rollout worker over time, with a line for each event.

    Args:
        counts: one row per look at the replay table; the index is the time in seconds, and each
            column holds the env steps that have arrived from one worker.
        events: what happened, and when, in seconds.
        window: seconds that a rate is taken over.
    """
    with subplots(8, 3.4) as (figure, axes):
        for column, colour in zip(counts, COLORS * len(counts.columns), strict=False):
            seconds, rates = _rates(counts[column], window)
            axes.plot(seconds, rates, color=colour, label=str(column))
        seconds, rates = _rates(counts.sum(axis=1), window)
        axes.plot(seconds, rates, color="black", linestyle="--", label="together")
        top = max(1.0, axes.get_ylim()[1])
        above = {"transform": axes.get_xaxis_transform(), "ha": "center", "va": "bottom"}
        for what, when in events.items():
            axes.axvline(when, color=GREY, linewidth=1, linestyle=":")
            axes.text(when, 1.01, what, fontsize=9, **above)
        axes.set(ylim=(0, 1.15 * top))
        label_axes(axes, "seconds", f"env steps/s, over {window:g} s")
        figure.legend(loc="outside lower center", ncols=4)
    return figure


def _rates(arrived: pd.Series, window: float) -> tuple[np.ndarray, np.ndarray]:
    """Times, from `window` seconds on, and the rate over the `window` before each."""
    seconds, steps = arrived.index.to_numpy(float), arrived.to_numpy(float)
    times = seconds[seconds >= seconds[0] + window]
    before = np.interp(times - window, seconds, steps)
    return times, (np.interp(times, seconds, steps) - before) / window


def rates(tables: Sequence[tuple[str, pd.DataFrame]]) -> str:
    """The gradient steps per second of several runs, one line for each `(label, metrics)`."""
    lines = []
    for label, table in tables:
        found = iterations_per_second(table)
        rate = f"{found:.0f} gradient steps/s" if np.isfinite(found) else "too short to be timed"
        lines.append(f"{label}: {rate}")
    return "\n".join(lines)


def iterations_per_second(table: pd.DataFrame) -> float:
    """Gradient steps per second between the first and the last row of `run.metrics()` with losses.

    It is NaN with fewer than two such rows.
    """
    rows = table.dropna(subset="critic_loss").sort_values("gradient_step")
    if len(rows) < 2:
        return float("nan")
    first, last = rows.iloc[0], rows.iloc[-1]
    return (last.gradient_step - first.gradient_step) / (last.wall_seconds - first.wall_seconds)


def solved_line(axes: Axes, goal: float) -> None:
    """A dashed line at the return that counts as solved, named at its right end."""
    axes.axhline(goal, color=GREEN, linestyle="--", linewidth=1.2)
    text, edge = f"solved: {goal:g}".replace("-", "\N{MINUS SIGN}"), axes.get_yaxis_transform()
    axes.text(1.01, goal, text, color=GREEN, transform=edge, va="center")
