"""The exercises of notebook 05: statistics by hand, and a prediction about the runs it reads."""

from collections.abc import Callable
from math import comb
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from labkit.analysis import statistics
from labkit.lessons.exercises import Exercise, WrongAnswer, call, number_of

SIGNIFICANCE = 0.05


def best_of(answer: Callable) -> None:
    """05.1: the expected best of n normal scores, in standard deviations above the mean."""
    for n in (3, 1, 2, 10):
        given, true = number_of(call(answer, n)), _expected_best(n)
        if abs(given - true) < 0.02:
            continue
        hint = "Draw n scores 100 000 times, and average the highest."
        if abs(given) < 0.02:
            hint = "That is the mean of all; take the highest of each study."
        elif abs(given - _expected_best(3)) < 0.02:
            hint = "Your result does not depend on n."
        found = f"The best of {n} lies {true:.2f} standard deviations up, you say {given:.2f}."
        raise WrongAnswer(f"{found} {hint}")


def _expected_best(n: int) -> float:
    return float(stats.norm.expect(lambda x: x * n * stats.norm.cdf(x) ** (n - 1)))


def coverage(answer: Callable) -> None:
    """05.2: how often an interval contains the true mean.

    The answer gets intervals whose coverage is known: of n unit normal values, mean ± z / √n. A
    share of 1 000 studies may differ from it by four standard errors.
    """
    for n, z, true in ((5, 1.96, 0.95), (20, 1.0, 0.683)):

        def interval(values: Any, n: int = n, z: float = z) -> tuple[float, float]:
            if np.size(values) != n:
                passed = f"For n = {n} your function passes {np.size(values)} values to `interval`"
                raise WrongAnswer(f"{passed}: each study must have n values.")
            half = z / np.sqrt(n)
            return float(np.mean(values) - half), float(np.mean(values) + half)

        given = number_of(call(answer, interval, n))
        if abs(given - true) < 4 * np.sqrt(true * (1 - true) / 1_000) + 0.001:
            continue
        hint = "Draw standard normal values in 1 000 studies or more."
        if given > 1:
            hint = "A share is between 0 and 1: divide by the number of studies."
        elif given > 0.999:
            hint = "An interval always contains the mean of its own sample: take the true one, 0."
        elif abs(given - (1 - true)) < 0.04:
            hint = "You count the intervals that miss."
        raise WrongAnswer(f"An interval that covers {true:.0%}: you find {given:.0%}. {hint}")


def differences(answer: Any, p: pd.Series) -> None:
    """05.3: how many settings differ from the baseline after Holm's correction of `p`."""
    if p.empty:
        raise WrongAnswer("These runs do not decide it: nothing can be compared with the baseline.")
    found = p[np.array(statistics.holm(p.tolist())) < SIGNIFICANCE]
    given = number_of(answer)
    if given == len(found):
        return
    why = ""
    if given == (p < SIGNIFICANCE).sum():
        why = f" That is without Holm's correction for {len(p)} tests."
    elif given == len(p):
        why = " A lower mean of a few seeds may be chance."
    true = f"The corrected p is below {SIGNIFICANCE} for {len(found)} of {len(p)}"
    raise WrongAnswer(f"{true}; you say {given:g}.{why} Read on: the next section shows which.")


def clean_sweep(answer: Callable) -> None:
    """05.4: how often all seeds of one of two equal settings beat all of the other."""
    for n in (3, 1, 2, 5):
        given, true = number_of(call(answer, n)), 2 / comb(2 * n, n)
        if np.isclose(given, true, rtol=0.02, atol=0.003):
            continue
        hint = "Count the ways to choose which n of the 2n scores are one setting's, or simulate."
        if np.isclose(given, true / 2, rtol=0.02, atol=0.002):
            hint = "Either setting may win."
        elif np.isclose(given, (0.5**n, 2 * 0.5**n), rtol=0.03).any():  # of a simulation, too
            hint = "Seeds are not compared by place: all with all must agree."
        found = f"With {n} seeds each it happens in {true:.1%} of studies, you say {given:.1%}."
        raise WrongAnswer(f"{found} {hint}")


EXERCISES = {
    "05.1": Exercise(best_of, "The score of the best of several seeds contains luck."),
    "05.2": Exercise(coverage, "A simulation shows how often an interval is right."),
    "05.3": Exercise(differences, "What looks different in a figure need not be detectable."),
    "05.4": Exercise(clean_sweep, "With three seeds, one study in ten has a winner by chance."),
}
