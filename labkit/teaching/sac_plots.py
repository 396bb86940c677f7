"""The figure of "Does Q predict the return?" in notebook 03."""

import itertools

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from labkit.plotting.run_plots import NothingToDraw
from labkit.plotting.style import BLUE, GREEN, GREY, ORANGE, PURPLE, subplots


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
