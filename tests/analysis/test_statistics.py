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
        (range(8), 3.5),
        ([0, 0, 1, 2, 3, 4, 99, 99], 2.5),
    ],
)
def test_interquartile_mean_by_hand(values, expected):
    assert statistics.interquartile_mean(list(values)) == expected


def test_no_interval_from_fewer_than_five_seeds():
    assert statistics.bootstrap_interval([1.0, 2.0, 3.0, 4.0]) is None
    assert statistics.bootstrap_interval([5.0] * 5) == (5.0, 5.0)


def test_bootstrap_interval_agrees_with_all_possible_resamples():
    """Five seeds have only 5⁵ = 3125 resamples, so the exact quantiles are known."""
    values = np.array([8.2, 3.1, 9.9, 10.4, 6.0])
    everything = values[np.indices((5,) * 5).reshape(5, -1)]
    means = np.sort(everything, axis=0)[1:4].mean(0)
    low, high = statistics.bootstrap_interval(values)
    assert low == pytest.approx(np.quantile(means, 0.025), abs=0.15)
    assert high == pytest.approx(np.quantile(means, 0.975), abs=0.15)
    assert statistics.bootstrap_interval(values) == (low, high)


def test_bootstrap_interval_has_its_nominal_coverage():
    generator = np.random.default_rng(1)
    hits = 0
    for _ in range(40):
        low, high = statistics.bootstrap_interval(generator.normal(3.0, 2.0, 30))
        hits += low <= 3.0 <= high
    assert hits >= 33  # 38 of 40 are expected


def test_five_seeds_cover_less_than_the_nominal_confidence():
    """The simulation agrees with intervals from `bootstrap_interval` itself."""
    generator = np.random.default_rng(5)
    intervals = [statistics.bootstrap_interval(generator.normal(size=5)) for _ in range(300)]
    inside = np.mean([low <= 0 <= high for low, high in intervals])
    found = statistics.interval_coverage(5)
    assert found == pytest.approx(inside, abs=0.05)  # three standard errors of 300 studies
    assert 0.87 < found < 0.92
    assert 0.93 < statistics.interval_coverage(30) < 0.96
    assert (
        statistics.interval_label(5) == f"nominal 95 % interval, covers about {100 * found:.0f} %"
    )


def test_welch_by_hand_with_unequal_variances_and_numbers():
    """Means 2 and 25, variances 1 and 350: t = 23 / √(1/3 + 350/6), 5.06 degrees of freedom."""
    p = statistics.welch([1, 2, 3], [0, 10, 20, 30, 40, 50])
    t = 23 / np.sqrt(1 / 3 + 350 / 6)
    freedom = (1 / 3 + 350 / 6) ** 2 / ((1 / 3) ** 2 / 2 + (350 / 6) ** 2 / 5)
    assert freedom == pytest.approx(5.06, abs=0.01)
    assert p == pytest.approx(2 * stats.t.sf(t, freedom))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("test", [statistics.welch, lambda *a: statistics.iqm_difference(*a)[2]])
def test_equal_values_with_a_rounded_mean_do_not_differ(test):
    """The mean of three times 0.1 is not 0.1, and their standard deviation is not 0."""
    assert test([0.1] * 3, [0.1] * 3) == 1
    assert test([0.1] * 3, [0.1] * 4) == 1
    assert test([0.1] * 3, [0.2] * 3) == 0


def test_probability_of_improvement_agrees_with_mann_whitney():
    ours, theirs = [1.0, 4.0, 6.0], [2.0, 4.0]
    assert statistics.probability_of_improvement(ours, theirs) == pytest.approx(3.5 / 6)
    statistic = stats.mannwhitneyu(ours, theirs).statistic
    assert statistics.probability_of_improvement(ours, theirs) == pytest.approx(statistic / 6)


@pytest.mark.parametrize(
    ("effect", "seeds"),
    # Cohen, "Statistical Power Analysis" (1988), table 2.4.1, two-sided 0.05, power 0.80.
    [(0.2, 393), (0.5, 64), (0.8, 26), (1.0, 17), (1.2, 12), (1.4, 9)],
)
def test_power_agrees_with_cohens_table(effect, seeds):
    """That of Student's test; with nine seeds or more, Welch's test has nearly the same."""
    assert statistics.power(3 * effect, (3.0, 3.0), seeds, 0.05) == pytest.approx(0.8, abs=0.02)


