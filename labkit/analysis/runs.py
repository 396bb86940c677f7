"""Several runs next to each other: finds them, names their settings, compares their returns."""

import collections
import os
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np
import pandas as pd

from labkit.analysis import statistics
from labkit.config import FREE_TO_CHANGE, SACConfig
from labkit.errors import ParameterError
from labkit.parameters import brief, invalid
from labkit.training.records import read_config, read_metrics

# Fields that differ between runs of the same setting, or do not influence learning.
NOT_A_SETTING = (
    *FREE_TO_CHANGE,
    *("seed", "num_iterations", "log_interval", "eval_interval", "interim_eval_episodes"),
    *("num_eval_episodes", "policy_save_interval"),
)
DEFAULTS, BASELINE = "defaults", "baseline"  # names of settings


@attrs.frozen
class StoredRun:
    """One run, read from its directory; see `read_metrics` for `metrics`."""

    path: Path
    config: SACConfig
    metrics: pd.DataFrame = attrs.field(eq=False, repr=False)
    setting: str  # see `setting_name` and `relative_to`

    @property
    def evaluations(self) -> pd.DataFrame:
        """The rows of `metrics` with an evaluation."""
        return self.metrics[self.metrics.eval_return.notna()]

    def evaluation_at(self, budget: int) -> pd.Series | None:
        """The evaluation after exactly `budget` gradient steps, the first with most episodes."""
        rows = self.evaluations[self.evaluations.gradient_step == budget]
        return None if rows.empty else rows.loc[rows.eval_returns.map(len).idxmax()]


def setting_name(config: SACConfig, base: SACConfig | None = None, most: int = 99) -> str:
    """The fields that differ from `base`, such as `gamma 0.98, n_step 1`; if none, `baseline`.

    Without `base`, those that differ from the defaults of the environment; if none, `defaults`.
    Of more than `most` fields: the first, and the number of the others.
    """
    against = base or SACConfig.parse({"env_name": config.env_name})
    words = [
        f"{name} {'none' if value == () else brief(value)}"
        for name, value in attrs.asdict(config, recurse=False).items()
        if name not in NOT_A_SETTING and value != getattr(against, name)
    ]
    if len(words) > most:
        return f"{words[0]} and {len(words) - 1} more"
    return ", ".join(words) or (BASELINE if base else DEFAULTS)


def find_runs(folder: str | os.PathLike[str]) -> tuple[list[StoredRun], list[str]]:
    """Reads every run in a folder, which is a run directory or contains some.

    Returns:
        The runs, sorted by path; and one line for each run that cannot be read.

    Raises:
        ParameterError: the folder does not exist, or contains no readable run.
    """
    if not isinstance(folder, str | os.PathLike) or not Path(folder).is_dir():
        raise invalid("runs", folder, "an existing folder")
    runs, damaged = [], []
    for path in sorted(file.parent for file in Path(folder).rglob("config.json")):
        try:
            config = read_config(path)
            runs.append(StoredRun(path, config, read_metrics(path), setting_name(config)))
        except ParameterError as error:
            damaged.append(f"left out: {error}")
    if not runs:
        why = f" ({damaged[0]})" if damaged else ""
        raise invalid("runs", str(folder), f"a folder with at least one run{why}")
    return runs, damaged


def relative_to(runs: Sequence[StoredRun], baseline: str) -> list[StoredRun]:
    """The runs, each named by the fields in which it differs from the baseline.

    `baseline` is the name of a setting, or of a folder whose runs have one setting. Its runs are
    named `baseline`. More than two fields are `FIRST and N more` where no other setting is.

    Raises:
        ParameterError: the runs are of several environments, or `baseline` is neither.
    """
    environments = sorted({run.config.env_name for run in runs})
    if len(environments) > 1:
        raise invalid("runs", ", ".join(environments), "a folder of runs in one environment")
    members = [run for run in runs if run.setting == baseline]
    members = members or [run for run in runs if baseline in run.path.parts]
    if len({run.setting for run in members}) != 1:
        known = ", ".join(sorted({repr(run.setting) for run in runs}, key=len))
        allowed = f"a folder in `runs` whose runs have one setting, or one of these: {known}"
        raise invalid("baseline", baseline, allowed)
    base = members[0].config
    names = [(setting_name(run.config, base, 2), setting_name(run.config, base)) for run in runs]
    used = collections.Counter(short for short, _ in set(names))  # by how many settings
    chosen = [short if used[short] == 1 else full for short, full in names]
    return [attrs.evolve(run, setting=name) for run, name in zip(runs, chosen, strict=True)]


