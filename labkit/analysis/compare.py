"""Compares several runs: the setting of each, its final score, and the ranking of the settings.

Reads run directories only; nothing here trains or draws.
"""

import collections
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
from labkit.parameters import brief, invalid
from labkit.training.config_file import read_config
from labkit.training.run_directory import read_metrics

# Fields that differ between runs of the same setting, or do not influence learning.
NOT_A_SETTING = (
    *FREE_TO_CHANGE,
    *("seed", "num_iterations", "log_interval", "eval_interval", "interim_eval_episodes"),
    *("num_eval_episodes", "policy_save_interval"),
)
# The TF-Agents tutorial's values, where labkit has another default for its environment.
TUTORIAL_ENVIRONMENT = "MinitaurBulletEnv-v0"
TUTORIAL: dict[str, Any] = {
    "reward_scale_factor": 1,
    "initial_log_alpha": 0,
    "observation_scale": (),
    "replay_buffer_capacity": 10_000,
    "recent_transitions": 0,
    "symmetry_augmentation": False,
    "gamma": 0.99,
    "initial_collect_steps": 10_000,
    "critic_learning_rate": 3e-4,
    "actor_learning_rate": 3e-4,
    "alpha_learning_rate": 3e-4,
    "learning_rate_decay_steps": 0,
    "n_step": 1,
    "actor_update_period": 1,
    "critic_layer_norm": False,
}
# A folder with this file holds runs of changed code, which its configurations do not describe.
CHANGED_CODE = "changed_code.txt"
MAX_VALUE_LENGTH = 20  # characters; a longer default value is named `default`
Folder = str | os.PathLike[str]


# --- names of settings


def setting_name(config: SACConfig) -> str:
    """The fields that differ from the environment's defaults, such as `gamma 0.98`.

    A configuration without any is named `defaults`. One that differs less from the TF-Agents
    tutorial is named after that: `tutorial`, or `tutorial, n_step 5`.
    """
    defaults = SACConfig.parse({"env_name": config.env_name})
    words = _changes(config, defaults, defaults)
    if config.env_name == TUTORIAL_ENVIRONMENT:
        tutorial = attrs.evolve(defaults, **TUTORIAL)
        words = min(words, ["tutorial", *_changes(config, tutorial, defaults)], key=len)
    else:
        words.insert(0, config.env_name)
    return ", ".join(words) or "defaults"


def _changes(config: SACConfig, base: SACConfig, defaults: SACConfig) -> list[str]:
    """`name value` for each field that differs from `base`; see `MAX_VALUE_LENGTH`."""
    words = []
    for name, value in attrs.asdict(config, recurse=False).items():
        if name not in NOT_A_SETTING and value != getattr(base, name):
            shown = brief(value) if isinstance(value, tuple) else str(value)
            if len(shown) > MAX_VALUE_LENGTH and value == getattr(defaults, name):
                shown = "default"
            words.append(f"{name} {shown}")
    return words


def distinct_labels(names: Sequence[str], width: int) -> list[str]:
    """Shortens the names of settings to at most `width` characters.

    Where several become equal, each label has the number of changes that these names share, and
    then the other changes: `4 shared, gamma 0.98`.
    """
    labels = [shorten(name, width) for name in names]
    distinct = list(labels)
    for number, label in enumerate(labels):
        equal = [name for name, other in zip(names, labels, strict=True) if other == label]
        if len(equal) > 1:
            # `name value, name value`; a value may be a tuple, which contains commas too.
            changes = {name: re.split(r", (?=[a-z_]+ )", name) for name in equal}
            shared = set.intersection(*map(set, changes.values()))
            others = [change for change in changes[names[number]] if change not in shared]
            distinct[number] = shorten(", ".join([f"{len(shared)} shared", *others]), width)
    return distinct


def shorten(name: str, width: int) -> str:
    """The name, or its first words and an ellipsis: at most `width` characters."""
    return textwrap.shorten(name, width, placeholder=" …")


# --- runs on disk


