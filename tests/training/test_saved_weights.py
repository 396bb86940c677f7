"""The saved policy in NumPy: the actions of the SavedModel, and its temperature."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import labkit
from labkit.environments.disturbance import NOISE_SCALE
from labkit.errors import ParameterError
from labkit.training import saved_weights
from labkit.training.run import TRACKED_POLICY

TRACKED = Path(labkit.__file__).parents[1] / TRACKED_POLICY


@pytest.fixture(scope="module")
def actor():
    return saved_weights.load_policy(TRACKED)


@pytest.fixture(scope="module")
def observations():
    draws = np.random.default_rng(0).normal(size=(50, 28))
    return (0.5 * draws * NOISE_SCALE).astype(np.float32)


def test_temperature_0_gives_the_actions_of_the_saved_model(actor, observations):
    import tensorflow as tf
    from tf_agents.trajectories import time_step as ts

    saved = tf.saved_model.load(str(TRACKED / "policy"))
    for observation in observations:
        theirs = saved.action(ts.restart(observation[None], batch_size=1)).action[0].numpy()
        np.testing.assert_allclose(actor(observation), theirs, atol=1e-5)


def test_temperature_multiplies_the_noise(actor, observations):
    observation = observations[0]
    mean, std = actor.distribution(observation)
    noise = np.random.default_rng(7).standard_normal(8, dtype=np.float32)
    for temperature in (0.0, 0.5, 1.0):
        action = actor.at(temperature, seed=7)(observation)
        assert action.dtype == np.float32
        np.testing.assert_allclose(action, np.tanh(mean + temperature * std * noise), atol=1e-6)
    assert (std > 0).all()


def test_what_is_missing_is_one_line(tmp_path):
    with pytest.raises(ParameterError, match=r"config\.json cannot be read"):
        saved_weights.load_policy(tmp_path)
    shutil.copy(TRACKED / "config.json", tmp_path)
    with pytest.raises(ParameterError, match="has no saved policy, or a damaged one"):
        saved_weights.load_policy(tmp_path)
    with pytest.raises(ParameterError, match="has no saved policy"):
        saved_weights.fingerprint(tmp_path)
    content = json.loads((TRACKED / "config.json").read_text())
    content["config"] |= {"env_name": "Pendulum-v1"}
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(ParameterError, match=r"must be a run of Minitaur.*, not of Pendulum-v1"):
        saved_weights.load_policy(tmp_path)


def test_the_weights_of_another_robot_are_refused(tmp_path, monkeypatch):
    shutil.copy(TRACKED / "config.json", tmp_path)
    layers = [np.zeros((26, 4)), np.zeros(4), np.zeros((4, 12)), np.zeros(12)]
    monkeypatch.setattr(saved_weights, "read", lambda folder: layers)
    with pytest.raises(
        ParameterError, match="another robot: it maps 26 numbers to 12, not 28 to 16"
    ):
        saved_weights.load_policy(tmp_path)
