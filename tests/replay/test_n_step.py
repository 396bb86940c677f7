"""Transitions over several env steps, against sums by hand and against single steps."""

import itertools

import numpy as np
import pytest

from labkit.environments.make import make_environment
from labkit.replay.transitions import NStepWriter, Transition
from labkit.sac.rollout import Collector, random_policy


def written(steps, gamma, rewards, last_discount):
    """The transitions of an episode with observations 0, 1, 2, … and actions 10, 11, …"""
    rows = []
    writer = NStepWriter(lambda row: rows.append([float(x) for x in row]), steps, gamma)
    for t, reward in enumerate(rewards):
        ends = t == len(rewards) - 1
        writer.write(Transition(t, 10 + t, reward, last_discount if ends else 1.0, t + 1))
    writer.end()
    return rows


def test_three_steps_by_hand_with_a_termination():
    """1 + 2/2 + 4/4 = 3, then 2 + 4/2 + 8/4 = 6, and shorter windows at the end."""
    assert written(3, 0.5, [1, 2, 4, 8], last_discount=0.0) == [
        [0, 10, 3, 0.25, 3],
        [1, 11, 6, 0, 4],
        [2, 12, 8, 0, 4],
        [3, 13, 8, 0, 4],
    ]


def test_after_a_truncation_the_discounts_stay_above_zero():
    discounts = [row[3] for row in written(3, 0.5, [1, 2, 4, 8], last_discount=1.0)]
    assert discounts == [0.25, 0.25, 0.5, 1.0]


@pytest.mark.parametrize("gamma", [0.0, 0.9])
def test_one_step_is_the_step_itself(gamma):
    assert written(1, gamma, [1, 2], last_discount=0.0) == [[0, 10, 1, 1, 1], [1, 11, 2, 0, 2]]


def collected(steps, n_step, limit=None):
    """Rows of an environment whose rewards are 1, and that terminates about every ten steps."""
    env = make_environment("InvertedPendulumBulletEnv-v0", 0, limit)
    rows, policy = [], random_policy(env.action_spec(), 0)
    collector = Collector(env, policy, rows.append, n_step=n_step, gamma=0.99)
    collector.run(steps)
    collector.end()
    return rows


def test_no_row_of_a_collector_spans_two_truncated_episodes():
    rewards = [float(row[2]) for row in collected(16, n_step=3, limit=4)]
    assert rewards == pytest.approx([2.9701, 2.9701, 1.99, 1.0] * 4)


def test_a_collector_writes_a_row_for_each_step():
    rows = collected(60, n_step=4)
    assert len(rows) == 60
    terminations = [i for i, row in enumerate(rows) if row[3] == 0]
    assert len(terminations) >= 8
    assert len(terminations) % 4 == 0
    # Each reward is 1: a full window sums 1 + 0.99 + 0.99² + 0.99³.
    assert max(float(row[2]) for row in rows) == pytest.approx(3.940399)
    for before, after in itertools.pairwise(rows):
        if before[3] != 0:  # the next row starts one step later, in the same episode
            assert not np.array_equal(before[0], after[0])
