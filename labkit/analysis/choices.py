"""The effect of single hyperparameters: tracked runs with and without each choice."""

import collections
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pandas as pd

from labkit.analysis import arithmetic
from labkit.analysis.compare import (
    NOT_A_SETTING,
    TUTORIAL,
    TUTORIAL_ENVIRONMENT,
    Folder,
    TrackedRun,
    find_runs,
)
from labkit.config import SACConfig
from labkit.errors import ParameterError
from labkit.parameters import brief

RATES = ("critic_learning_rate", "actor_learning_rate", "alpha_learning_rate")
FEWEST_SEEDS = 2  # of each setting: one seed cannot show the effect of a choice
ENOUGH_SEEDS = 3  # of each setting: then a pair at the present defaults is preferred
COLUMNS = ["without", "with", "return without", "return with", "difference", "seeds", "steps"]
Fields = dict[str, Any]
BySeed = Mapping[int, list[float]]  # returns of the runs of a seed
Scores = Mapping[str, Mapping[int, BySeed]]  # by kind of machine (see `arithmetic`) and env step


def show_study(folder: Folder) -> pd.DataFrame:
    """The score with and without each choice, from the runs of the Minitaur below a folder.

    For each field it looks for two settings that differ in this field alone: one has the value of
    the TF-Agents tutorial, the other labkit's default. Only runs from one kind of machine
    (`arithmetic.kind_of`) are compared, with two seeds or more of each setting. If there are
    several such pairs, it takes the one in which the setting with fewer seeds has the most. If
    these numbers are equal, the larger total number of seeds decides. A pair at the present
    defaults comes first if each of its settings has three seeds or more. A field without a pair
    has no row, and a folder without readable runs gives no rows. The three learning rates count as
    one field, `learning_rates`.

    Returns:
        One row per field, the largest difference first, with the columns without and with (the
        values), return without and return with (mean over seeds of an evaluation's mean return),
        difference, seeds (`without / with`), steps (env steps, warm-up included, after which
        both were evaluated).
    """
    try:
        runs, _ = find_runs(folder)
    except ParameterError:
        runs = []
    runs = [run for run in runs if run.config.env_name == TUTORIAL_ENVIRONMENT]
    settings = _settings(runs, arithmetic.read_starts(Path(folder)))
    defaults = setting_fields(SACConfig())
    rows = {}
    for name, value in with_one_rate(TUTORIAL).items():
        pairs = [
            pair
            for plain, plain_scores in settings
            if plain.get(name) == value
            for changed, changed_scores in settings
            if changed.get(name) == defaults.get(name) and _differing(plain, changed) == [name]
            for kind in plain_scores.keys() & changed_scores
            if (pair := _pair(name, plain, changed, plain_scores[kind], changed_scores[kind]))
        ]
        if pairs:
            rows[name] = max(pairs, key=lambda pair: pair[0])[1]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=COLUMNS)
    table.index.name = "parameter"
    return table.sort_values("difference", ascending=False)


def _settings(runs: list[TrackedRun], starts: arithmetic.Starts) -> list[tuple[Fields, Scores]]:
    """Each setting's fields, and the scores of its runs with the most episodes at each step."""
    found: list[tuple[Fields, Any]] = []
    for run in runs:
        fields = setting_fields(run.config)
        scores = next((scores for other, scores in found if other == fields), None)
        if scores is None:
            scores = collections.defaultdict(_by_step)
            found.append((fields, scores))
        kind = arithmetic.kind_of(run, starts)
        evaluated = run.evaluations
        complete = evaluated.eval_returns.map(len) >= run.config.num_eval_episodes
        for step in set(evaluated.gradient_step[complete]) - {0}:
            if (row := run.evaluation_at(step)) is not None:
                scores[kind][int(row.env_step)][run.config.seed].append(row.eval_return)
    return found


def _by_step() -> dict[int, dict[int, list[float]]]:
    return collections.defaultdict(lambda: collections.defaultdict(list))


def setting_fields(config: SACConfig) -> Fields:
    """The fields that make a setting.

    The three learning rates are one field, `learning_rates`, where they are equal.
    """
    fields = {
        name: value
        for name, value in attrs.asdict(config, recurse=False).items()
        if name not in NOT_A_SETTING
    }
    return with_one_rate(fields)


def with_one_rate(fields: Mapping[str, Any]) -> Fields:
    """The fields with one value in place of the three learning rates, if these are equal."""
    rates = {fields.get(name) for name in RATES}
    if len(rates) != 1 or rates == {None}:
        return dict(fields)
    others = {name: value for name, value in fields.items() if name not in RATES}
    return {**others, "learning_rates": rates.pop()}


def _differing(one: Fields, other: Fields) -> list[str]:
    return [name for name in one.keys() | other if one.get(name) != other.get(name)]


def _pair(
    name: str,
    plain: Fields,
    changed: Fields,
    plain_scores: Mapping[int, BySeed],
    changed_scores: Mapping[int, BySeed],
) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """How good this pair of settings is as evidence, and its row.

    It is None if the settings have no common step with enough seeds of each.
    """
    shared = set(plain_scores) & set(changed_scores)
    if not shared:
        return None

    def seeds(step: int) -> int:
        return min(len(plain_scores[step]), len(changed_scores[step]))

    step = max(shared, key=lambda step: (seeds(step), step))
    if seeds(step) < FEWEST_SEEDS:
        return None
    low, high = (
        float(np.mean([np.mean(returns) for returns in scores[step].values()]))
        for scores in (plain_scores, changed_scores)
    )
    counts = f"{len(plain_scores[step])} / {len(changed_scores[step])}"
    is_default = all(
        changed[field] == value
        for field, value in setting_fields(SACConfig()).items()
        if field in changed
    )
    runs = len(plain_scores[step]) + len(changed_scores[step])
    evidence = (min(seeds(step), ENOUGH_SEEDS), is_default, seeds(step), runs, step)
    values = (brief(plain[name]) if plain[name] != () else "none", brief(changed[name]))
    return evidence, (*values, low, high, high - low, counts, step)
