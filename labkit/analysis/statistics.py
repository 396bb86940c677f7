"""Numbers over seeds: the middle, how sure it is, and how many seeds would tell two apart.

Pure functions of arrays; each can be computed by hand.
"""

from collections.abc import Sequence

import numpy as np
from scipy import stats

FEWEST_FOR_AN_INTERVAL = 5  # below this the points themselves say more than any interval
RESAMPLES = 10_000


def interquartile_mean(values: Sequence[float]) -> float:
    """Mean without the lowest and the highest quarter, each rounded down to whole values.

    Of five seeds the lowest and the highest are left out; of fewer than four none is.

    Args:
        values: `[n]` floats, one for each seed.

    Source: Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical
    Precipice" (2021), section 4.3.
    """
    return float(stats.trim_mean(np.asarray(values, float), 0.25))


def bootstrap_interval(
    values: Sequence[float], confidence: float = 0.95
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the interquartile mean over seeds.

    Args:
        values: `[n]` floats, one for each seed.
        confidence: share of resamples whose interquartile mean lies inside.

    Returns:
        Its low and high end, the same for the same values; None for fewer than
        `FEWEST_FOR_AN_INTERVAL` seeds.

    Source: the same paper, section 4.1.
    """
    if len(values) < FEWEST_FOR_AN_INTERVAL:
        return None
    interval = stats.bootstrap(
        (np.asarray(values, float),),
        lambda x, axis: stats.trim_mean(x, 0.25, axis=axis),
        vectorized=True,
        confidence_level=confidence,
        n_resamples=RESAMPLES,
        method="percentile",
        random_state=0,
    ).confidence_interval
    return float(interval.low), float(interval.high)


def probability_of_improvement(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """How often a seed of `ours` beats a seed of `theirs`, a tie counting half: 0 to 1.

    Args:
        ours: `[n]` floats, one for each seed.
        theirs: `[m]` floats.

    Source: the same paper, section 4.3; n·m times it is the Mann-Whitney U statistic.
    """
    difference = np.subtract.outer(np.asarray(ours, float), np.asarray(theirs, float))
    return float(np.mean((difference > 0) + 0.5 * (difference == 0)))


def welch(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The p-value of Welch's t-test, two-sided: how often equal settings differ by so much.

    Args:
        ours: `[n]` floats, one for each seed, two or more.
        theirs: `[m]` floats, two or more.
    """
    if not np.std(ours) and not np.std(theirs):
        return float(np.mean(ours) == np.mean(theirs))
    return float(stats.ttest_ind(ours, theirs, equal_var=False).pvalue)


def power(difference: float, deviations: tuple[float, float], seeds: int, level: float) -> float:
    """How likely Welch's t-test, two-sided at `level`, finds a true difference of two means.

    Args:
        difference: of the means.
        deviations: standard deviation over seeds of either setting; not both 0.
        seeds: of each setting, 2 or more.
        level: of significance, such as 0.05.

    Returns:
        A probability, 0 to 1.
    """
    a, b = (deviation**2 / seeds for deviation in deviations)
    freedom = (a + b) ** 2 / ((a**2 + b**2) / (seeds - 1))
    critical = stats.t.ppf(1 - level / 2, freedom)
    shift = abs(difference) / np.sqrt(a + b)
    inside = stats.nct.cdf(critical, freedom, shift) - stats.nct.cdf(-critical, freedom, shift)
    return float(1 - inside)


def seeds_needed(
    difference: float,
    deviations: tuple[float, float],
    wanted: float = 0.8,
    level: float = 0.05,
    most: int = 1000,
) -> int | None:
    """The fewest seeds of each setting that find a true difference with power `wanted`.

    Args:
        difference: of the means.
        deviations: standard deviation over seeds of either setting.
        wanted: the power, such as 0.8: found in four of five repetitions of the study.
        level: of significance, two-sided.
        most: where the search ends.

    Returns:
        2 or more; None where `most` seeds would not do.
    """
    if not any(deviations):
        return 2 if difference else None
    counts = range(2, most + 1)
    return next((n for n in counts if power(difference, deviations, n, level) >= wanted), None)
