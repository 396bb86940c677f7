"""The figure of the robustness card: return over each disturbance, with intervals."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.analysis import robustness
from labkit.analysis.robustness import FACTORS, Factor
from labkit.plotting import style

INTERVAL = "interquartile mean, nominal 95 % interval"
SPREAD = 0.05  # width of the dots of a value, as a share of the range of values


def card(played: pd.DataFrame, base_mass_kg: float, title: str) -> Figure:
    """Draws a panel for each factor: every episode, and the interquartile mean with its interval.

    The dots of a value are spread to its left, so that equal returns do not hide each other. The
    dashed line is the undisturbed robot. Grey is what the environment's own domain randomisation
    covers, see `robustness.covered`; the dotted line is the threshold below which a policy counts
    as broken.

    Args:
        played: the episodes of one policy, a table with `robustness.COLUMNS`.
        base_mass_kg: mass of the base before the draw.
        title: of the figure.
    """
    table = robustness.summary(played)
    with style.subplots(10, 6.2, 2, 3, sharey=True) as (figure, grid):
        for axes, factor in zip(grid.flat, FACTORS, strict=True):
            _panel(axes, factor, played, table[table.factor == factor.name], base_mass_kg)
        for axes in grid[:, 0]:
            axes.set_ylabel("return of an episode")
        handles, labels = grid.flat[0].get_legend_handles_labels()  # this panel has them all
        kept = dict(zip(labels, handles, strict=True))
        figure.legend(list(kept.values()), list(kept), loc="outside lower left", ncols=3)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def _panel(
    axes: Axes, factor: Factor, played: pd.DataFrame, rows: pd.DataFrame, base_mass_kg: float
) -> None:
    within = robustness.covered(factor, base_mass_kg)
    if within:
        axes.axvspan(*within, color="#ececec", label="covered by domain randomisation")
    whole = rows.iqm[rows.value == factor.neutral].item()
    axes.axhline(whole, color=style.GREY, linestyle="--", linewidth=1, label="undisturbed")
    half = robustness.BROKEN * whole
    look: dict[str, Any] = {"color": style.ORANGE, "linestyle": ":", "linewidth": 1.2}
    axes.axhline(half, label="threshold: half of undisturbed", **look)
    generator = np.random.default_rng(0)
    spread = SPREAD * np.ptp(rows.value)
    for value in rows.value:
        returns = robustness.select(played, factor, value)["return"]
        places = value - generator.uniform(0.2, 1, len(returns)) * spread
        look = {"color": style.GREY, "alpha": 0.6, "linewidths": 0, "label": "an episode"}
        axes.scatter(places, returns, 9, **look)
    values, iqm, low, high = rows[["value", "iqm", "low", "high"]].to_numpy(float).T
    axes.errorbar(
        values,
        iqm,
        (iqm - low, high - iqm),
        color=style.BLUE,
        marker="o",
        ms=4,
        capsize=3,
        label=INTERVAL,
    )
    axes.set_xlabel(factor.label)
