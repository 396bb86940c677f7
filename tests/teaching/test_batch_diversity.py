"""Correlation and coverage, on data whose answers are known."""

import numpy as np
import pytest

from labkit.teaching import batch_diversity


def test_autocorrelation_of_a_wave_and_of_noise():
    wave = np.sin(np.arange(10_000) * 2 * np.pi / 20)
    found = batch_diversity.autocorrelation(wave, [5, 10, 20])
    assert found == pytest.approx([0, -1, 1], abs=0.01)
    noise = np.random.default_rng(0).normal(size=10_000)
    assert np.abs(batch_diversity.autocorrelation(noise, range(1, 10))).max() < 0.05


def test_a_batch_of_equal_values_is_worth_one_row():
    noise = np.random.default_rng(0).normal(size=64_000)
    assert batch_diversity.effective_sample_size(noise, 32) == pytest.approx(32, rel=0.1)
    repeated = np.repeat(noise[:2_000], 32)
    assert batch_diversity.effective_sample_size(repeated, 32) == pytest.approx(1)


def test_a_grid_counts_cells_and_puts_outliers_into_the_outermost():
    side = np.linspace(0, 1, 101)
    points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    grid = batch_diversity.Grid(points, cells=10)
    assert grid.covered(points) == 100
    assert grid.covered(np.array([[0.55, 0.55], [0.56, 0.56], [9, 9], [-9, -9]])) == 3
    assert grid.cells(np.array([[-9.0, -9.0], [9.0, 9.0]])).tolist() == [0, 99]


def test_a_larger_buffer_covers_more_of_a_slow_walk():
    walk = np.cumsum(np.random.default_rng(0).normal(size=(5_000, 2)), axis=0)
    rng = np.random.default_rng(1)
    found = batch_diversity.coverage(walk, [32, 1_000, 5_000], 32, rng)
    assert found[0] < found[1] < found[2] <= 32
