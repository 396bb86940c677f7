"""Statistics over seeds: interquartile mean, its interval, and tests of the difference of two.

Pure functions of arrays; each result can be checked by hand.
"""

import functools
from collections.abc import Sequence

import numpy as np
from scipy import stats

MIN_SEEDS_FOR_INTERVAL = 5  # with fewer, show the values themselves
CONFIDENCE = 0.95  # nominal level of every interval
RESAMPLES = 10_000
STUDIES = 2_000  # simulated ones, for the actual coverage of the interval
POWER_STUDIES = 20_000  # simulated ones, for the power of a test
Interval = tuple[float, float]  # low and high end


def interquartile_mean(values: Sequence[float]) -> float:
    """Mean without the lowest and the highest quarter of the values (IQM).

    The values are `[n]` floats, one per seed. The size of a quarter is rounded down: of five values
    the lowest and the highest are left out, of fewer than four none is.

    Source: Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical
    Precipice" (2021), section 4.3.
    """
    return float(stats.trim_mean(np.asarray(values, float), 0.25))


def bootstrap_interval(values: Sequence[float]) -> Interval | None:
    """Percentile bootstrap interval of the interquartile mean over seeds.

    Its level of 95 % is nominal. From few seeds the interval is too narrow: it contains the true
    value less often than it says. `interval_coverage` computes how often.

    Args:
        values: `[n]` floats, one per seed.

    Returns:
        The low and the high end, deterministic; None below `MIN_SEEDS_FOR_INTERVAL` seeds.

    Source: the same paper, section 4.1.
    """
    if len(values) < MIN_SEEDS_FOR_INTERVAL:
        return None
    interval = stats.bootstrap(
        (np.asarray(values, float),),
        lambda x, axis: stats.trim_mean(x, 0.25, axis=axis),
        vectorized=True,
        confidence_level=CONFIDENCE,
        n_resamples=RESAMPLES,
        method="percentile",
        random_state=0,
    ).confidence_interval
    return float(interval.low), float(interval.high)