@attrs.frozen
class TrackedRun:
    """One run, read from its directory.

    See `run_directory.read_metrics` for `metrics`.
    """

    path: Path
    config: SACConfig
    metrics: pd.DataFrame = attrs.field(eq=False, repr=False)
    name: str | None = None

    @property
    def setting(self) -> str:
        """The name of its setting, such as `gamma 0.98`: `name`, or else see `setting_name`."""
        return setting_name(self.config) if self.name is None else self.name

    @property
    def evaluations(self) -> pd.DataFrame:
        """The rows of `metrics` with an evaluation."""
        return self.metrics[self.metrics.eval_return.notna()]

    def evaluation_at(self, budget: int) -> pd.Series | None:
        """The evaluation after exactly `budget` gradient steps, or None.

        If there are several, it is the first of those with the most episodes.
        """
        rows = self.evaluations[self.evaluations.gradient_step == budget]
        return None if rows.empty else rows.loc[rows.eval_returns.map(len).idxmax()]


def find_runs(folders: Folder | Iterable[Folder]) -> tuple[list[TrackedRun], list[str]]:
    """Reads every run in one or several folders; each is a run directory or contains some.

    Returns:
        The runs, sorted by path; and one line for each run that is damaged, of changed code (see
        `CHANGED_CODE`), or a copy of another one, which would count as one more seed.

    Raises:
        ParameterError: a folder does not exist, or no folder contains a readable run.
    """
    if isinstance(folders, str | os.PathLike) or not isinstance(folders, Iterable):
        folders = [folders]
    listed = list(folders)
    if not all(isinstance(folder, str | os.PathLike) for folder in listed):
        raise invalid("runs", folders, "a folder, or a list of folders")
    paths: set[Path] = set()
    for folder in map(Path, listed):
        if not folder.is_dir():
            raise invalid("runs", str(folder), "an existing folder")
        paths.update(file.parent for file in folder.rglob("config.json"))
    runs, damaged = [], []
    for path in sorted(paths):
        if (change := path.parent / CHANGED_CODE).is_file():
            damaged.append(f"left out: {path}, of changed code: {change.read_text().strip()}")
            continue
        try:
            runs.append(TrackedRun(path, read_config(path), read_metrics(path)))
        except ParameterError as error:
            damaged.append(str(error))
    runs, copies = _without_copies(runs)
    damaged += copies
    if not runs:
        where = ", ".join(repr(str(folder)) for folder in listed)
        why = f" ({damaged[0]})" if damaged else ""
        raise ParameterError(f"`runs` must be a folder with at least one run, got {where}{why}")
    return runs, damaged


def _without_copies(runs: Sequence[TrackedRun]) -> tuple[list[TrackedRun], list[str]]:
    """The runs without copies of others; of a run and a shorter copy, the longer one stays.

    The rows of two runs differ, if only in their wall times, which are in milliseconds. Returns one
    line for each copy too.
    """
    kept = collections.defaultdict[tuple[str, int], list[TrackedRun]](list)
    lines = []
    for run in sorted(runs, key=lambda run: -len(run.metrics)):
        size, alike = len(run.metrics), kept[run.setting, run.config.seed]
        for other in alike if size else ():
            if _rows(run).equals(_rows(other).head(size)):
                lines.append(f"left out: {run.path}, a copy of {other.path}")
                break
        else:
            alike.append(run)
    return sorted(itertools.chain(*kept.values()), key=lambda run: run.path), lines


def _rows(run: TrackedRun) -> pd.DataFrame:
    """The run's metrics without the distances.

    Without a robot that walks, the distances are tuples of NaN, which are never equal.
    """
    return run.metrics.drop(columns="eval_distances")


def common_budget(runs: Sequence[TrackedRun]) -> int:
    """The largest number of gradient steps after which every run was evaluated.

    Runs that were never evaluated after step 0, as those stopped in the warm-up, do not count.

    Raises:
        ParameterError: there is no such number above 0, or no run.
    """
    if not runs:
        raise invalid("runs", runs, "a list of at least one run")
    steps = [set(run.evaluations.gradient_step) - {0} for run in runs]
    shared = set[int]().union(*steps).intersection(*filter(None, steps))
    if not shared:
        allowed = "a number of gradient steps: there is none after which all runs were evaluated"
        raise invalid("budget", None, allowed)
    return int(max(shared))


