"""The examples solve the pendulum, and hand each row of metrics to a tracker."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import labkit

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "column"), [("td3", None), ("prioritized_replay", "entropy")])
def test_it_solves_the_pendulum(name, column, tmp_path):
    """A random policy scores about −1 200; −200 counts as solved."""
    config = labkit.SACConfig(
        env_name="Pendulum-v1",
        num_iterations=6_000,
        initial_collect_steps=1_000,
        eval_interval=3_000,
        num_eval_episodes=10,
        critic_learning_rate=1e-3,
        actor_learning_rate=1e-3,
        alpha_learning_rate=1e-3,
    )
    run = load(name).train(config, str(tmp_path / "run"))
    metrics = run.metrics()
    assert metrics.eval_return.dropna().iloc[-1] > -200
    assert np.isfinite(metrics.critic_loss.dropna()).all()
    if column:
        assert metrics[column].notna().any()


@pytest.mark.parametrize("tracker", ["wandb", "trackio"])
def test_a_tracker_gets_each_row(tracker, tmp_path, monkeypatch, small_config):
    """The trackers are not installed here: a stand-in with their three functions."""
    rows = []

    class Module(ModuleType):
        def init(self, project):
            return self

        def log(self, row):
            rows.append(row)

        def finish(self):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setitem(sys.modules, tracker, Module(tracker))
    monkeypatch.chdir(tmp_path)
    config = small_config(env_name="Pendulum-v1", replay="tf_uniform")
    run = getattr(load("loggers"), f"train_with_{tracker}")(config)
    written = run.metrics()
    assert [row["gradient_step"] for row in rows] == written.gradient_step.tolist()
    losses = [row["critic_loss"] for row in rows if "critic_loss" in row]
    np.testing.assert_allclose(losses, written.critic_loss.dropna(), rtol=1e-5)
