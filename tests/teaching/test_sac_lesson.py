"""Notebook 03: tables of the Minitaur, losses compared, figures."""

import time

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from labkit.config import SACConfig
from labkit.environments.make import make_environment
from labkit.errors import StalledError
from labkit.sac import agent as agents
from labkit.teaching import (
    minitaur,
    replica_checks,
    sac_checks,
    sac_plots,
    sac_results,
)


def test_random_actions_show_what_each_group_must_be_divided_by():
    env = make_environment("MinitaurBulletEnv-v0", seed=0)
    observed = minitaur.random_observations(env, steps=300)
    assert observed.shape == (300, 28)
    table = minitaur.observation_table(
        env.observation_spec(), SACConfig().observation_scale, observed
    )
    assert table.numbers.sum() == 28
    assert table.highest.tolist() == pytest.approx([3.15, 167.72, 5.71, 1.01, 1.01])
    *sensors, upright = table["quotient varies by"]
    assert 0.15 < min(sensors) <= max(sensors) < 0.9, "no group drowns another"
    assert upright < 0.05, "w is nearly 1 while the robot stands"


def test_clip_and_replay_are_shown_with_their_tracked_score(monkeypatch, tmp_path, capsys):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    minitaur.show_clip()
    minitaur.show_replay()
    video, _, viewer, strip = shown
    assert 'aria-label="Video of one episode of the trained robot' in video._repr_html_()
    assert '<iframe srcdoc="' in viewer.data
    assert strip.data.startswith(b"\x89PNG")
    assert capsys.readouterr().out.count("mean return") == 2
    minitaur.show_clip(tmp_path)  # installed without the repository
    minitaur.show_replay(tmp_path)
    assert [line[:4] for line in capsys.readouterr().out.splitlines()] == ["no c", "no r"]


@pytest.mark.parametrize(
    ("by_hand", "message"),
    [
        (lambda w: 1.01 * tf.reduce_sum(w**2), "the loss is 5.05, TF-Agents has 5; the gradient"),
        (lambda w: tf.reduce_sum(tf.stop_gradient(w) ** 2), "^the gradient of w differs by a rel"),
        (lambda w: tf.reduce_sum(w**2) * np.nan, "the loss is nan"),
    ],
)
def test_a_wrong_value_or_gradient_is_named(by_hand, message):
    w = tf.Variable([1.0, 2.0])
    with pytest.raises(sac_checks.LossMismatch, match=message):
        sac_checks.compare(lambda: by_hand(w), lambda: tf.reduce_sum(w**2), {"w": [w]})


def test_equal_losses_and_arrays_pass():
    w = tf.Variable([1.0, 2.0])
    loss = lambda: tf.reduce_sum(w**2)  # noqa: E731
    found = sac_checks.compare(loss, loss, {"w": [w]})
    assert found.loc["w"].tolist() == pytest.approx([5, 5, 20**0.5, 0])
    expected = np.array([3.0, 4.0])
    assert sac_checks.check_equal("x", expected * (1 + 1e-6), expected) == pytest.approx(1e-6)
    with pytest.raises(sac_checks.LossMismatch, match="x differs from the expected one"):
        sac_checks.check_equal("x", expected * 1.0001, expected)


def test_a_call_that_waits_too_long_ends():
    assert replica_checks.within(5)(lambda x: x + 1)(1) == 2
    with pytest.raises(StalledError, match=r"did not end within 0\.05 seconds"):
        replica_checks.within(0.05)(lambda: time.sleep(5))()


def test_a_score_in_words_and_its_extremes():
    rows = {
        "gradient_step": [10, 1000],
        "env_step": [20, 11000],
        "eval_return": [1.0, 12.0],
        "eval_returns": [(1.0,), (10.0, 14.0)],
        "eval_lengths": [(5.0,), (900.0, 1000.0)],
        "eval_distances": [(0.1,), (12.0, 15.0)],
    }
    assert sac_results.summary(pd.DataFrame(rows), seed=3) == (
        "12.0 ± 2.8 over 2 episodes, worst 10.0, best 14.0, 13.5 m forward in 950 steps, "
        "after 1 000 gradient steps (11 000 env steps), seed 3"
    )
    assert sac_results.worst_and_best([5, 1, 9, 4]) == {"worst": 1, "best": 2}


def test_estimates_stand_next_to_complete_discounted_returns(small_config):
    """Pendulum's episodes have 200 steps; γ = 0.9 leaves 5 % of a reward after 28."""
    config = small_config(env_name="Pendulum-v1", gamma=0.9, reward_scale_factor=2.0)
    env = make_environment("Pendulum-v1", seed=0)
    agent = agents.create_agent(config, env, tf.distribute.get_strategy())
    table = sac_results.estimates(agent, env, lambda o: np.zeros(1, np.float32), config, 2, seed=1)
    assert table.groupby("episode").size().tolist() == [172, 172]
    env.seed(1)
    env.reset()
    rewards = [float(env.step(np.zeros(1, np.float32)).reward) for _ in range(200)]
    expected = sum(2 * 0.9**k * reward for k, reward in enumerate(rewards))
    assert table.returned[0] == pytest.approx(expected, rel=1e-5)
    (axes,) = sac_plots.critic_estimates(table.iloc[[0, 1, 172]]).axes
    drawn = {line.get_label(): line.get_xydata() for line in axes.lines}
    points = table[["returned", "estimated"]][:2].to_numpy()
    np.testing.assert_array_equal(drawn["an action of episode 1"], points)
