"""A run that resumes has the environment that it began with, or is refused in one line."""

import shutil

import gym
import numpy as np
import pytest

import labkit
from labkit.training.run import FILE, RAY_SUMMARY, open_run


class Target(gym.Env):
    """Pays most for the action 0.5."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self):
        return np.zeros(1, np.float32)

    def step(self, action):
        return np.zeros(1, np.float32), -float((action[0] - 0.5) ** 2), True, {}


class WithWiderActions(Target):
    action_space = gym.spaces.Box(-5, 5, (1,), np.float32)


class WithMoreObservations(Target):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)


def train(config, path, make_env, **settings):
    return labkit.train(config, open_run(path, config), make_env=make_env, **settings)


@pytest.mark.parametrize(
    ("make_env", "settings", "difference"),
    [
        (WithWiderActions, {}, "action bounds: [[-1.0], [1.0]] there and [[-5.0], [5.0]] here"),
        (WithMoreObservations, {}, "observation shape: [1] there and [2] here"),
        (Target, {"max_episode_steps": 9}, "max_episode_steps: None there and 9 here"),
        (None, {}, "name: Target there and Pendulum-v1 here"),
    ],
)
def test_another_environment_is_refused(small_config, tmp_path, make_env, settings, difference):
    fields = {"env_name": "Pendulum-v1", "replay": "tf_uniform", "num_eval_episodes": 1}
    config = small_config(**fields, num_iterations=10)
    run = train(config, tmp_path, Target)
    before = run.metrics()
    longer = small_config(**fields, num_iterations=20)
    with pytest.raises(
        labkit.ParameterError, match="`run_dir` must be a run of the same environment"
    ) as caught:
        train(longer, tmp_path, make_env, **settings)
    assert difference in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(run.metrics()) == len(before)
    resumed = train(longer, tmp_path, Target)
    assert resumed.metrics().gradient_step.max() == 20


def test_a_run_without_a_record_gets_one_and_a_damaged_one_is_named(small_config, tmp_path):
    """As a run of an earlier version."""
    config = small_config(env_name="Target", replay="tf_uniform", num_iterations=10)
    train(config, tmp_path, Target)
    kept = (tmp_path / FILE).read_text()
    (tmp_path / FILE).unlink()
    train(config, tmp_path, Target)
    assert (tmp_path / FILE).read_text() == kept
    (tmp_path / FILE).write_text("{")
    with pytest.raises(labkit.ParameterError, match=f"{FILE} is damaged"):
        train(config, tmp_path, Target)


def test_a_run_that_never_trained_takes_the_corrected_environment(small_config, tmp_path):
    class Failing(WithWiderActions):
        def step(self, action):
            raise OSError("not yet")

    fields = {"env_name": "Pendulum-v1", "replay": "tf_uniform", "num_eval_episodes": 1}
    config = small_config(**fields, num_iterations=10)
    with pytest.raises(OSError, match="not yet"):
        train(config, tmp_path, Failing)
    assert (tmp_path / FILE).exists()
    assert train(config, tmp_path, Target).metrics().gradient_step.max() == 10


@pytest.mark.parametrize("content", [None, b"", bytes(100)], ids=["removed", "empty", "NULs"])
def test_a_run_whose_metrics_were_lost_resumes_from_its_checkpoint(small_config, tmp_path, content):
    """As after a power failure: the file is gone, empty, or holds only NULs."""
    fields = {"env_name": "Target", "replay": "tf_uniform", "num_eval_episodes": 1}
    train(small_config(**fields, num_iterations=10), tmp_path, Target)
    (tmp_path / "metrics.csv").unlink()
    if content is not None:
        (tmp_path / "metrics.csv").write_bytes(content)
    run = train(small_config(**fields, num_iterations=20), tmp_path, Target)
    assert run.metrics().gradient_step.tolist() == [10, 15, 20, 20], "10: played again"


def test_a_record_of_ray_from_a_stopped_warm_up_is_removed(small_config, tmp_path):
    config = small_config(env_name="Target", replay="tf_uniform", num_iterations=10)
    run = open_run(tmp_path, config)
    (tmp_path / RAY_SUMMARY).write_text("{}")
    labkit.train(config, run, make_env=Target)
    assert not (tmp_path / RAY_SUMMARY).exists()


def test_a_damaged_row_does_not_keep_a_run_from_beginning_again(small_config, tmp_path):
    config = small_config(env_name="Target", replay="tf_uniform", num_iterations=10)
    train(config, tmp_path, Target)
    shutil.rmtree(tmp_path / "checkpoints")
    metrics = tmp_path / "metrics.csv"
    header, *rows = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join([header, "1,2\n", rows[0]]))  # and no final evaluation
    assert train(config, tmp_path, Target).metrics().gradient_step.max() == 10
