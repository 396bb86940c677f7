"""The Ray executor with a Gymnasium environment."""

import json

import gymnasium
import numpy as np
import pytest

import labkit
from labkit.training.run import open_run


@pytest.mark.slow
def test_a_small_run_with_an_environment_of_gymnasium(small_config, tmp_path):
    settings = small_config(env_name="Mine", num_iterations=20, num_eval_episodes=1)
    run = open_run(tmp_path / "run", settings)
    make_env = lambda: gymnasium.make("Pendulum-v1")  # noqa: E731  (as a user writes it)
    labkit.train_on_ray(settings, run=run, make_env=make_env, max_episode_steps=25)
    table = run.metrics()
    assert np.isfinite(table.critic_loss.dropna()).all()
    final = table[table.eval_return.notna()].iloc[-1]
    assert final.gradient_step == 20
    assert tuple(final.eval_lengths) == (25.0,)
    assert np.isnan(final.eval_distances).all()
    record = json.loads((run.path / "environment.json").read_text())
    assert (record["name"], record["max_episode_steps"]) == ("gymnasium:Pendulum-v1", 25)
    assert json.loads((run.path / "ray.json").read_text())["faults"] == []
