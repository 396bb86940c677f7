"""One policy under disturbances of one kind at a time: its episodes and their results.

Every condition is played with the same seeds. A seed fixes the robot that the environment's domain
randomisation draws, so that conditions differ in the disturbance alone.
"""

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.analysis import statistics
from labkit.environments import disturbance
from labkit.environments.disturbance import Disturbance
from labkit.environments.make import raw_env
from labkit.errors import ParameterError
from labkit.plotting import style
from labkit.runtime import quiet
from labkit.training.run import TRACKED_POLICY

EPISODES = Path(__file__).parents[2] / "results" / "minitaur" / "robustness" / "episodes.csv"
FULL_LENGTH = 1000  # env steps until the time limit
UNDISTURBED = "undisturbed"
BROKEN = 0.5  # a policy is broken where its return is below this share of the undisturbed one


@attrs.frozen
class Factor:
    """A disturbance, or the sampling temperature: the values to play, and how to write them."""

    name: str  # a field of `Disturbance`, or "temperature"
    label: str  # with its unit, for an axis
    neutral: float  # the value that changes nothing
    values: tuple[float, ...]  # in the order of the axis, without the neutral one

    def with_unit(self, value: float) -> str:
        """`4 kg`, `0.02 s`; a factor or a share has no unit."""
        unit = self.label.partition("(")[2].rstrip(")")
        return f"{value:g}" + (f" {unit}" if unit not in ("", "factor", "share") else "")


FACTORS = (
    Factor("payload_kg", "payload (kg)", 0, (1, 2, 4, 6)),
    Factor("foot_friction", "foot friction (factor)", 1, (0.1, 0.25, 0.5, 0.75, 1.5)),
    Factor("motor_strength", "motor strength (factor)", 1, (0.4, 0.6, 0.8, 1.2)),
    Factor("observation_noise", "observation noise (share)", 0, (0.03, 0.1, 0.2, 0.4)),
    Factor("control_latency_seconds", "control latency (s)", 0, (0.004, 0.006, 0.008, 0.01, 0.02)),
    Factor("temperature", "sampling temperature", 0, (0.5, 1, 1.5)),
)


# --- results


def summary(played: pd.DataFrame) -> pd.DataFrame:
    """One row for each condition of one policy; each factor has a row for the undisturbed robot.

    Columns: factor, value, episodes, iqm, low, high (bootstrap interval of the interquartile mean),
    mean, falls (share of the episodes), distance (mean, m).
    """
    rows = []
    for factor in FACTORS:
        for value in sorted({factor.neutral, *factor.values}):
            episodes = select(played, factor, value)
            returns = episodes["return"].tolist()
            low, high = statistics.bootstrap_interval(returns) or (np.nan, np.nan)
            row = {"factor": factor.name, "value": float(value), "episodes": len(returns)}
            row |= {"iqm": statistics.interquartile_mean(returns), "low": low, "high": high}
            row |= {"mean": np.mean(returns), "falls": (episodes.length < FULL_LENGTH).mean()}
            rows.append({**row, "distance": episodes.distance.mean()})
    return pd.DataFrame(rows)


def select(played: pd.DataFrame, factor: Factor, value: float) -> pd.DataFrame:
    """The episodes with this value of a factor."""
    if value == factor.neutral:
        return played[played.factor == UNDISTURBED]
    return played[(played.factor == factor.name) & np.isclose(played.value, value)]


def breaking_point(table: pd.DataFrame, factor: Factor, direction: int) -> float | None:
    """The first value at which the policy is broken, going up (+1) or down (−1) from the neutral.

    The policy is broken at a value if even the high end of the interval is below `BROKEN` times the
    interquartile mean of the undisturbed episodes. The result is None if no value on that side
    breaks the policy.
    """
    rows = table[table.factor == factor.name].sort_values("value", ascending=direction > 0)
    side = rows[(rows.value - factor.neutral) * direction > 0]
    broken = side[side.high < _threshold(rows, factor)]
    return None if broken.empty else float(broken.value.iloc[0])


def _threshold(rows: pd.DataFrame, factor: Factor) -> float:
    return BROKEN * float(rows.iqm[rows.value == factor.neutral].item())