def test_with_three_seeds_welchs_test_detects_less_than_students():
    """The power of Student's test has a formula: a noncentral t with 4 degrees of freedom."""
    critical, shift = stats.t.ppf(0.975, 4), math.sqrt(3 / 2)
    student = stats.nct.sf(critical, 4, shift) + stats.nct.cdf(-critical, 4, shift)
    assert student == pytest.approx(0.159, abs=0.001)
    assert 0.10 < statistics.power(2.0, (2.0, 2.0), 3, 0.05) < student - 0.03


@pytest.mark.parametrize("seeds", [3, 5])
def test_power_agrees_with_simulated_studies(seeds):
    generator = np.random.default_rng(7)
    pairs = [
        (generator.normal(0.0, 1.0, seeds), generator.normal(2.0, 2.0, seeds)) for _ in range(2000)
    ]
    found = np.mean([statistics.welch(a, b) < 0.05 for a, b in pairs])
    assert statistics.power(2.0, (1.0, 2.0), seeds, 0.05) == pytest.approx(found, abs=0.03)


def test_the_power_without_a_difference_is_nearly_the_level():
    assert statistics.power(0.0, (1.0, 1.0), 20, 0.05) == pytest.approx(0.05, abs=0.005)
    same = statistics.power(1.0, (1.0, 2.0), 5, 0.05)
    assert statistics.power(1.0, (1.0, 2.0), (5, 5), 0.05) == same
    assert statistics.power(1.0, (1.0, 2.0), (5, 9), 0.05) > same + 0.05


def test_holm_by_hand():
    """Smallest first: 4 × 0.01, 3 × 0.02, 2 × 0.02 (not below its predecessor), 1 × 0.9."""
    assert statistics.holm([0.9, 0.02, 0.01, 0.02]) == pytest.approx([0.9, 0.06, 0.04, 0.06])
    assert statistics.holm([0.6, 0.7]) == [1.0, 1.0]
    assert statistics.holm([]) == []


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


@pytest.mark.parametrize(("theirs", "p"), [([3.0, 3.0], 0.0), ([5.0, 5.0], 1.0)])
def test_scores_without_any_spread_have_a_p_value(theirs, p):
    difference, interval, value = statistics.iqm_difference([5.0, 5.0, 5.0], theirs)
    assert (difference, interval, value) == (5.0 - theirs[0], (5.0 - theirs[0],) * 2, p)


def test_the_interval_of_the_difference_covers_what_its_docstring_says():
    generator, hits = np.random.default_rng(3), 0
    for _ in range(400):
        ours, theirs = generator.normal(size=3), generator.normal(size=5)
        low, high = statistics.iqm_difference(ours, theirs)[1]
        hits += low <= 0 <= high
    assert 0.92 < hits / 400 < 0.99


def test_the_difference_of_means_by_hand():
    difference, (low, high), p = statistics.mean_difference([1, 2, 3], [4, 5, 9])
    assert difference == -4.0
    # Standard error sqrt(1 / 3 + 7 / 3) with 8 / 3 squared over (1 / 9 + 49 / 9) / 2 = 2.56 df.
    error, freedom = np.sqrt(8 / 3), (8 / 3) ** 2 / ((1 / 9 + 49 / 9) / 2)
    half = stats.t.ppf(0.975, freedom) * error
    assert (low, high) == pytest.approx((-4 - half, -4 + half))
    assert p == statistics.welch([1, 2, 3], [4, 5, 9])
    assert statistics.mean_difference([2, 2], [5, 5])[:2] == (-3.0, (-3.0, -3.0))


def test_one_test_with_many_seeds_errs_at_its_level():
    assert statistics.family_error(((30, 30),)) == pytest.approx(0.05, abs=0.005)


def test_few_seeds_with_larger_spread_err_more_often():
    counts = ((3, 7),) * 10
    alike, wider = statistics.family_error(counts), statistics.family_error(counts, 2.0)
    assert alike == pytest.approx(simulated_family_error(counts, 1.0), abs=0.02)
    assert wider > 0.1 > alike


def simulated_family_error(counts, spread):
    """A plain simulation of Holm's correction, with a shared baseline."""
    generator, found = np.random.default_rng(7), 0
    for _ in range(500):
        base = generator.normal(size=counts[0][1])
        p = [statistics.welch(generator.normal(0, spread, n), base) for n, _ in counts]
        found += min(statistics.holm(p)) < 0.05
    return found / 500