def comparable(runs: Sequence[TrackedRun], budget: int) -> tuple[list[TrackedRun], list[str]]:
    """Selects the runs whose score after `budget` gradient steps has the most episodes.

    A final evaluation has more episodes than one during training. The mean of fewer episodes
    has a larger standard error, so the two are not compared.

    Returns:
        These runs; and one line with the reason for each run that is left out, or for each seed
        that a setting has several times: `rank` counts each of these runs.

    Raises:
        ParameterError: no run was evaluated after `budget` gradient steps.
    """
    rows = [(run, run.evaluation_at(budget)) for run in runs]
    most = max((len(row.eval_returns) for _, row in rows if row is not None), default=0)
    if not most:
        taken = sorted({int(step) for run in runs for step in run.evaluations.gradient_step})
        allowed = f"gradient steps after which a run was evaluated, at most {max(taken, default=0)}"
        raise invalid("budget", budget, allowed)
    kept, left_out = [], []
    for run, row in rows:
        name = f"left out: {run.path}"
        if row is None:
            left_out.append(f"{name}: not evaluated after {budget} gradient steps")
        elif len(row.eval_returns) < most:
            episodes = f"{len(row.eval_returns)} episodes after {budget} gradient steps"
            left_out.append(f"{name}: {episodes}, other runs have {most}")
        else:
            kept.append(run)
    names = collections.Counter(f"{run.setting}, seed {run.config.seed}" for run in kept)
    repeated = [f"repeated: {name}: {count} runs" for name, count in names.items() if count > 1]
    return kept, left_out + repeated


# --- tables


def scores(runs: Sequence[TrackedRun], budget: int) -> pd.DataFrame:
    """The score of each run after `budget` gradient steps; see `TrackedRun.evaluation_at`.

    Returns:
        One row per run that was evaluated then, with the columns setting, seed, return (mean of
        the episodes), length (mean, env steps), distance (mean, metres), episodes (their number),
        minutes (wall time until then), path.
    """
    rows = []
    for run in runs:
        row = run.evaluation_at(budget)
        if row is not None:
            means = (row.eval_return, _mean(row.eval_lengths), _mean(row.eval_distances))
            count, minutes = len(row.eval_returns), row.wall_seconds / 60
            rows.append((run.setting, run.config.seed, *means, count, minutes, run.path))
    columns = ["setting", "seed", "return", "length", "distance", "episodes", "minutes", "path"]
    return pd.DataFrame(rows, columns=columns).sort_values(["setting", "seed"], ignore_index=True)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else np.nan


def rank(table: pd.DataFrame) -> pd.DataFrame:
    """Ranks the settings in `scores` by the interquartile mean (IQM) of their seeds' returns.

    Returns:
        One row per setting, best first, indexed by name, with the columns seeds (number), iqm, low
        and high (nominal 95 % bootstrap interval of the IQM, NaN for fewer than five seeds; see
        `statistics.interval_coverage`), worst, best, beats_next (probability of improvement over
        the next setting; NaN for the last).
    """
    groups = {str(name): group["return"].to_numpy() for name, group in table.groupby("setting")}
    iqm = {name: statistics.interquartile_mean(values) for name, values in groups.items()}
    order = sorted(groups, key=lambda name: -iqm[name])
    rows = []
    for name, following in itertools.zip_longest(order, order[1:]):
        values, beats = groups[name], np.nan
        if following:
            beats = statistics.probability_of_improvement(values, groups[following])
        interval = statistics.bootstrap_interval(values) or (np.nan, np.nan)
        rows.append((len(values), iqm[name], *interval, values.min(), values.max(), beats))
    columns = ["seeds", "iqm", "low", "high", "worst", "best", "beats_next"]
    return pd.DataFrame(rows, index=pd.Index(order, name="setting"), columns=columns)


def curve(runs: Sequence[TrackedRun], budget: int) -> pd.DataFrame:
    """Evaluation returns of the runs of one setting, up to `budget` gradient steps.

    Returns:
        One row per gradient step at which all runs were evaluated; one column per run, named by
        its path. The index has the env steps at that gradient step: the mean over the runs, which
        differ on Ray. Runs without an evaluation at the budget are left out.
    """
    returns, env_steps = {}, {}
    for run in runs:
        if run.evaluation_at(budget) is not None:
            rows = run.evaluations[run.evaluations.gradient_step <= budget]
            last = rows.groupby("gradient_step")[["env_step", "eval_return"]].last()
            returns[str(run.path)], env_steps[str(run.path)] = last.eval_return, last.env_step
    table = pd.DataFrame(returns).dropna()
    means = pd.DataFrame(env_steps).loc[table.index].mean(axis=1)
    return table.set_axis(pd.Index(means, name="env_step"))
