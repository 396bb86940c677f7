"""One policy under disturbances of one kind at a time: its episodes and their results.

Every condition is played with the same seeds. A seed fixes the robot that the environment's domain
randomisation draws, so that conditions differ in the disturbance alone.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import pandas as pd

from labkit.analysis import statistics
from labkit.environments import disturbance
from labkit.environments.disturbance import Disturbance
from labkit.environments.seeding import raw_env
from labkit.errors import ParameterError
from labkit.runtime import quiet
from labkit.sac.rollout import play_episode
from labkit.training import saved_weights
from labkit.training.run_directory import TRACKED_POLICY

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

RESULTS = Path(__file__).parents[2] / "results" / "minitaur"  # only in the repository
FIRST_SEED = 6_000  # of the episodes: no evaluation of a tracked run has these
FULL_LENGTH = 1000  # env steps until the time limit
UNDISTURBED = "undisturbed"
COLUMNS = ["policy", "weights", "factor", "value", "seed", "return", "length", "distance"]
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
Condition = tuple[str, float]  # a factor's name and value; `UNDISTURBED` has the value 0


def conditions() -> list[Condition]:
    """The undisturbed robot first, then every value of every factor."""
    return [
        (UNDISTURBED, 0.0),
        *((factor.name, float(v)) for factor in FACTORS for v in factor.values),
    ]


def missing(played: pd.DataFrame, weights: str, episodes: int) -> Iterator[tuple[Condition, int]]:
    """The conditions and seeds that were not played, seed by seed.

    If it is stopped early, the numbers of episodes of two conditions differ by at most one.

    Args:
        played: a table with `COLUMNS`.
        weights: fingerprint of the policy, see `saved_weights.fingerprint`.
        episodes: of each condition.
    """
    own = played[played.weights == weights]
    done = set(zip(own.factor, own.value, own.seed, strict=True))
    for seed in range(FIRST_SEED, FIRST_SEED + episodes):
        for factor, value in conditions():
            if (factor, value, seed) not in done:
                yield (factor, value), seed


class Player:
    """Plays episodes of one policy; environments are kept, since making one takes a while."""

    def __init__(self, folder: Path):
        """`folder` is a run directory, or a tracked policy.

        Raises:
            ParameterError: see `saved_weights.load_policy`.
        """
        self.weights = saved_weights.fingerprint(folder)
        self._name, self._actor = folder.name, saved_weights.load_policy(folder)
        self._environments: dict[Disturbance, PyEnvironment] = {}

    def play(self, condition: Condition, seed: int) -> dict[str, Any]:
        """One episode as a row with `COLUMNS`: return, length in env steps, distance in metres."""
        factor, value = condition
        fields = {} if factor in (UNDISTURBED, "temperature") else {factor: value}
        changed = Disturbance(**fields)
        if changed not in self._environments:
            self._environments[changed] = disturbance.make(changed)
        env = self._environments[changed]
        env.seed(seed)
        policy = self._actor.at(value if factor == "temperature" else 0.0, seed)
        found = [round(float(number), 5) for number in play_episode(env, policy)]
        row = (self._name, self.weights, factor, value, seed, found[0], int(found[1]), found[2])
        return dict(zip(COLUMNS, row, strict=True))


# --- results


def summary(played: pd.DataFrame) -> pd.DataFrame:
    """One row for each condition of one policy; each factor has a row for the undisturbed robot.

    Columns: factor, value, episodes, iqm, low, high (bootstrap interval of the interquartile mean;
    NaN from fewer than five episodes), best, mean, falls (share of the episodes), distance (mean,
    m).
    """
    rows = []
    for factor in FACTORS:
        for value in sorted({factor.neutral, *factor.values}):
            rows.append(_row(select(played, factor, value), factor.name, value))
    return pd.DataFrame(rows)


def select(played: pd.DataFrame, factor: Factor, value: float) -> pd.DataFrame:
    """The episodes with this value of a factor."""
    if value == factor.neutral:
        return played[played.factor == UNDISTURBED]
    return played[(played.factor == factor.name) & np.isclose(played.value, value)]


def _row(episodes: pd.DataFrame, factor: str, value: float) -> dict[str, Any]:
    returns = episodes["return"].tolist()
    low, high = statistics.bootstrap_interval(returns) or (np.nan, np.nan)
    return {
        "factor": factor,
        "value": float(value),
        "episodes": len(returns),
        "iqm": statistics.interquartile_mean(returns) if returns else np.nan,
        "low": low,
        "high": high,
        "best": max(returns, default=np.nan),
        "mean": float(np.mean(returns)) if returns else np.nan,
        "falls": float((episodes.length < FULL_LENGTH).mean()) if returns else np.nan,
        "distance": float(episodes.distance.mean()) if returns else np.nan,
    }


def breaking_point(table: pd.DataFrame, factor: Factor, direction: int) -> float | None:
    """The first value at which the policy is broken, going up (+1) or down (−1) from the neutral.

    The policy is broken at a value if even the high end of the interval is below `BROKEN` times the
    interquartile mean of the undisturbed episodes. With fewer than five episodes, the best episode
    replaces the high end. The result is None if no value on that side breaks the policy, or if the
    undisturbed policy has no positive return, or no episode.
    """
    rows = table[table.factor == factor.name].sort_values("value", ascending=direction > 0)
    whole = _undisturbed(factor, rows)
    if not whole > 0:  # also if it is NaN
        return None
    side = rows[(rows.value - factor.neutral) * direction > 0]
    broken = side[side.high.fillna(side.best) < BROKEN * whole]
    return None if broken.empty else float(broken.value.iloc[0])


def verdict(factor: Factor, table: pd.DataFrame) -> str:
    """Where the policy breaks along one factor, as a sentence; `table` is that of `summary`.

    It also names the values at which the interquartile mean is below the threshold, but not the
    whole interval.
    """
    rows, name = table[table.factor == factor.name], factor.label.split(" (")[0]
    others = rows[(rows.value != factor.neutral) & rows.iqm.notna()]
    if others.empty:
        return f"{name}: no episode was played"
    whole = _undisturbed(factor, rows)
    if np.isnan(whole):
        return f"{name}: there is no undisturbed episode to compare with"
    if whole <= 0:
        return f"{name}: the undisturbed policy has no positive return, so no breaking point"
    threshold = BROKEN * whole
    uncertain = others[(others.iqm < threshold) & (others.high.fillna(others.best) >= threshold)]
    if broken := [_at(factor, rows, value) for value in breaking_points(factor, table)]:
        text = f"{name}: the policy breaks at {' and at '.join(broken)}"
    else:
        lowest = float(others.value[others.iqm.idxmin()])
        text = f"{name}: the policy breaks at no tested value; the lowest IQM is at "
        text += _at(factor, rows, lowest)
    for value in uncertain.value:
        text += (
            f"; at {factor.with_unit(value)} the IQM is below the threshold of {threshold:+.2f}, "
            "but not its whole interval"
        )
    return text


def _undisturbed(factor: Factor, rows: pd.DataFrame) -> float:
    """The interquartile mean of the undisturbed episodes; NaN if there are none."""
    return float(rows.iqm[rows.value == factor.neutral].item())


def breaking_points(factor: Factor, table: pd.DataFrame) -> list[float]:
    """See `breaking_point`: the values below and above the neutral one, if there are any."""
    points = [breaking_point(table, factor, way) for way in (-1, 1)]
    return [value for value in points if value is not None]


def breaks_at(factor: Factor, table: pd.DataFrame) -> str:
    """`4 kg`, or `no tested value`; `unknown` without undisturbed episodes."""
    if np.isnan(_undisturbed(factor, table[table.factor == factor.name])):
        return "unknown"
    points = breaking_points(factor, table)
    return " and ".join(factor.with_unit(value) for value in points) or "no tested value"


def _at(factor: Factor, rows: pd.DataFrame, value: float) -> str:
    """`0.02 s (IQM +3.10, interval +2.00 to +4.10)`."""
    row: Any = rows[rows.value == value].iloc[0]
    return f"{factor.with_unit(value)} (IQM {row.iqm:+.2f}, {interval(row)})"


def interval(row: Any) -> str:
    """The interval of a row of `summary` as text."""
    if np.isnan(row.low):
        return f"best {row.best:+.2f} of {row.episodes}, too few for an interval"
    return f"interval {row.low:+.2f} to {row.high:+.2f}"


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


def tracked() -> pd.DataFrame:
    """The tracked episodes of the tracked policy, a table with `COLUMNS`.

    Raises:
        ParameterError: there is no repository with results, or no episode of these weights.
    """
    played = read(RESULTS / "robustness" / "episodes.csv")
    own = played[played.weights == saved_weights.fingerprint(RESULTS / TRACKED_POLICY.name)]
    if own.empty:
        raise ParameterError("no tracked episodes of the tracked policy: run `make robustness`")
    return own


def read(file: Path) -> pd.DataFrame:
    """The episodes in a CSV file with `COLUMNS`; an empty table if the file does not exist."""
    if not file.exists():
        return pd.DataFrame(columns=COLUMNS)
    return pd.read_csv(file, dtype={"policy": str, "weights": str, "factor": str})
