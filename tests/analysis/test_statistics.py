"""Statistics over seeds, each compared with a value from another source."""

import math

import numpy as np
import pytest
from scipy import stats

from labkit.analysis import statistics


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], 7.0),
        ([1, 2, 9], 4.0),  # a quarter of three values, rounded down, is none
        ([0, 1, 2, 100], 1.5),
        ([3, 1, 100, 2, -50], 2.0),
        ([0, 0, 1, 2, 3, 4, 99, 99], 2.5),
    ],
)
def test_interquartile_mean_by_hand(values, expected):
    assert statistics.interquartile_mean(values) == expected


def test_bootstrap_interval_agrees_with_all_possible_resamples():
    """Five seeds have only 5⁵ = 3125 resamples, so the exact quantiles are known."""
    values = np.array([8.2, 3.1, 9.9, 10.4, 6.0])
    everything = values[np.indices((5,) * 5).reshape(5, -1)]
    means = np.sort(everything, axis=0)[1:4].mean(0)
    low, high = statistics.bootstrap_interval(values)
    assert low == pytest.approx(np.quantile(means, 0.025), abs=0.15)
    assert high == pytest.approx(np.quantile(means, 0.975), abs=0.15)
    assert statistics.bootstrap_interval(values) == (low, high), "deterministic"
    assert statistics.bootstrap_interval(values[:4]) is None


def test_bootstrap_interval_covers_as_often_as_its_docstring_says():
    generator = np.random.default_rng(5)
    intervals = [statistics.bootstrap_interval(generator.normal(size=5)) for _ in range(300)]
    inside = np.mean([low <= 0 <= high for low, high in intervals])
    assert inside == pytest.approx(0.89, abs=0.05)  # three standard errors


def test_welch_by_hand_with_unequal_variances_and_numbers():
    """Means 2 and 25, variances 1 and 350: t = 23 / √(1/3 + 350/6), 5.06 degrees of freedom."""
    p = statistics.welch([1, 2, 3], [0, 10, 20, 30, 40, 50])
    t = 23 / np.sqrt(1 / 3 + 350 / 6)
    freedom = (1 / 3 + 350 / 6) ** 2 / ((1 / 3) ** 2 / 2 + (350 / 6) ** 2 / 5)
    assert p == pytest.approx(2 * stats.t.sf(t, freedom))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("test", [statistics.welch, lambda *a: statistics.iqm_difference(*a)[2]])
def test_equal_values_with_a_rounded_mean_do_not_differ(test):
    """The mean of three times 0.1 is not 0.1, and their standard deviation is not 0."""
    assert test([0.1] * 3, [0.1] * 4) == 1
    assert test([0.1] * 3, [0.2] * 3) == 0


def test_the_difference_of_interquartile_means_by_hand():
    """Yuen's formulas, from five values without their ends and three whole ones."""
    ours, theirs = [1.0, 2.0, 3.0, 4.0, 50.0], [9.0, 10.0, 14.0]
    difference, (low, high), p = statistics.iqm_difference(ours, theirs)
    assert difference == 3.0 - 11.0
    # Winsorised: 2 2 3 4 4, with a sum of squares of 4; h = 3 of them are kept.
    a, b = 4.0 / (3 * 2), 14.0 / (3 * 2)
    freedom = (a + b) ** 2 / (a**2 / 2 + b**2 / 2)
    error = math.sqrt(a + b)
    assert p == pytest.approx(2 * stats.t.sf(8.0 / error, freedom))
    half = stats.t.ppf(0.975, freedom) * error
    assert (low, high) == pytest.approx((-8.0 - half, -8.0 + half))


def test_holm_by_hand():
    """Smallest first: 4 × 0.01, 3 × 0.02, 2 × 0.02 (not below its predecessor), 1 × 0.9."""
    assert statistics.holm([0.9, 0.02, 0.01, 0.02]) == pytest.approx([0.9, 0.06, 0.04, 0.06])
    assert statistics.holm([0.6, 0.7]) == [1.0, 1.0]
    assert statistics.holm([]) == []
