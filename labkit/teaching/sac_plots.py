"""Figures of notebook 03."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from labkit.plotting.curves import (
    RETURN,
    NothingToDraw,
    column,
    draw_episodes,
    draw_line,
    evaluations,
)
from labkit.plotting.style import BLUE, GREEN, GREY, ORANGE, PURPLE, label_axes, subplots


def if_any(draw: Callable[..., Figure], *args: Any, **options: Any) -> Figure | None:
    """Returns `draw(*args, **options)`; prints one line instead when there is nothing to draw.

    With it, a notebook whose training was stopped early still runs to its end.
    """
    try:
        return draw(*args, **options)
    except NothingToDraw as nothing:
        print(f"no figure: {nothing}")
        return None


def both_policies(metrics: pd.DataFrame) -> Figure:
    """Draws the returns of deterministic and of sampled actions over env steps, as two lines.

    These are `eval_return` and `collect_return`, the mean of the last ten collected episodes.

    Raises:
        NothingToDraw: there is neither.
    """
    evaluated, collected = (
        column(metrics, "env_step", name) for name in ("eval_return", "collect_return")
    )
    if evaluated.empty and collected.empty:
        raise NothingToDraw("these metrics hold no returns: nothing to draw yet")
    with subplots(8, 4) as (figure, axes):
        axes.plot(evaluated, "o-", color=BLUE, ms=4, label="deterministic actions (evaluation)")
        axes.plot(collected, "o-", color=ORANGE, ms=4, label="sampled actions (collecting)")
        label_axes(axes, "env steps", RETURN)
        figure.legend(loc="outside lower center", ncols=1)
    return figure


def entropy(metrics: pd.DataFrame, target: float) -> Figure:
    """Draws the policy's entropy over gradient steps: the first fifth of the run, then all of it.

    The second panel is cut off where only the first half of the run goes. `target` is in nats.

    The temperature loss is log α · (entropy − target), hence the entropy is the target plus that
    loss over log α: an estimate, because log α changes between two rows.

    Raises:
        NothingToDraw: no `alpha_loss` and `alpha` were logged.
    """
    loss, alpha = (column(metrics, "gradient_step", name) for name in ("alpha_loss", "alpha"))
    alpha = alpha[alpha != 1]  # log 1 = 0: the loss says nothing about the entropy
    if alpha.empty:
        raise NothingToDraw("these metrics hold no temperature: no gradient step was logged yet")
    nats = target + loss[alpha.index] / np.log(alpha)
    first, last = nats.index[[0, -1]]
    with subplots(9, 3.4, 1, 2) as (figure, (left, right)):
        draw_line(left, nats[nats.index <= max(first, last / 5)], GREEN, "policy")
        draw_line(right, nats, GREEN)
        distance = 1.1 * max(0.5, (nats.iloc[len(nats) // 2 :] - target).abs().max())
        right.set_ylim(target - distance, target + distance)
        for axes in (left, right):
            axes.axhline(target, color="black", linestyle="--", linewidth=1, label="target")
        label_axes(left, "gradient steps", "entropy (nats)", "the first fifth of the run")
        label_axes(right, "gradient steps", "", "the whole run, near the target")
        left.legend()
    return figure


def distance_and_length(metrics: pd.DataFrame) -> Figure:
    """Draws distance (metres) and length (env steps) of the evaluation episodes, a panel each.

    Without distances (NaN: the robot has no position) the figure has only the lengths.

    Raises:
        NothingToDraw: there is no evaluation.
    """
    evaluated = evaluations(metrics)
    labels = {
        "eval_distances": "forward distance (m)",
        "eval_lengths": "episode length (env steps)",
    }
    drawn = [name for name in labels if evaluated[name].explode().notna().any()]
    with subplots(4.6 * len(drawn), 3.4, 1, len(drawn), squeeze=False) as (figure, panels):
        for axes, name in zip(panels.flat, drawn, strict=True):
            draw_episodes(axes, evaluated, "env_step", name)
            label_axes(axes, "env steps", labels[name])
            low, high = axes.get_ylim()
            low = min(0, low)
            axes.set_ylim(low, high + 0.03 * (high - low))  # dots at the top are not cut
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def critic_estimates(table: pd.DataFrame) -> Figure:
    """Draws estimated Q over the Monte-Carlo return: a dot for each action, a colour per episode.

    A grey line shows where both are equal; a dashed one is shifted by the mean gap (estimate minus
    return).

    `table` has a row for each action and the columns `episode`, `estimated` and `returned`, the
    last two in units of the scaled return.

    Raises:
        NothingToDraw: there is no row.
    """
    if table.empty:
        raise NothingToDraw("there is no estimate: no episode was played")
    ends = table[["estimated", "returned"]].to_numpy(float)
    ends = np.array([ends.min(), ends.max()])
    gap = (table["estimated"] - table["returned"]).mean()
    with subplots(6, 4.6) as (figure, axes):
        axes.plot(ends, ends, color=GREY, label="equal")
        axes.plot(ends, ends + gap, color=GREY, linestyle="--", label=f"mean gap {gap:+.1f}")
        looks = itertools.cycle(zip((BLUE, ORANGE, GREEN, PURPLE), "os^D", strict=True))
        for (episode, part), (color, marker) in zip(table.groupby("episode"), looks, strict=False):
            look = {"color": color, "alpha": 0.3, "markersize": 4, "mew": 0, "linestyle": ""}
            label = f"an action of episode {episode + 1}"
            axes.plot(part["returned"], part["estimated"], marker=marker, label=label, **look)
        axes.set_xlabel("discounted return that followed (scaled return)")
        axes.set_ylabel("estimated Q (scaled return)")
        figure.legend(loc="outside lower center", ncols=2)
    return figure