@functools.cache
def interval_coverage(seeds: int) -> float:
    """How often `bootstrap_interval` contains the true value, 0 to 1, if scores are normal.

    Simulates studies of `seeds` runs each, with a known mean, and counts. For scores that are not
    normal, such as a few failed seeds among good ones, the coverage may be lower still. The result
    is deterministic and exact to about one percent.
    """
    generator = np.random.default_rng(0)
    tails, inside = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], 0
    for _ in range(STUDIES):
        drawn = generator.choice(generator.normal(size=seeds), (RESAMPLES // 10, seeds))
        low, high = np.quantile(stats.trim_mean(drawn, 0.25, axis=1), tails)
        inside += int(low <= 0 <= high)
    return inside / STUDIES


def interval_label(seeds: int) -> str:
    """What to write next to an interval: `nominal 95 % interval, covers about 88 %`."""
    return f"nominal 95 % interval, covers about {100 * interval_coverage(seeds):.0f} %"


def probability_of_improvement(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Share of pairs of seeds in which `ours` is higher than `theirs`, 0 to 1; a tie counts half.

    `ours` are `[n]` floats, one per seed, and `theirs` `[m]` floats.

    Source: the same paper, section 4.3. Multiplied by n·m it is the Mann-Whitney U statistic.
    """
    difference = np.subtract.outer(np.asarray(ours, float), np.asarray(theirs, float))
    return float(np.mean((difference > 0) + 0.5 * (difference == 0)))


def welch(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The p-value of Welch's two-sided t-test between `[n]` and `[m]` floats, at least two each.

    It is the probability of a difference at least as large between settings with equal means.
    """
    if not np.ptp(ours) and not np.ptp(theirs):  # equal values may have a rounded spread above 0
        return float(np.min(ours) == np.min(theirs))
    return float(stats.ttest_ind(ours, theirs, equal_var=False).pvalue)


def mean_difference(
    ours: Sequence[float], theirs: Sequence[float]
) -> tuple[float, Interval, float]:
    """The difference of two means, its 95 % interval and its p-value, by Welch's t-test.

    Args:
        ours: `[n]` floats, one per seed, at least two.
        theirs: `[m]` floats, at least two.
    """
    difference = float(np.mean(ours) - np.mean(theirs))
    p = welch(ours, theirs)
    if not np.ptp(ours) and not np.ptp(theirs):
        return difference, (difference, difference), p
    interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(CONFIDENCE)
    return difference, (float(interval.low), float(interval.high)), p


def iqm_difference(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, Interval, float]:
    """The difference of two interquartile means, its 95 % interval and its p-value (two-sided).

    The test is Yuen's, which is Welch's test for trimmed means: of fewer than four values none is
    left out. It assumes scores that are about normal but for a few outliers. In simulations with as
    many normal values of each setting, three to ten, the intervals contain the true difference in
    93 to 97 % of studies; with 4 against 10 values in 92 %, and in fewer if the spreads differ.

    Args:
        ours: `[n]` floats, one per seed, at least two.
        theirs: `[m]` floats, at least two.

    Source: Yuen, "The Two-Sample Trimmed t for Unequal Population Variances" (1974).
    """
    kept, others = _between_quarters(ours), _between_quarters(theirs)
    if not np.ptp(kept) and not np.ptp(others):
        difference = float(kept[0] - others[0])
        return difference, (difference, difference), float(difference == 0)
    difference = interquartile_mean(ours) - interquartile_mean(theirs)
    test = stats.ttest_ind(ours, theirs, equal_var=False, trim=0.25)
    interval = test.confidence_interval(CONFIDENCE)
    return difference, (float(interval.low), float(interval.high)), float(test.pvalue)


def _between_quarters(values: Sequence[float]) -> np.ndarray:
    """The values that the interquartile mean averages."""
    return stats.trimboth(np.sort(np.asarray(values, float)), 0.25)


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrects the p-values of `[n]` tests for their number, in the order given.

    With a level of 0.05, the probability that one or more of the tests find a difference that does
    not exist is at most 5 %, whether or not the tests are independent. This assumes that each
    p-value is exact; those of Welch's test with few seeds are not, see `family_error`.

    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure" (1979).
    """
    order = np.argsort(p_values, kind="stable")
    corrected, largest = np.empty(len(order)), 0.0
    for place, number in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - place) * p_values[number]))
        corrected[number] = largest
    return corrected.tolist()


def power(
    difference: float,
    stds: tuple[float, float],
    seeds: int | tuple[int, int],
    significance: float,
) -> float:
    """The probability that Welch's two-sided t-test detects a true difference of two means.

    It is the share of `POWER_STUDIES` simulated studies with normally distributed scores, so its
    standard error is at most 0.004. The exact power is known only for Student's t-test, which
    assumes equal variances. With few seeds, Welch's test detects less.

    Args:
        difference: of the means.
        stds: standard deviation over seeds of each setting; not both 0.
        seeds: of each setting, at least 2; one number if both have as many.
        significance: level of the test, such as 0.05.
    """
    generator = np.random.default_rng(0)
    counts = seeds if isinstance(seeds, tuple) else (seeds, seeds)
    ours = generator.normal(0.0, stds[0], (POWER_STUDIES, counts[0]))
    theirs = generator.normal(difference, stds[1], (POWER_STUDIES, counts[1]))
    found = stats.ttest_ind(ours, theirs, axis=1, equal_var=False).pvalue < significance
    return float(np.mean(found))


@functools.cache
def family_error(counts: tuple[tuple[int, int], ...], spread: float = 1.0) -> float:
    """How often Holm's correction of Welch's tests finds a difference although all means are equal.

    It is the share of `POWER_STUDIES` simulated studies with normally distributed scores in which
    one or more corrected p-values are below 0.05. Nominally it is at most 5 %.

    Args:
        counts: (seeds of the setting, seeds of the baseline) of each test, each at least 2. All
            tests with equally many seeds of the baseline share these.
        spread: standard deviation of the settings, that of the baseline being 1.
    """
    generator = np.random.default_rng(0)
    shared = {n: generator.normal(size=(POWER_STUDIES, n)) for n in sorted({m for _, m in counts})}
    smallest = np.ones(POWER_STUDIES)
    for ours, theirs in counts:
        drawn = generator.normal(0.0, spread, (POWER_STUDIES, ours))
        p = stats.ttest_ind(drawn, shared[theirs], axis=1, equal_var=False).pvalue
        smallest = np.minimum(smallest, p)
    return float(np.mean(smallest * len(counts) < 0.05))