def verdict(factor: Factor, table: pd.DataFrame) -> str:
    """Where the policy breaks along one factor, as a sentence; `table` is that of `summary`.

    It also names the values at which the interquartile mean is below the threshold, but not the
    whole interval.
    """
    rows, name = table[table.factor == factor.name], factor.label.split(" (")[0]
    others, threshold = rows[rows.value != factor.neutral], _threshold(rows, factor)

    def at(value: float) -> str:
        row = rows[rows.value == value].iloc[0]
        interval = f"interval {row.low:+.2f} to {row.high:+.2f}"
        return f"{factor.with_unit(value)} (IQM {row.iqm:+.2f}, {interval})"

    points = [breaking_point(table, factor, way) for way in (-1, 1)]
    if broken := [at(value) for value in points if value is not None]:
        text = f"{name}: the policy breaks at {' and at '.join(broken)}"
    else:
        lowest = at(float(others.value[others.iqm.idxmin()]))
        text = f"{name}: the policy breaks at no tested value; the lowest IQM is at {lowest}"
    for value in others.value[(others.iqm < threshold) & (others.high >= threshold)]:
        text += (
            f"; at {factor.with_unit(value)} the IQM is below the threshold of {threshold:+.2f}, "
            "but not its whole interval"
        )
    return text


# --- what the environment already varies


@attrs.frozen
class Randomised:
    """A quantity that the environment draws uniformly at each reset."""

    what: str
    unit: str
    low: float
    high: float


def domain_randomisation() -> list[Randomised]:
    """What pybullet_envs' randomiser draws at each reset, with the ranges of its module."""
    with quiet():  # PyBullet prints folder names when it is imported
        from pybullet_envs.bullet import minitaur_env_randomizer as source
    base, leg = source.MINITAUR_BASE_MASS_ERROR_RANGE, source.MINITAUR_LEG_MASS_ERROR_RANGE
    return [
        Randomised("mass of the base", "factor", 1 + base[0], 1 + base[1]),
        Randomised("masses of legs and motors", "factor", 1 + leg[0], 1 + leg[1]),
        Randomised("friction of the feet", "coefficient", *source.MINITAUR_LEG_FRICTION),
        Randomised("battery voltage", "V", *source.BATTERY_VOLTAGE_RANGE),
        Randomised("viscous damping of the motors", "N m s", *source.MOTOR_VISCOUS_DAMPING_RANGE),
    ]


def covered(factor: Factor, base_mass_kg: float) -> tuple[float, float] | None:
    """The values of a factor that domain randomisation covers; None for none.

    A value counts as covered if the disturbance leaves the middle of the drawn range in that range.

    Args:
        factor: one of `FACTORS`.
        base_mass_kg: of the robot's description, before the draw.
    """
    ranges = {item.what: item for item in domain_randomisation()}
    if factor.name == "payload_kg":
        return 0.0, base_mass_kg * (ranges["mass of the base"].high - 1)
    if factor.name == "foot_friction":
        friction = ranges["friction of the feet"]
        middle = (friction.low + friction.high) / 2
        return friction.low / middle, friction.high / middle
    return None


def base_mass_kg() -> float:
    """Mass of the base in the robot's description, before the draw, as the engine reads it."""
    raw: Any = raw_env(disturbance.make(Disturbance()))
    return float(raw.minitaur.GetBaseMassFromURDF())


def tracked(policy: str = TRACKED_POLICY.name) -> pd.DataFrame:
    """The tracked episodes of a policy, a row each.

    Columns: policy, weights (fingerprint of the policy), factor (`UNDISTURBED` or the name of a
    factor), value, seed, return, length (env steps), distance (m).

    Raises:
        ParameterError: there is no repository with results.
    """
    if not EPISODES.exists():
        raise ParameterError("no tracked episodes: they are in the repository only")
    played = pd.read_csv(EPISODES, dtype={"policy": str, "weights": str, "factor": str})
    return played[played.policy == policy]


# --- figure

INTERVAL = "interquartile mean, nominal 95 % interval"
SPREAD = 0.05  # width of the dots of a value, as a share of the range of values


def card(played: pd.DataFrame, base_mass_kg: float, title: str) -> Figure:
    """Draws a panel for each factor: every episode, and the interquartile mean with its interval.

    The dots of a value are spread to its left, so that equal returns do not hide each other. The
    dashed line is the undisturbed robot. Grey is what the environment's own domain randomisation
    covers, see `covered`; the dotted line is the threshold below which a policy counts
    as broken.

    Args:
        played: the episodes of one policy, a table as of `tracked`.
        base_mass_kg: mass of the base before the draw.
        title: of the figure.
    """
    table = summary(played)
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
    within = covered(factor, base_mass_kg)
    if within:
        axes.axvspan(*within, color="#ececec", label="covered by domain randomisation")
    whole = rows.iqm[rows.value == factor.neutral].item()
    axes.axhline(whole, color=style.GREY, linestyle="--", linewidth=1, label="undisturbed")
    half = BROKEN * whole
    look: dict[str, Any] = {"color": style.ORANGE, "linestyle": ":", "linewidth": 1.2}
    axes.axhline(half, label="threshold: half of undisturbed", **look)
    generator = np.random.default_rng(0)
    spread = SPREAD * np.ptp(rows.value)
    for value in rows.value:
        returns = select(played, factor, value)["return"]
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
