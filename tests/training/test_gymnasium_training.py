"""Training with a Gymnasium environment: resume, several devices, the watchdog."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pandas as pd
import pytest
from labkit.environments.watchdog import read_kill_note

import labkit
from labkit.training import checkpoint
from labkit.training.components import RESUME_SEED
from labkit.training.run import read_metrics

SMALL = {
    "env_name": "gymnasium:Pendulum-v1",
    "num_iterations": 10,
    "initial_collect_steps": 40,
    "batch_size": 16,
    "steps_per_call": 5,
    "actor_fc_layer_params": (16, 16),
    "critic_joint_fc_layer_params": (16, 16),
    "log_interval": 5,
    "eval_interval": 10,
    "num_eval_episodes": 1,
    "policy_save_interval": 0,
    "replay": "tf_uniform",
}


def trained(path, make_env=None, **changes):
    config = labkit.SACConfig(**{**SMALL, **changes})
    run = labkit.open_run(path, config)
    return labkit.train(config, run, make_env=make_env, max_episode_steps=20).metrics()


class Slides(gymnasium.Env):
    """Notes the seeds of its resets and observes its steps; the reward is 1."""

    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    seeds: list = []  # noqa: RUF012  (of all instances)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        Slides.seeds.append(seed)
        self.seen = np.array([self.np_random.random(), 0.0])
        return self.seen, {}

    def step(self, action):
        self.seen[1] += 1
        return self.seen, 1.0, False, False, {}


def test_it_trains_and_resumes(tmp_path):
    first = trained(tmp_path)
    record = json.loads((tmp_path / "environment.json").read_text())
    assert record["name"] == "gymnasium:Pendulum-v1"
    table = trained(tmp_path, num_iterations=20)
    logged = table[table.critic_loss.notna()]
    assert logged.gradient_step.tolist() == [5, 10, 15, 20]
    assert logged.env_step.tolist() == [45, 50, 55, 60]
    pd.testing.assert_frame_equal(table.head(len(first)), first)
    assert table.eval_return.iloc[-1] < 0
    assert np.isnan(table.eval_distances.iloc[-1]).all()


def test_a_run_resumes_with_a_seed_that_it_has_not_used(tmp_path):
    Slides.seeds.clear()
    trained(tmp_path, Slides, env_name="Slides")
    used = set(Slides.seeds)
    assert {0, 1_000_003} <= used, "neither the collecting nor the evaluated one had its seed"
    Slides.seeds.clear()
    trained(tmp_path, Slides, env_name="Slides", num_iterations=20)
    words = np.random.SeedSequence([0, 10, RESUME_SEED]).generate_state(1)  # seed, gradient step
    assert int(words[0]) % 2**31 in set(Slides.seeds) - used


def test_a_run_is_not_resumed_with_gym_s_environment_of_that_id(tmp_path):
    trained(tmp_path, env_name="Mine", make_env=lambda: gymnasium.make("Pendulum-v1"))
    import gym

    with pytest.raises(labkit.ParameterError, match="name: gymnasium:Pendulum-v1 there and Pendul"):
        trained(tmp_path, env_name="Mine", make_env=lambda: gym.make("Pendulum-v1"))


PROGRAM = """
import sys, time
sys.path.insert(0, sys.argv[2])
import test_gymnasium_training as tests
path, kind, value = sys.argv[1], *sys.argv[3:]
if kind == "strategy":
    tests.trained(path, strategy=value)
else:
    class Slides(tests.Slides):
        def step(self, action):
            if value and self.seen[1] == 15:  # in the warm-up, long after the trial
                time.sleep(60)
            return super().step(action)
    tests.trained(path, Slides, env_name="Slides", environment_timeout=5)
"""


def run_program(path, *arguments):
    folders = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", PROGRAM, str(path), str(Path(__file__).parent), *arguments]
    environment = {**os.environ, "PYTHONPATH": folders}
    return subprocess.run(command, capture_output=True, text=True, timeout=250, env=environment)


def test_it_trains_on_two_replicas(tmp_path):
    done = run_program(tmp_path, "strategy", "mirrored:2")
    assert done.returncode == 0, done.stderr[-2000:]
    table = read_metrics(tmp_path)
    assert np.isfinite(table.critic_loss.dropna()).all()
    assert table.gradient_step.max() == 10
    assert checkpoint.latest(tmp_path / "checkpoints").name == "000000010"


def test_the_watchdog_ends_a_step_that_hangs_and_the_run_starts_again(tmp_path):
    ended = run_program(tmp_path, "hang", "yes")
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    assert "the environment did not return from a step" in ended.stderr
    assert "within 5 s" in read_kill_note(tmp_path)
    again = run_program(tmp_path, "hang", "")
    assert again.returncode == 0, again.stderr[-2000:]
    assert read_metrics(tmp_path).gradient_step.max() == 10


def test_a_rejected_environment_leaves_no_run_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = labkit.SACConfig(**{**SMALL, "env_name": "gymnasium:CartPole-v1"})
    with pytest.raises(labkit.ParameterError, match="`action_space` must be a Box"):
        labkit.train(config)
    assert not list(tmp_path.glob("runs/*"))
    mine = labkit.open_run("mine", config)
    with pytest.raises(labkit.ParameterError, match="`action_space` must be a Box"):
        labkit.train(config, mine)
    assert (tmp_path / "mine" / "config.json").exists(), "a directory that the user made"
