"""Small configurations and data that many tests share."""

import labkit  # noqa: F401, I001  (first: it sets what TensorFlow reads when it loads)
import gym
import numpy as np

SMALL: dict = {"initial_collect_steps": 300, "num_iterations": 20, "replay_buffer_capacity": 2_000}
SMALL |= {"batch_size": 32, "log_interval": 5, "eval_interval": 10, "policy_save_interval": 0}
SMALL |= {"actor_fc_layer_params": (32, 32), "critic_joint_fc_layer_params": (32, 32)}
SMALL |= {"interim_eval_episodes": 1, "num_eval_episodes": 2}

# Every field with a value that is not its default.
OFF_DEFAULT = {
    "env_name": "Pendulum-v1",  # 3 observations, 1 action, a time limit of 200 steps
    "num_iterations": 48,
    "seed": 7,
    "strategy": "mirrored:2",
    "initial_collect_steps": 230,
    "collect_steps_per_iteration": 2,
    "n_step": 3,
    "bootstrap_time_limits": False,
    "replay": "tf_uniform",
    "replay_buffer_capacity": 150,
    "recent_transitions": 40,
    "symmetry_augmentation": True,
    "batch_size": 16,
    "steps_per_call": 4,
    "critic_learning_rate": 1e-3,
    "actor_learning_rate": 2e-3,
    "alpha_learning_rate": 4e-3,
    "learning_rate_decay_steps": 50,
    "actor_update_period": 2,
    "target_update_tau": 0.02,
    "target_update_period": 3,
    "gamma": 0.9,
    "reward_scale_factor": 0.5,
    "initial_log_alpha": -2.0,
    "target_entropy": -1.5,
    "observation_scale": (1.0, 2.0, 4.0),
    "actor_fc_layer_params": (24, 12),
    "critic_joint_fc_layer_params": (20, 10),
    "critic_layer_norm": True,
    "log_interval": 6,
    "eval_interval": 16,
    "interim_eval_episodes": 2,
    "num_eval_episodes": 3,
    "policy_save_interval": 12,
    "checkpoint_interval": 20,
    "checkpoint_seconds": 1,
    "environment_timeout": 77,
}


def minitaur_rows(count: int, seed: int = 0) -> np.ndarray:
    """`count` packed Minitaur transitions `[count, 66] float32`, plausible values."""
    rows = np.random.default_rng(seed).normal(size=(count, 66)).astype(np.float32)
    rows[:, 28:36] = np.tanh(rows[:, 28:36])
    rows[:, 36] *= 0.01
    rows[:, 37] = rows[:, 37] > -2
    return rows


class Walk(gym.Env):
    """One number in, one number out, in episodes of 20 steps."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    steps = 0

    def reset(self):
        return np.zeros(1, np.float32)

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), float(action[0]), self.steps % 20 == 0, {}
