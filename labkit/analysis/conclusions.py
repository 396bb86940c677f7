"""What several runs show: each setting against a baseline, with one sentence for each verdict.

A setting counts once for each seed, and needs two seeds for a verdict.
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import pandas as pd

from labkit.analysis import statistics
from labkit.analysis.choices import Fields, setting_fields
from labkit.analysis.compare import (
    MAX_VALUE_LENGTH,
    TUTORIAL,
    TUTORIAL_ENVIRONMENT,
    Folder,
    TrackedRun,
)
from labkit.config import SACConfig
from labkit.parameters import brief, invalid

NAME = "baseline"  # the name of the baseline's setting in tables and figures
SIGNIFICANCE = 0.05
LINE = 95  # characters of a printed line, which fit the width of a notebook
COLUMNS = ["seeds", "difference", "low", "high", "p", "corrected"]


# --- the baseline


def relative_to(runs: Sequence[TrackedRun], folder: Folder, baseline: str) -> list[TrackedRun]:
    """The runs, each named by the fields in which it differs from the baseline.

    The baseline's runs are named `baseline`. A run that differs less from the TF-Agents tutorial is
    named after that: `tutorial, n_step 5`.

    Args:
        runs: as of `compare.find_runs`.
        folder: where they are from.
        baseline: a setting's name; or a folder in `folder` whose runs have one setting. `defaults`
            is the setting with the defaults of their environment.

    Raises:
        ParameterError: the runs are of several environments, or `baseline` is neither.
    """
    environments = sorted({run.config.env_name for run in runs})
    if len(environments) > 1:
        allowed = f"a folder of runs in one environment; these are of {', '.join(environments)}"
        raise invalid("runs", str(folder), allowed)
    members = [run for run in runs if run.setting == baseline]
    if not members and isinstance(baseline, str) and baseline:
        inside = Path(folder) / baseline
        members = [run for run in runs if inside in (run.path, *run.path.parents)]
    if not members and baseline == "defaults":
        # In another environment than the Minitaur, this setting has the name of the environment.
        members = [run for run in runs if run.setting == run.config.env_name]
    names = {run.setting for run in members}
    if len(names) != 1:
        known = ", ".join(sorted({repr(run.setting) for run in runs}, key=len))
        allowed = f"a folder in `runs` whose runs have one setting, or one of these: {known}"
        raise invalid("baseline", baseline, allowed)
    return [attrs.evolve(run, name=_relative_name(run, members[0])) for run in runs]


def _relative_name(run: TrackedRun, reference: TrackedRun) -> str:
    fields = setting_fields(run.config)
    words = _changes(fields, setting_fields(reference.config))
    if run.config.env_name == TUTORIAL_ENVIRONMENT and words:
        tutorial = setting_fields(attrs.evolve(SACConfig(), **TUTORIAL))
        words = min(words, ["tutorial", *_changes(fields, tutorial)], key=len)
    return ", ".join(words) or NAME


def _changes(fields: Fields, base: Fields) -> list[str]:
    return [f"{name} {_brief(name, v)}" for name, v in fields.items() if v != base.get(name)]


def _brief(name: str, value: Any) -> str:
    """A value for a name: an empty tuple is `none`, a long default value is `default`."""
    text = brief(value)
    if len(text) > MAX_VALUE_LENGTH and value == getattr(SACConfig(), name, None):
        return "default"
    return "none" if value == () else text


# --- what counts


def once_each_seed(
    table: pd.DataFrame, keep: Literal["first", "last"] = "first"
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Splits `compare.scores`: one run of each setting and seed, and the repeated ones.

    The first or the last path counts (`defaults` comes before `defaults-again`), whatever the
    scores. A mean of both would have less noise than the single runs of other seeds, and the better
    one would be luck.
    """
    place = zip(table.setting, table.seed, [Path(path).parts for path in table.path], strict=True)
    order = [number for _, number in sorted(zip(place, range(len(table)), strict=True))]
    ordered = table.iloc[order]
    again = ordered.duplicated(["setting", "seed"], keep=keep)
    return ordered[~again].reset_index(drop=True), ordered[again].reset_index(drop=True)


def with_several_seeds(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Splits `compare.scores`: the settings with two seeds or more, and those with one."""
    several = table.groupby("setting").seed.transform("nunique") > 1
    return table[several].reset_index(drop=True), table[~several].reset_index(drop=True)


# --- verdicts


def against(table: pd.DataFrame) -> pd.DataFrame:
    """Compares the interquartile mean (IQM) of each setting with that of the baseline, `NAME`.

    Args:
        table: as of `compare.scores`, each seed once, two seeds or more of each setting. Without
            the baseline, the result is empty.

    Returns:
        One row per other setting, the highest difference first, indexed by setting, with the
        columns seeds (number), difference (of the IQMs), low and high (nominal 95 % interval), p,
        corrected (p by Holm's method for the number of rows); see `statistics.iqm_difference`.
    """
    groups = {str(name): group["return"].to_numpy() for name, group in table.groupby("setting")}
    theirs = groups.pop(NAME, None)
    rows = {}
    for name, ours in groups.items() if theirs is not None else ():
        difference, interval, p = statistics.iqm_difference(ours, theirs)
        rows[name] = (len(ours), difference, *interval, p)
    found = pd.DataFrame.from_dict(rows, orient="index", columns=COLUMNS[:-1])
    found["corrected"] = statistics.holm(found.p.tolist())
    found.index.name = "setting"
    return found.sort_values("difference", ascending=False)


def verdict(compared: pd.DataFrame, setting: str) -> str:
    """One sentence about a row of `against`; only the corrected p-value decides."""
    row = compared.loc[setting]
    text = f"IQM of {setting} minus {NAME} is {row.difference:+.2f}"
    text += f" (95 % interval {row.low:+.2f} to {row.high:+.2f}): "
    found = f"Holm's p = {row.corrected:.2g}"
    if row.corrected < SIGNIFICANCE:
        return f"{text}{'higher' if row.difference > 0 else 'lower'} than {NAME}, {found}."
    text += f"no detectable difference, {found}"
    if row.p < SIGNIFICANCE:
        text += f"; without the correction for {len(compared)} tests, p = {row.p:.2g}"
    return f"{text}."


def verdicts(compared: pd.DataFrame) -> str:
    """A sentence for each row of `against`, or one that says why there is none.

    Each begins on a new line. JupyterLab breaks longer lines inside words and numbers.
    """
    if compared.empty:
        return f"Nothing to compare: no second setting, or {NAME}, has two seeds or more."
    sentences = [verdict(compared, str(name)) for name in compared.index]
    return "\n".join(textwrap.fill(each, LINE, subsequent_indent="  ") for each in sentences)
