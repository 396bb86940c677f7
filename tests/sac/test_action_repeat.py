"""An action lasts `action_repeat` env steps: in collection, evaluation, and saved policies."""

import json

import gym
import numpy as np
import pytest
import tensorflow as tf

import labkit
from labkit.cli import watch
from labkit.environments.make import make_environment
from labkit.errors import ParameterError
from labkit.sac import agent as agents
from labkit.sac.collector import Collector
from labkit.sac.evaluation import evaluate
from labkit.sac.policies import ActorPolicy, RepeatedPolicy, action_repeat, random_policy
from labkit.training import saved_weights
from labkit.training.config_file import read_config

LENGTH = 7  # env steps of an episode


class Recorder(gym.Env):
    """Episodes of seven env steps; the observation counts them, `taken` lists the actions."""

    observation_space = gym.spaces.Box(0, 100, (1,), np.float32)
    action_space = gym.spaces.Box(-100, 100, (1,), np.float32)

    def __init__(self):
        self.taken: list[list[float]] = []

    def reset(self):
        self.taken.append([])
        return np.zeros(1, np.float32)

    def step(self, action):
        self.taken[-1].append(float(action[0]))
        count = len(self.taken[-1])
        return np.full(1, count, np.float32), 1.0, count == LENGTH, {}


@pytest.fixture
def recorder():
    raw = Recorder()
    return raw, make_environment(lambda: raw)


@pytest.mark.parametrize(
    ("repeat", "actions"),
    [(1, [0, 1, 2, 3, 4, 5, 6]), (2, [0, 0, 2, 2, 4, 4, 6]), (3, [0, 0, 0, 3, 3, 3, 6])],
)
def test_each_episode_begins_with_a_new_action(recorder, repeat, actions):
    raw, env = recorder
    result = evaluate(env, RepeatedPolicy(lambda observation: observation, repeat), 2, seed=0)
    assert raw.taken[-2:] == [actions, actions]
    assert result.lengths == (LENGTH, LENGTH), "env steps, not actions"
    assert result.returns == (LENGTH, LENGTH)


@pytest.mark.parametrize("repeat", [0, -1, 1.5, None])
def test_a_policy_with_another_action_repeat_is_rejected(recorder, repeat):
    policy = type("Odd", (), {"action_repeat": repeat, "__call__": lambda self, o: o})()
    with pytest.raises(ParameterError, match=r"`policy\.action_repeat` must be a whole number"):
        evaluate(recorder[1], policy, 1, seed=0)


@pytest.mark.parametrize(
    ("n_step", "rewards", "following"),
    [(1, [3, 3, 1], [3, 6, 7]), (2, [6, 4, 1], [6, 7, 7])],
)
def test_a_collector_stores_a_transition_for_each_action(recorder, n_step, rewards, following):
    raw, env = recorder
    rows = []
    policy = RepeatedPolicy(lambda observation: observation, 3)
    collector = Collector(env, policy, rows.append, n_step=n_step)
    collector.run(2 * LENGTH)
    assert raw.taken[-2:] == 2 * [[0, 0, 0, 3, 3, 3, 6]]
    assert [float(row.observation[0]) for row in rows] == 2 * [0, 3, 6]
    assert [float(row.action[0]) for row in rows] == 2 * [0, 3, 6]
    assert [float(row.reward) for row in rows] == 2 * rewards
    assert [float(row.next_observation[0]) for row in rows] == 2 * following
    assert collector.env_steps == 2 * LENGTH


def test_gamma_discounts_each_env_step(recorder):
    _, env = recorder
    rows = []
    policy = RepeatedPolicy(lambda observation: observation, 2)
    Collector(env, policy, rows.append, n_step=2, gamma=0.5).run(LENGTH)
    assert float(rows[0].reward) == 1 + 0.5 + 0.25 + 0.125
    assert float(rows[0].discount) == 0.5**3, "the loss multiplies it by one more gamma"


def test_a_new_policy_waits_for_the_end_of_an_action(recorder):
    raw, env = recorder
    collector = Collector(env, RepeatedPolicy(lambda observation: observation, 2), lambda row: None)
    collector.run(3)
    collector.policy = RepeatedPolicy(lambda observation: observation + 50, 2)
    collector.run(4)
    assert raw.taken[-1] == [0, 0, 2, 2, 54, 54, 56]


def test_random_actions_last_as_long(recorder):
    raw, env = recorder
    Collector(env, random_policy(env.action_spec(), 0, repeat=2), lambda row: None).run(LENGTH)
    taken = raw.taken[-1]
    assert taken[0:6:2] == taken[1:6:2]
    assert len(set(taken)) == 4


@pytest.mark.parametrize("repeat", [1, 3])
def test_the_configuration_reaches_the_policy_of_an_agent(small_config, repeat):
    env = make_environment("Pendulum-v1", seed=0)
    config = small_config(env_name="Pendulum-v1", action_repeat=repeat)
    agent = agents.create_agent(config, env, tf.distribute.get_strategy())
    for seed in (None, 0):
        assert action_repeat(ActorPolicy(agent, seed)) == repeat


def test_a_saved_policy_repeats_its_actions(small_config, tmp_path):
    config = small_config(action_repeat=2, num_iterations=2, eval_interval=0)
    run = labkit.train(config, labkit.open_run(tmp_path / "run", config))
    _, policy = watch.load(run.path)
    assert action_repeat(policy) == 2
    weights = saved_weights.load_policy(run.path)
    assert action_repeat(weights) == action_repeat(weights.at(1.0, seed=0)) == 2


def test_a_run_of_an_earlier_version_does_not_repeat(small_config, tmp_path):
    folder = labkit.open_run(tmp_path / "run", small_config(action_repeat=2)).path
    content = json.loads((folder / "config.json").read_text())
    del content["config"]["action_repeat"]
    (folder / "config.json").write_text(json.dumps(content))
    assert read_config(folder).action_repeat == 1
