"""The tracked runs of a DQN with five replay memories: scores and tests (notebook 02)."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from labkit.analysis import statistics

FILE = "evaluations.csv"
MEMORIES = ("no replay", "newest 32", "small", "large", "prioritised")
COLUMNS = ("memory", "learning_rate", "seed", "env_step", "mean_return")
FIRST_TUNING_SEED = 100  # seeds from here on chose the learning rates, and are not reported
COMMON_RATE = 3e-3  # for the second comparison, with one learning rate for all memories
LAST = 5  # evaluations that make up the score at the end of a run
REFERENCE = "large"  # the memory that the others are compared with


def read(path: Path) -> pd.DataFrame:
    """All runs, a row for each evaluation, with `COLUMNS`; in the order of `MEMORIES`."""
    table = pd.read_csv(path)
    order = table.memory.map(MEMORIES.index)
    return (
        table.assign(order=order)
        .sort_values(["order", "learning_rate", "seed", "env_step"], ignore_index=True)
        .drop(columns="order")
    )


def reported(table: pd.DataFrame) -> pd.DataFrame:
    """The runs that the notebook reports: other seeds, at the chosen learning rates."""
    rates = table.memory.map(chosen_rates(table))
    return table[(table.seed < FIRST_TUNING_SEED) & (table.learning_rate == rates)]


def at_common_rate(table: pd.DataFrame) -> pd.DataFrame:
    """The runs of all memories on the reported seeds with `COMMON_RATE`."""
    return table[(table.seed < FIRST_TUNING_SEED) & (table.learning_rate == COMMON_RATE)]


def scores(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each run: `whole` is the mean of all evaluations, `end` that of the last five."""
    runs = table.groupby(["memory", "learning_rate", "seed"], sort=False).mean_return
    whole, end = runs.mean(), runs.apply(lambda one: one.iloc[-LAST:].mean())
    return pd.DataFrame({"whole": whole, "end": end}).reset_index()


def tuning(table: pd.DataFrame) -> pd.DataFrame:
    """Mean of `whole` over the tuning seeds: a row for each memory, a column per learning rate."""
    tried = scores(table[table.seed >= FIRST_TUNING_SEED])
    means = tried.groupby(["memory", "learning_rate"], sort=False).whole.mean()
    return means.unstack("learning_rate")


def chosen_rates(table: pd.DataFrame) -> dict[str, float]:
    """The best learning rate of each memory on the tuning seeds, by the mean over the run."""
    best = tuning(table).idxmax(axis=1)
    return {str(memory): float(rate) for memory, rate in best.items()}


def differences(table: pd.DataFrame, score: str = "whole") -> Mapping[str, tuple[float, float]]:
    """Each other memory: difference of the means from `large`, and Welch's p after Holm.

    Args:
        table: the rows of the reported runs.
        score: `whole` or `end`.
    """
    runs = scores(table).groupby("memory", sort=False)[score].apply(list)
    others = [name for name in runs.index if name != REFERENCE]
    p_values = statistics.holm([statistics.welch(runs[name], runs[REFERENCE]) for name in others])
    gaps = [pd.Series(runs[name]).mean() - pd.Series(runs[REFERENCE]).mean() for name in others]
    return dict(zip(others, zip(gaps, p_values, strict=True), strict=True))


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each memory of the reported runs: mean ± standard deviation over the seeds."""
    runs, rows = scores(table), {}
    for name, one in runs.groupby("memory", sort=False):
        rows[name] = {
            "learning rate": f"{one.learning_rate.iloc[0]:g}",
            "seeds": len(one),
            "whole run": f"{one.whole.mean():.1f} ± {one.whole.std():.1f}",
            "end": f"{one.end.mean():.1f} ± {one.end.std():.1f}",
            "end of each seed": ", ".join(f"{value:.0f}" for value in one.end),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("memory")


def verdicts(table: pd.DataFrame) -> list[str]:
    """A sentence for each other memory and score: whether it differs from `large`, at p < 0.05."""
    sentences = []
    for score, words in (("whole", "over the whole run"), ("end", "at the end")):
        for name, (gap, p) in differences(table, score).items():
            found = f"{abs(gap):.1f} {'higher' if gap > 0 else 'lower'} than {REFERENCE}"
            verdict = "a difference" if p < 0.05 else "no detectable difference"
            sentences.append(f"{name}, {words}: {found}, p = {p:.2g} after Holm: {verdict}")
    return sentences