def common_budget(runs: Sequence[StoredRun]) -> int:
    """The gradient steps after which most finished runs have as many episodes as in any evaluation.

    The final evaluation has the most. Of several such numbers it is the largest. Runs that were
    stopped do not decide, unless all were.

    Raises:
        ParameterError: no run was evaluated after step 0.
    """
    counts = collections.Counter[int]()
    finished = [r for r in runs if (r.evaluations.gradient_step >= r.config.num_iterations).any()]
    for run in finished or runs:
        trained = run.evaluations[run.evaluations.gradient_step > 0]
        episodes = trained.eval_returns.map(len)
        counts.update({int(step) for step in trained.gradient_step[episodes == episodes.max()]})
    if not counts:
        names = ", ".join(str(run.path) for run in runs) or "none"
        raise ParameterError(f"`runs` must have a run that was evaluated in training: {names}")
    return max(counts, key=lambda step: (counts[step], step))


# --- tables


def scores_at(runs: Sequence[StoredRun], budget: int) -> tuple[pd.DataFrame, list[str]]:
    """The score of each run after `budget` gradient steps; see `StoredRun.evaluation_at`.

    Only the runs with the most episodes in this evaluation count: the mean of fewer episodes has a
    larger standard error, so the two are not compared.

    Returns:
        One row per run, sorted: setting, seed, return (mean of the episodes), error (its standard
        error), length (mean, env steps), distance (mean, metres), path; and one line for each run
        that is left out.

    Raises:
        ParameterError: no run was evaluated after `budget` gradient steps.
    """
    found = [run.evaluation_at(budget) for run in runs]
    counts = [0 if row is None else len(row.eval_returns) for row in found]
    most = max(counts, default=0)
    if not most:
        steps = [int(step) for run in runs for step in run.evaluations.gradient_step]
        allowed = f"gradient steps after which a run was evaluated, at most {max(steps, default=0)}"
        raise invalid("budget", budget, allowed)
    rows, left_out = [], []
    for run, row, count in zip(runs, found, counts, strict=True):
        if row is None or count < most:
            why = f"{count} episodes after {budget} gradient steps, not {most}"
            left_out.append(f"left out: {run.path}: {why}")
            continue
        error = np.std(row.eval_returns) / np.sqrt(most)
        means = (np.mean(row.eval_lengths or np.nan), np.mean(row.eval_distances or np.nan))
        rows.append((run.setting, run.config.seed, row.eval_return, error, *means, run.path))
    columns = ["setting", "seed", "return", "error", "length", "distance", "path"]
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values(["setting", "seed", "path"], ignore_index=True), left_out


def rank(table: pd.DataFrame) -> pd.DataFrame:
    """Ranks the settings in `scores_at` by the interquartile mean (IQM) of their seeds' returns.

    Returns:
        One row per setting, best first, indexed by name, with the columns seeds (number), iqm, low
        and high (nominal 95 % bootstrap interval of the IQM, NaN for fewer than five seeds).
    """
    rows = {}
    for name, values in table.groupby("setting")["return"]:
        ends = statistics.bootstrap_interval(values.tolist()) or (np.nan, np.nan)
        rows[str(name)] = (len(values), statistics.interquartile_mean(values.tolist()), *ends)
    ranked = pd.DataFrame.from_dict(rows, orient="index", columns=["seeds", "iqm", "low", "high"])
    return ranked.sort_values("iqm", ascending=False).rename_axis("setting")


def compare(table: pd.DataFrame, baseline: str = BASELINE) -> pd.DataFrame:
    """Compares the interquartile mean (IQM) of each setting with that of the baseline.

    Args:
        table: as of `scores_at`, each seed once, two seeds or more of each setting. Without the
            baseline, the result is empty.
        baseline: its name.

    Returns:
        One row per other setting, the highest difference first, indexed by setting, with the
        columns seeds (number), difference (of the IQMs), low and high (nominal 95 % interval), p,
        corrected (p by Holm's method for the number of rows); see `statistics.iqm_difference`.
    """
    groups = {str(name): list(group) for name, group in table.groupby("setting")["return"]}
    theirs, rows = groups.pop(baseline, []), {}
    for name, ours in groups.items() if theirs else ():
        difference, interval, p = statistics.iqm_difference(ours, theirs)
        rows[name] = (len(ours), difference, *interval, p)
    columns = ["seeds", "difference", "low", "high", "p"]
    found = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    found["corrected"] = statistics.holm(found.p.tolist())
    return found.sort_values("difference", ascending=False).rename_axis("setting")
