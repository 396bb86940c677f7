"""The exercises of notebook 05: predictions about the runs that it reads, and statistics by hand.

No score is written here: what is right follows from the tables that the notebook passes.
"""

from collections.abc import Callable
from math import comb
from typing import Any

import numpy as np
import pandas as pd
from scipy import integrate, stats

from labkit.parameters import echo
from labkit.teaching.exercises import Exercise, WrongAnswer, call, number_of

MIN_SEEDS = 2  # fewer have no place in the ranking
SIGNIFICANCE = 0.05


def known(name: Any, names: list[str]) -> str:
    """A setting's name.

    Raises:
        WrongAnswer: no setting has it.
    """
    if not isinstance(name, str) or name not in names:
        raise WrongAnswer(f"No setting is called {echo(name)}. Copy a name from the table above.")
    return name


# --- predictions


def winner(answer: Any, order: pd.DataFrame) -> None:
    """05.1: the setting that ranks first among those with two seeds or more.

    `order` is the table of `compare.rank`: indexed by setting, with the columns seeds and iqm.
    """
    enough = order[order.seeds >= MIN_SEEDS].sort_values("iqm", ascending=False)
    if len(enough) < 2:
        raise WrongAnswer(
            f"These runs do not decide it: fewer than two settings have {MIN_SEEDS} seeds or more."
        )
    name = known(answer, list(order.index))
    if name not in enough.index:
        raise WrongAnswer(
            f"{name!r} has {order.seeds[name]} seed, too few to tell skill from luck."
        )
    place = list(enough.index).index(name)
    if place:
        raise WrongAnswer(
            f"{name!r} is number {place + 1} of {len(enough)}, with {enough.iqm[name]:+.2f}; first "
            f"is {enough.index[0]!r}, with {enough.iqm.iloc[0]:+.2f}."
        )


def told_apart(answer: Any, compared: pd.DataFrame) -> None:
    """05.2: how many settings differ from the baseline after Holm's correction.

    `compared` is the table of `conclusions.against`, with the columns p and corrected.
    """
    if compared.empty:
        raise WrongAnswer("These runs do not decide it: nothing can be compared with the baseline.")
    found = compared[compared.corrected < SIGNIFICANCE]
    given = number_of(answer)
    if given == len(found):
        return
    names = f": {', '.join(map(repr, found.index))}" if len(found) else ""
    why = ""
    if given == (compared.p < SIGNIFICANCE).sum():
        why = f" That is without Holm's correction for {len(compared)} tests."
    elif given == len(compared):
        why = " Not every difference between dots is more than chance."
    raise WrongAnswer(
        f"The corrected p is below {SIGNIFICANCE} for {len(found)} of {len(compared)}{names}. You "
        f"say {given:g}.{why}"
    )


def furthest(answer: Any, scores: pd.DataFrame) -> None:
    """05.3: the setting whose runs walk furthest on average; `scores` as of `compare.scores`."""
    distances = scores.groupby("setting").distance.mean().dropna().sort_values(ascending=False)
    if len(distances) < 2:
        raise WrongAnswer("These runs do not decide it: fewer than two settings have a distance.")
    if not isinstance(answer, str) or answer not in distances.index:
        raise WrongAnswer(
            f"No setting with {MIN_SEEDS} seeds or more is called {echo(answer)}. Copy a name from "
            "the ranking."
        )
    name, place = answer, list(distances.index).index(answer)
    if place:
        raise WrongAnswer(
            f"{name!r} walks {distances[name]:.1f} m and is number {place + 1} of "
            f"{len(distances)}; {distances.index[0]!r} walks {distances.iloc[0]:.1f} m."
        )


# --- statistics by hand


