"""The comparison of losses by hand, on losses small enough to differentiate in the head."""

import time

import numpy as np
import pytest
import tensorflow as tf

from labkit.environments.make import make_environment
from labkit.errors import StalledError
from labkit.teaching import replica_checks, sac_checks
from labkit.teaching.sac_checks import LossMismatch


@pytest.fixture
def weights():
    return tf.Variable([1.0, 2.0])


def square(weights):
    return tf.reduce_sum(weights**2)


def test_equal_losses_show_their_value_and_gradient(weights):
    found = sac_checks.compare(lambda: square(weights), lambda: square(weights), {"w": [weights]})
    assert found.loc["w"].tolist() == pytest.approx([5, 5, 20**0.5, 0])


@pytest.mark.parametrize(
    ("by_hand", "message"),
    [
        (lambda w: 1.01 * square(w), "the loss is 5.05, TF-Agents has 5; the gradient of w"),
        (lambda w: square(tf.stop_gradient(w)), "^the gradient of w differs by a relative 1.0e"),
        (lambda w: square(w) * np.nan, "the loss is nan"),
    ],
)
def test_a_wrong_value_or_gradient_is_named(weights, by_hand, message):
    with pytest.raises(LossMismatch, match=message):
        sac_checks.compare(lambda: by_hand(weights), lambda: square(weights), {"w": [weights]})


def test_a_gradient_may_differ_by_one_unit_of_one_row_but_not_by_one_row():
    """One layer of 256 units, 256 rows. A ReLU unit whose input is 0 has the value 0, on or off."""
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(256, 36))
    inner, outer = generator.normal(size=(36, 256)) / 6, generator.normal(size=256) / 16
    before = rows @ inner  # [rows, units]
    before[3, 5] = 0.0
    errors = 1 + generator.uniform(size=256)  # of one sign, as before training

    def gradient(on, count=256):
        by_output = errors[:count] / 256
        by_inner = rows[:count].T @ (on[:count] * np.outer(by_output, outer))
        by_outer = by_output @ np.maximum(before[:count], 0)
        return np.concatenate([by_inner.ravel(), by_outer, [by_output.sum()]])

    off, on = before > 0, before >= 0
    unit = sac_checks.relative_difference(gradient(on), gradient(off))
    row = sac_checks.relative_difference(gradient(on, count=255), gradient(on))
    assert 1e-5 < unit < sac_checks.GRADIENT_TOLERANCE < row / 3


def test_arrays_must_be_equal_to_five_digits():
    expected = np.array([3.0, 4.0])
    assert sac_checks.check_equal("x", expected * (1 + 1e-6), expected) == pytest.approx(1e-6)
    with pytest.raises(LossMismatch, match="x differs from the expected one by a relative"):
        sac_checks.check_equal("x", expected * 1.0001, expected)


def test_random_rows_are_transitions_of_the_environment(small_config):
    config = small_config(env_name="Pendulum-v1", batch_size=40, n_step=3, gamma=0.9)
    rows = sac_checks.random_rows(make_environment("Pendulum-v1", seed=0), config)
    assert rows.shape == (40, 9)
    np.testing.assert_allclose(rows[:, 0] ** 2 + rows[:, 1] ** 2, 1, atol=1e-5)
    np.testing.assert_allclose(rows[:, 5], 0.81)  # γ²: a row spans three env steps
    np.testing.assert_allclose(rows[3:, :3], rows[:-3, 6:])


def test_a_call_that_waits_too_long_ends():
    assert replica_checks.within(5)(lambda x: x + 1)(1) == 2
    with pytest.raises(StalledError, match=r"sleep did not end within 0\.05 seconds"):
        replica_checks.within(0.05)(time_sleep())(5)
    with pytest.raises(ZeroDivisionError):
        replica_checks.within(5)(lambda: 1 / 0)()


def time_sleep():
    def sleep(seconds):
        time.sleep(seconds)

    return sleep
