"""Runs beside one another: which settings they are of, how each ended, how they rank.

Reads run directories only, anybody's; trains and draws nothing.
"""

import itertools
import os
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pandas as pd

from labkit.analysis import statistics
from labkit.config import FREE_TO_CHANGE, SACConfig
from labkit.errors import ParameterError
from labkit.parameters import invalid
from labkit.training.run_directory import read_config, read_metrics

# What tells runs of one setting apart, or does not change what is learned.
NOT_A_SETTING = (
    *FREE_TO_CHANGE,
    *("seed", "num_iterations", "log_interval", "eval_interval", "interim_eval_episodes"),
    *("num_eval_episodes", "policy_save_interval"),
)
# What the TF-Agents tutorial has where labkit's defaults for its environment deviate.
TUTORIAL_ENVIRONMENT = "MinitaurBulletEnv-v0"
TUTORIAL: dict[str, Any] = {
    "reward_scale_factor": 1,
    "initial_log_alpha": 0,
    "observation_scale": (),
    "replay_buffer_capacity": 10_000,
    "greedy_share": 0,
    "n_step": 1,
    "critic_layer_norm": False,
}
LONG = 20  # characters of a value


def name_of(config: SACConfig) -> str:
    """What a configuration asks for beyond its environment's defaults; else `defaults`.

    One that is nearer to the TF-Agents tutorial than to the defaults is named after it:
    `tutorial`, or `tutorial, n_step 5`; `observation_scale default` where the value is a long one.
    """
    usual = SACConfig.parse({"env_name": config.env_name})
    words = _changes(config, usual, usual)
    if config.env_name == TUTORIAL_ENVIRONMENT:
        tutorial = ["tutorial", *_changes(config, attrs.evolve(usual, **TUTORIAL), usual)]
        words = min(words, tutorial, key=len)
    else:
        words.insert(0, config.env_name)
    return ", ".join(words) or "defaults"


def _changes(config: SACConfig, base: SACConfig, usual: SACConfig) -> list[str]:
    words = []
    for name in (field.name for field in attrs.fields(SACConfig)):
        value = getattr(config, name)
        if name not in NOT_A_SETTING and value != getattr(base, name):
            known = value == getattr(usual, name) and len(str(value)) > LONG
            words.append(f"{name} {'default' if known else value}")
    return words


def told_apart(names: list[str], width: int) -> list[str]:
    """Names of at most `width` characters.

    Where some would look alike, what those share is counted, and the rest named.
    """
    labels = [shortened(name, width) for name in names]
    told = list(labels)
    for number, label in enumerate(labels):
        alike = [name for name, other in zip(names, labels, strict=True) if other == label]
        if len(alike) > 1:
            # `name value, name value`; a value may be a tuple, with commas of its own.
            changes = {name: re.split(r", (?=[a-z_]+ )", name) for name in alike}
            shared = set.intersection(*map(set, changes.values()))
            own = [change for change in changes[names[number]] if change not in shared]
            told[number] = shortened(", ".join([f"{len(shared)} shared", *own]), width)
    return told


def shortened(name: str, width: int) -> str:
    """The name, or its first words and an ellipsis: at most `width` characters."""
    return textwrap.shorten(name, width, placeholder=" …")


@attrs.frozen
class Finding:
    """One run as it lies on disk.

    Attributes:
        path: its directory.
        config: its configuration.
        metrics: see `runs.read_metrics`.
    """

    path: Path
    config: SACConfig
    metrics: pd.DataFrame = attrs.field(eq=False, repr=False)

    @property
    def setting(self) -> str:
        """What was asked for, such as `gamma 0.98`; see `settings.name_of`."""
        return name_of(self.config)

    @property
    def evaluations(self) -> pd.DataFrame:
        """The rows of `metrics` with an evaluation."""
        return self.metrics[self.metrics.eval_return.notna()]

    def scored(self, budget: int) -> pd.Series | None:
        """The evaluation after exactly `budget` gradient steps, else None."""
        rows = self.evaluations[self.evaluations.gradient_step == budget]
        return None if rows.empty else rows.loc[rows.eval_returns.map(len).idxmax()]


def find(folders: str | os.PathLike | Iterable[str | os.PathLike]) -> tuple[list[Finding], list]:
    """Every run in some folders, however deep, and what could not be read.

    Args:
        folders: one or several; each is a run directory or holds some.

    Returns:
        The runs, by path; and for each that is damaged one line that says so.

    Raises:
        ParameterError: a folder is not there, or there is no run in any of them.
    """
    listed = [folders] if isinstance(folders, str | os.PathLike) else list(folders)
    paths: set[Path] = set()
    for folder in map(Path, listed):
        if not folder.is_dir():
            raise invalid("runs", str(folder), "an existing folder")
        paths.update(file.parent for file in folder.rglob("config.json"))
    found, damaged = [], []
    for path in sorted(paths):
        try:
            found.append(Finding(path, read_config(path), read_metrics(path)))
        except ParameterError as error:
            damaged.append(str(error))
    if not found:
        where = ", ".join(repr(str(folder)) for folder in listed)
        why = f" ({damaged[0]})" if damaged else ""
        raise ParameterError(f"`runs` must be a folder with at least one run, got {where}{why}")
    return found, damaged


def common_budget(found: Sequence[Finding]) -> int:
    """The most gradient steps after which every run was evaluated.

    Raises:
        ParameterError: there is no such number.
    """
    shared = set.intersection(*(set(run.evaluations.gradient_step) for run in found))
    if not shared - {0}:
        allowed = "a number of gradient steps: there is none after which all runs were evaluated"
        raise invalid("budget", None, allowed)
    return int(max(shared))