def distinct_seeds(answer: Callable, scores: pd.DataFrame) -> None:
    """05.4: the number of distinct seeds of a setting."""
    repeated = pd.concat([scores, scores], ignore_index=True)  # so that each seed is repeated
    # A setting with other seeds: in a sweep all settings have the same.
    others = scores.assign(setting="other", seed=scores.seed + scores.seed.max() + 1)
    for table in (scores, pd.concat([repeated, others], ignore_index=True)):
        for setting, group in table.groupby("setting"):
            given, true = number_of(call(answer, table, setting)), group.seed.nunique()
            if given == true:
                continue
            found = f"{setting!r} has {len(group)} runs of {true} seeds, you say {given:g}. "
            if given == len(group):
                raise WrongAnswer(f"{found}You count runs: a seed that was run twice counts once.")
            if given == table.seed.nunique():
                raise WrongAnswer(f"{found}You count the seeds of all settings.")
            raise WrongAnswer(f"{found}Select the setting's rows, then count different seeds.")


def interquartile_mean(answer: Callable, scores: pd.DataFrame) -> None:
    """05.5: the mean without the lowest and the highest quarter."""
    groups = [np.array([1.0, 2.0, 3.0, 4.0, 50.0])]
    groups += [np.array([7.0, 1.0, 30.0, 4.0, 2.0, 60.0, 8.0, 3.0])]  # without 2 at each end
    groups += [np.array([5.0, 90.0, 2.0, 11.0, 7.0, 1.0, 40.0, 3.0, 12.0, 4.0, 20.0])]
    groups += [np.array([9.0, 1.0, 2.0])]  # nothing is left out
    groups += [group["return"].to_numpy() for _, group in scores.groupby("setting")]
    for values in groups:
        given, n = number_of(call(answer, values.copy())), len(values)
        true = stats.trim_mean(values, 0.25)
        if np.isclose(given, true):
            continue
        shown = np.round(values, 2).tolist()
        found = f"For {shown} it is {true:.2f}, yours is {given:.2f}. "
        if np.isclose(given, values.mean()):
            raise WrongAnswer(f"{found}That is the mean of all: one lucky seed moves it.")
        if np.isclose(given, np.median(values)):
            raise WrongAnswer(
                f"{found}That is the median, which leaves out more than two quarters."
            )
        if np.isclose(given, values[n // 4 : n - n // 4].mean()):
            raise WrongAnswer(f"{found}Sort the values first.")
        if n // 4 > 1 and np.isclose(given, np.sort(values)[1:-1].mean()):
            raise WrongAnswer(
                f"{found}You always leave out one value at each end: of {n} values it must "
                f"be {n // 4}."
            )
        raise WrongAnswer(f"{found}A quarter is rounded down: of {n} values {n // 4} at each end.")


def beats(answer: Callable) -> None:
    """05.6: the share of pairs of seeds in which one setting is better; a tie counts half."""
    cases = [([3.0, 1.0], [0.0, 2.0]), ([1.0, 2.0, 3.0], [2.0]), ([5.0, 5.0], [5.0, 5.0])]
    for ours, theirs in cases:
        a, b = np.array(ours), np.array(theirs)
        given = number_of(call(answer, a, b))
        higher, equal = np.mean(a[:, None] > b), np.mean(a[:, None] == b)
        true = higher + equal / 2
        if np.isclose(given, true):
            continue
        found = f"For {ours} against {theirs} it is {true:.2f}, yours is {given:.2f}. "
        if len(a) == len(b) and not equal and np.isclose(given, np.mean(a > b)):
            raise WrongAnswer(
                f"{found}You compare by place, but seed 1 of one setting has nothing to do with "
                "seed 1 of the other: compare all pairs."
            )
        if not equal and given == (a.mean() > b.mean()):
            raise WrongAnswer(f"{found}You compare the means: count the pairs.")
        if np.isclose(given, 1 - true):
            raise WrongAnswer(f"{found}That is how often the other one wins.")
        if equal and (np.isclose(given, higher) or np.isclose(given, higher + equal)):
            raise WrongAnswer(f"{found}A tie counts half.")
        raise WrongAnswer(f"{found}There are {len(a)} × {len(b)} pairs.")


def best_of(answer: Callable) -> None:
    """05.7: the expected best of n normal scores, in standard deviations above the mean."""
    for n in (3, 1, 2, 10):
        given, true = number_of(call(answer, n)), _expected_best(n)
        if abs(given - true) < 0.02:
            continue
        found = f"The best of {n} lies {true:.2f} standard deviations up, you say {given:.2f}. "
        if abs(given) < 0.02:
            raise WrongAnswer(f"{found}That is the mean of all; take the highest of each study.")
        if abs(given - _expected_best(3)) < 0.02:
            raise WrongAnswer(f"{found}Your result does not depend on n.")
        if abs(given - true) < 0.2:
            raise WrongAnswer(
                f"{found}That is near: simulate 100 000 studies of normal scores, and average."
            )
        raise WrongAnswer(f"{found}Draw n scores many times, and average the highest.")


def _expected_best(n: int) -> float:
    density = lambda x: x * n * stats.norm.pdf(x) * stats.norm.cdf(x) ** (n - 1)  # noqa: E731
    return float(integrate.quad(density, -10, 10)[0])


def clean_sweep(answer: Callable) -> None:
    """05.8: how often all seeds of one of two equal settings beat all of the other."""
    for n in (3, 1, 2, 5):
        given, true = number_of(call(answer, n)), 2 / comb(2 * n, n)
        if np.isclose(given, true, rtol=0.02, atol=0.003):
            continue
        found = f"With {n} seeds each it happens in {true:.1%} of studies, you say {given:.1%}. "
        if np.isclose(given, true / 2, rtol=0.02, atol=0.002):
            raise WrongAnswer(f"{found}Either setting may win.")
        by_place = 0.5**n, 2 * 0.5**n
        if np.isclose(given, by_place, rtol=0.03).any():  # of a simulation, too
            raise WrongAnswer(f"{found}Seeds are not compared by place: all with all must agree.")
        raise WrongAnswer(
            f"{found}Count the ways to choose which n of the 2n scores are one setting's, or "
            "simulate 100 000 studies."
        )


def coverage(answer: Callable) -> None:
    """05.9: how often an interval contains the true mean.

    The answer gets intervals whose coverage is known: of n unit normal values, mean ± z / √n. A
    share of 1 000 studies may differ from it by four standard errors.
    """
    for n, z, true in ((5, 1.96, 0.95), (20, 1.0, 0.683), (5, 100.0, 1.0)):
        close = 4 * np.sqrt(true * (1 - true) / 1_000) + 0.001

        def interval(values: Any, n: int = n, z: float = z) -> tuple[float, float]:
            if np.size(values) != n:
                raise WrongAnswer(
                    f"For n = {n} your function passes {np.size(values)} values to `interval`: "
                    "each study must have n values."
                )
            half = z / np.sqrt(n)
            return float(np.mean(values) - half), float(np.mean(values) + half)

        given = number_of(call(answer, interval, n))
        if abs(given - true) < close:
            continue
        if given > 1:
            raise WrongAnswer("A share is between 0 and 1: divide by the number of studies.")
        found = f"An interval that covers {true:.0%}: you find {given:.0%}. "
        new_value = 2 * stats.norm.cdf(z / np.sqrt(n + 1)) - 1
        if given > 0.999:
            raise WrongAnswer(
                f"{found}An interval always contains the mean of its own sample: ask for the "
                "true mean, 0."
            )
        if abs(given - new_value) < 0.02:
            raise WrongAnswer(f"{found}Ask for the true mean, 0, and not for a new value.")
        if abs(given - (1 - true)) < 0.04:
            raise WrongAnswer(f"{found}You count the intervals that miss.")
        raise WrongAnswer(f"{found}Draw standard normal values in 1 000 studies or more.")


EXERCISES = {
    "05.1": Exercise(winner, "You made the prediction before you saw the figure."),
    "05.2": Exercise(told_apart, "What looks different in a figure need not be detectable."),
    "05.3": Exercise(furthest, "A return adds several terms; look at each of them."),
    "05.4": Exercise(
        distinct_seeds, "A seed that was run twice is another draw of one seed, not another seed."
    ),
    "05.5": Exercise(
        interquartile_mean, "One lucky or one failed seed moves the mean much more than this."
    ),
    "05.6": Exercise(beats, "It says how often you would be right to expect the better result."),
    "05.7": Exercise(best_of, "The score of the best of several seeds contains luck."),
    "05.8": Exercise(
        clean_sweep, "With three seeds, chance alone makes a winner in a tenth of them."
    ),
    "05.9": Exercise(coverage, "A simulation shows how often an interval contains the true value."),
}
