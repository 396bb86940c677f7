"""The score in words, and critics next to returns that are known."""

import math

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from labkit.environments.make import make_environment
from labkit.sac import agent as agents
from labkit.sac.rollout import RepeatedPolicy
from labkit.teaching import sac_results


def test_the_summary_is_that_of_the_last_evaluation():
    rows = {
        "gradient_step": [10, 1000],
        "env_step": [20, 11000],
        "eval_return": [1.0, 12.0],
        "eval_returns": [(1.0,), (10.0, 14.0)],
        "eval_lengths": [(5.0,), (900.0, 1000.0)],
        "eval_distances": [(0.1,), (12.0, 15.0)],
    }
    table = pd.DataFrame(rows)
    assert sac_results.summary(table, seed=3) == (
        "12.0 ± 2.8 over 2 episodes, worst 10.0, best 14.0, 13.5 m forward in 950 steps, "
        "after 1 000 gradient steps (11 000 env steps), seed 3"
    )
    without = table.assign(eval_distances=[math.nan, math.nan])
    assert "forward" not in sac_results.summary(without, seed=3)
    assert sac_results.summary(table.head(0), seed=3).startswith("no score")


def test_the_worst_and_the_best_episode_are_named_by_their_place():
    assert sac_results.worst_and_best([5, 1, 9, 4]) == {"worst": 1, "best": 2}
    assert sac_results.worst_and_best([2]) == {"best": 0}


def test_returns_are_discounted_and_complete(small_config):
    """Pendulum's episodes have 200 steps; γ = 0.9 leaves 5 % of a reward after 28."""
    config = small_config(env_name="Pendulum-v1", gamma=0.9, reward_scale_factor=2.0)
    env = make_environment("Pendulum-v1", seed=0)
    agent = agents.create_agent(config, env, tf.distribute.get_strategy())
    table = sac_results.estimates(agent, env, lambda o: np.zeros(1, np.float32), config, 2, seed=1)
    assert table.groupby("episode").size().tolist() == [172, 172]
    env.seed(1)
    first = env.reset()
    rewards = [float(env.step(np.zeros(1, np.float32)).reward) for _ in range(200)]
    expected = sum(2 * 0.9**k * reward for k, reward in enumerate(rewards))
    assert table.returned[0] == pytest.approx(expected, rel=1e-5)
    critics = (agent._critic_network_1, agent._critic_network_2)
    inputs = (first.observation[None], np.zeros((1, 1), np.float32))
    lower = min(float(q(inputs, step_type=())[0][0]) for q in critics)
    assert table.estimated[0] == pytest.approx(lower, abs=1e-5)
    repeated = RepeatedPolicy(lambda o: np.zeros(1, np.float32), 2)
    half = sac_results.estimates(agent, env, repeated, config, 2, seed=1)
    assert half.step.tolist() == [*range(0, 172, 2)] * 2, "a row for each action"
    assert half.returned[0] == pytest.approx(expected, rel=1e-5)
