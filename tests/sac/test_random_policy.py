"""Random actions of the warm-up."""

import numpy as np
import pytest
from scipy import stats
from tf_agents.specs.array_spec import BoundedArraySpec
from tf_agents.trajectories import time_step

from labkit.sac.policies import random_policy
from labkit.sac.py_policy import FunctionPyPolicy

SPEC = BoundedArraySpec((2,), np.float32, minimum=[-1.0, 0.0], maximum=[1.0, 4.0])
OBSERVATION = np.zeros(3, np.float32)


def drawn(correlation, count=20_000, seed=0):
    policy = random_policy(SPEC, seed, correlation)
    return np.stack([policy(OBSERVATION) for _ in range(count)])


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_actions_are_uniform_between_the_bounds_and_correlated_in_time(correlation):
    actions = drawn(correlation)
    assert actions.dtype == np.float32
    shares = (actions - [-1.0, 0.0]) / [2.0, 4.0]
    far_apart = shares[::100]  # 0.9 ** 100 is nothing
    for dimension in range(2):
        assert stats.kstest(far_apart[:, dimension], "uniform").pvalue > 1e-3
        normal = stats.norm.ppf(np.clip(shares[:, dimension], 1e-6, 1 - 1e-6))
        measured = np.corrcoef(normal[:-1], normal[1:])[0, 1]
        assert measured == pytest.approx(correlation, abs=0.03)
    assert abs(np.corrcoef(shares.T)[0, 1]) < 0.1, "dimensions are independent"


def test_a_seed_repeats_its_actions():
    np.testing.assert_array_equal(drawn(0.9, 50), drawn(0.9, 50))
    assert not np.array_equal(drawn(0.9, 50), drawn(0.9, 50, seed=1))


def test_tf_agents_takes_the_same_actions():
    spec = BoundedArraySpec((3,), np.float32, -1, 1)
    one, other = random_policy(SPEC, 3, 0.9), random_policy(SPEC, 3, 0.9)
    wrapped = FunctionPyPolicy(time_step.time_step_spec(spec), SPEC, one)
    step = time_step.restart(OBSERVATION)
    for _ in range(3):
        taken = wrapped.action(step)
        np.testing.assert_array_equal(taken.action, other(OBSERVATION))
        assert (taken.state, taken.info) == ((), ())