def comparable(found: Sequence[Finding], budget: int) -> tuple[list[Finding], list[str]]:
    """The runs whose score after `budget` gradient steps is of as many episodes as any of them.

    A run that ended there was scored over more episodes than one that went on; the mean of fewer
    scatters more, so the two are not compared.

    Returns:
        Those runs; and for each that is left out one line that says why.
    """
    rows = [(run, run.scored(budget)) for run in found]
    most = max((len(row.eval_returns) for _, row in rows if row is not None), default=0)
    kept, left_out = [], []
    for run, row in rows:
        name = f"left out: {run.setting}, seed {run.config.seed}"
        if row is None:
            left_out.append(f"{name}: not evaluated after {budget} gradient steps")
        elif len(row.eval_returns) < most:
            left_out.append(f"{name}: {len(row.eval_returns)} episodes there, others have {most}")
        else:
            kept.append(run)
    return kept, left_out


def scores(found: Sequence[Finding], budget: int) -> pd.DataFrame:
    """How each run stood after `budget` gradient steps, the most episodes counting.

    Returns:
        One row a run that was evaluated then, with the columns setting, seed, path, return (mean
        of its episodes), length (env steps), distance (metres), episodes, minutes (of wall time
        until then).
    """
    rows = []
    for run in found:
        row = run.scored(budget)
        if row is not None:
            rows.append(
                {
                    "setting": run.setting,
                    "seed": run.config.seed,
                    "return": row.eval_return,
                    "length": _mean(row.eval_lengths),
                    "distance": _mean(row.eval_distances),
                    "episodes": len(row.eval_returns),
                    "minutes": row.wall_seconds / 60,
                    "path": run.path,
                }
            )
    columns = ["setting", "seed", "return", "length", "distance", "episodes", "minutes", "path"]
    return pd.DataFrame(rows, columns=columns).sort_values(["setting", "seed"], ignore_index=True)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else np.nan


def rank(table: pd.DataFrame) -> pd.DataFrame:
    """The settings of `scores`, best first.

    Returns:
        One row a setting, named by it: seeds, iqm (interquartile mean of the seeds' returns), low
        and high (its 95 % bootstrap interval, NaN for fewer than five seeds), worst, best, and
        `beats_next`: the share of pairs of seeds in which it is better than the next in rank.
    """
    groups = {str(name): group["return"].to_numpy() for name, group in table.groupby("setting")}
    order = sorted(groups, key=lambda name: -statistics.interquartile_mean(groups[name]))
    rows = []
    for name, following in itertools.zip_longest(order, order[1:]):
        values = groups[name]
        low, high = statistics.bootstrap_interval(values) or (np.nan, np.nan)
        rows.append(
            {
                "seeds": len(values),
                "iqm": statistics.interquartile_mean(values),
                "low": low,
                "high": high,
                "worst": values.min(),
                "best": values.max(),
                "beats_next": statistics.probability_of_improvement(values, groups[following])
                if following
                else np.nan,
            }
        )
    return pd.DataFrame(rows, index=pd.Index(order, name="setting"))


def seeds_to_tell_apart(table: pd.DataFrame) -> pd.DataFrame:
    """For each pair of settings in `scores`: how many seeds of each would tell them apart.

    Settings with one seed have no spread yet and are left out.

    Returns:
        One row a pair: better, worse, difference (of their means), spread (root mean square of
        their standard deviations over seeds), p (of Welch's t-test, two-sided), seeds (the fewest
        with power 0.8 at level 0.05; None for over 1000).
    """
    values = {name: group["return"] for name, group in table.groupby("setting")}
    groups = table.groupby("setting")["return"].agg(["mean", "std", "count"])
    groups = groups[groups["count"] > 1].sort_values("mean", ascending=False)
    rows = []
    for (better, a), (worse, b) in itertools.combinations(groups.iterrows(), 2):
        difference, deviations = a["mean"] - b["mean"], (a["std"], b["std"])
        rows.append(
            {
                "better": better,
                "worse": worse,
                "difference": difference,
                "spread": float(np.hypot(*deviations) / np.sqrt(2)),
                "p": statistics.welch(values[better], values[worse]),
                "seeds": statistics.seeds_needed(difference, deviations),
            }
        )
    columns = ["better", "worse", "difference", "spread", "p", "seeds"]
    return pd.DataFrame(rows, columns=columns).astype({"seeds": "Int64"})


def curve(runs: Sequence[Finding], budget: int) -> pd.DataFrame:
    """Evaluation returns of runs of one setting, as far as `budget` gradient steps.

    Returns:
        One row for each env step at which all were evaluated, named by it; one column a run, named
        by its path. Runs that did not reach the budget are left out.
    """
    columns = {}
    for run in runs:
        if run.scored(budget) is not None:
            rows = run.evaluations[run.evaluations.gradient_step <= budget]
            columns[str(run.path)] = rows.groupby("env_step").eval_return.last()
    return pd.DataFrame(columns).dropna()


def steps_to_reach(run: Finding, level: float, budget: int | None = None) -> int | None:
    """Env steps after which an evaluation first had a mean return of `level`; None: never.

    Args:
        run: the run.
        level: a return.
        budget: evaluations after more gradient steps than these do not count; None: all do.
    """
    rows = run.evaluations
    within = rows.gradient_step <= (rows.gradient_step.max() if budget is None else budget)
    reached = rows.env_step[(rows.eval_return >= level) & within]
    return None if reached.empty else int(reached.iloc[0])
