"""An environment whose optimal policy and values are known, for tests of both executors."""

import gym
import numpy as np
import pytest

from labkit.sac.rollout import load_actor

BEST_ACTION = 0.5
GAMMA = 0.9
# Q(s, a*) with discount γ: every later step pays 1, without end.
VALUE_AT_START = GAMMA / (1 - GAMMA)
VALUE_AFTER = 1 / (1 - GAMMA)
BEST_RETURN = 4.0


class OneGoodAction(gym.Env):
    """Step 1 costs (action − 0.5)² × 4, each later step pays 1, whatever the action.

    The observation is [1, 0] at the start and [0, 1] afterwards. A time limit of 5 steps truncates
    the episode; nothing terminates it. So the values are those of an endless episode: an agent that
    took the truncation for a termination would find much less.
    """

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self):
        self.started = False

    def reset(self):
        self.started = False
        return np.array([1, 0], np.float32)

    def step(self, action):
        reward = 1.0 if self.started else -4 * float((action[0] - BEST_ACTION) ** 2)
        self.started = True
        return np.array([0, 1], np.float32), reward, False, {}


def make():
    """The environment with its time limit, as gym's registry would wrap it."""
    return gym.wrappers.TimeLimit(OneGoodAction(), 5)


SETTINGS = {
    "env_name": "OneGoodAction",
    "num_iterations": 1_500,
    "initial_collect_steps": 500,
    "replay_buffer_capacity": 5_000,
    "batch_size": 64,
    "n_step": 2,
    "gamma": GAMMA,
    "initial_log_alpha": -7.0,
    "target_update_tau": 0.05,
    "critic_learning_rate": 3e-3,
    "actor_learning_rate": 3e-3,
    "alpha_learning_rate": 1e-5,
    "actor_fc_layer_params": (32, 32),
    "critic_joint_fc_layer_params": (32, 32),
    "log_interval": 500,
    "eval_interval": 0,
    "num_eval_episodes": 3,
    "policy_save_interval": 0,
}


def values(run):
    """What both critics of a run say of the best action at the start and of any action later."""
    from labkit.environments.make import make_environment
    from labkit.sac.agent import create_agent
    from labkit.strategy import make_strategy
    from labkit.training import checkpoint

    env = make_environment(make, seed=0)
    agent = create_agent(run.config, env, make_strategy("cpu", run.config.batch_size))
    saved = checkpoint.latest(run.path / "checkpoints")
    checkpoint.assign(list(agent.variables), saved, partly=True)
    observations = np.array([[1, 0], [0, 1]], np.float32)
    actions = np.array([[BEST_ACTION], [0.0]], np.float32)
    critics = (agent._critic_network_1, agent._critic_network_2)
    return np.array([critic((observations, actions))[0].numpy() for critic in critics])


def check(run):
    """Asserts that a run found the best action and the values, and saved what was scored."""
    best = run.metrics().eval_return.iloc[-1]
    assert BEST_RETURN - 0.05 < best <= BEST_RETURN + 1e-6, best
    policy = load_actor(run.path / "policy", run.config.observation_scale)
    (action,) = policy(np.array([1, 0], np.float32))
    assert pytest.approx(best, abs=1e-3) == BEST_RETURN - 4 * (action - BEST_ACTION) ** 2
    expected = [[VALUE_AT_START, VALUE_AFTER]] * 2
    np.testing.assert_allclose(values(run), expected, rtol=0.05)
