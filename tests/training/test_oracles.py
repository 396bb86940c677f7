"""Whole runs of the local executor against what must come out of them."""

import json
import shutil

import gym
import known_optimum
import numpy as np
import pandas as pd
import pytest
from torture import arrays_of

import labkit
from labkit.sac.rollout import load_actor
from labkit.training import checkpoint, components, local

ENV = "Pendulum-v1"  # episodes of 200 steps, which a time limit ends


@pytest.mark.thorough
@pytest.mark.timeout(200)
def test_two_runs_of_one_seed_are_equal(small_config, tmp_path):
    """Step by step: losses, metrics, weights, and each transition; the table is in the process."""
    fields = {"env_name": ENV, "replay": "tf_uniform", "n_step": 3}
    fields |= {"num_iterations": 200, "log_interval": 5, "eval_interval": 50, "seed": 3}
    runs = [
        labkit.train(config, labkit.open_run(tmp_path / name, config))
        for name, config in (
            ("a", small_config(**fields)),
            ("b", small_config(**fields)),
            ("other", small_config(**{**fields, "seed": 4})),
        )
    ]
    # A pendulum has no distance: NaN, which is not equal to itself.
    varying = ["wall_seconds", "eval_distances"]
    first, second, other = (run.metrics().drop(columns=varying) for run in runs)
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    assert len(first) == 200 / 5 + 5
    assert not first.critic_loss.equals(other.critic_loss)
    saved = [checkpoint.latest(run.path / "checkpoints") for run in runs]
    arrays = [arrays_of(one) for one in saved]
    for ours, theirs in zip(arrays[0], arrays[1], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    tables = [np.load(one / "replay" / "rows.npz")["rows"] for one in saved]
    np.testing.assert_array_equal(tables[0], tables[1])
    assert len(tables[0]) == 300 + 200
    assert (tables[0] != tables[2]).any()


@pytest.mark.thorough
@pytest.mark.parametrize("period", [1, 3])
def test_a_row_holds_the_mean_losses_since_the_last_row(small_config, tmp_path, period):
    fields = {"env_name": ENV, "replay": "tf_uniform", "steps_per_call": 1, "num_iterations": 40}
    fields |= {"eval_interval": 0, "num_eval_episodes": 1, "actor_update_period": period}
    tables = []
    for interval in (1, 10):
        config = small_config(**fields, log_interval=interval)
        run = labkit.train(config, labkit.open_run(tmp_path / str(interval), config))
        metrics = run.metrics().dropna(subset="critic_loss")
        tables.append(metrics[["critic_loss", "actor_loss", "alpha_loss"]])
    each, means = (table.to_numpy() for table in tables)
    np.testing.assert_allclose(
        means, np.nanmean(each.reshape(4, 10, 3), axis=1), rtol=1e-5, atol=1e-5
    )
    without = np.arange(40) % period != 0  # steps of the critics alone: no loss of the actor
    np.testing.assert_array_equal(np.isnan(each[:, 1]), without)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("replay", ["reverb", "tf_uniform"])
def test_the_optimum_of_a_small_environment_is_found(replay, tmp_path):
    config = labkit.SACConfig(**known_optimum.SETTINGS, replay=replay)
    run = labkit.open_run(tmp_path / "run", config)
    known_optimum.check(labkit.train(config, run, make_env=known_optimum.make))


@pytest.mark.thorough
def test_a_resumed_run_continues_where_its_checkpoint_was_written(small_config, tmp_path):
    """Losses since the last row, noise, the environment's generators and the counters."""
    config = small_config(
        **{"env_name": ENV, "replay": "tf_uniform", "actor_update_period": 2},
        **{"log_interval": 10, "checkpoint_interval": 5, "eval_interval": 0},
    )
    run = labkit.open_run(tmp_path / "run", config)
    labkit.train(config, run)
    checkpoints = run.path / "checkpoints"
    shutil.rmtree(checkpoints / "000000020")  # as if it had been killed after the step before
    state = checkpoint.read_state(checkpoint.latest(checkpoints))
    assert state["step"] == 15
    made = components.build(config)
    resumed = local.LocalTraining(config, run, made)
    assert state["totals"]["critic_loss"][1] == 5
    assert state["totals"]["actor_loss"][1] == 3, "in the gradient steps 11, 13 and 15"
    for name, total in state["totals"].items():
        np.testing.assert_array_equal(resumed.learner._totals[name], total)
    assert (resumed.step, resumed.env_step, made.replay.size()) == (15, 315, 315)
    assert resumed.policy.get_state() == state["noise"]
    environment = json.loads(json.dumps(made.collect_env.gym.get_state()))
    assert environment == state["environment"]
    assert run.metrics().gradient_step.tolist() == [10]
    made.replay.close()


def reference_steps(env, actions):
    """Plays raw gym steps: [(observation, reward, terminated, next observation)] by episode."""
    episodes, steps = [], []
    observation = env.reset()
    for action in actions:
        following, reward, done, info = env.step(action)
        terminated = done and not info.get("TimeLimit.truncated", False)
        steps.append((observation, action, reward, terminated, following))
        observation = following
        if done:
            episodes.append(steps)
            steps, observation = [], env.reset()
    return [*episodes, steps]


def reference_rows(episodes, n_step, gamma):
    """The n-step rows of these episodes, each computed by itself from the definition."""
    rows = []
    for steps in episodes:
        for start, (observation, action, *_) in enumerate(steps):
            window = steps[start : start + n_step]
            total = sum(gamma**k * reward for k, (_, _, reward, _, _) in enumerate(window))
            *_, terminated, following = window[-1]
            discount = 0.0 if terminated else gamma ** (len(window) - 1)
            rows.append(np.hstack([observation, action, total, discount, following]))
    return np.array(rows)


def test_the_table_holds_what_a_reference_collector_collects(small_config, tmp_path):
    """The warm-up's actions are known; later ones are read from the table."""
    config = small_config(
        env_name=ENV,
        replay="tf_uniform",
        n_step=3,
        gamma=0.9,
        seed=5,
        initial_collect_steps=250,
        num_iterations=430,
        eval_interval=170,
    )
    run = labkit.train(config, labkit.open_run(tmp_path / "run", config))
    saved = checkpoint.latest(run.path / "checkpoints")
    with np.load(saved / "replay" / "rows.npz") as held:
        rows = held["rows"]
    assert len(rows) >= 250 + 430 - 2  # the last windows may still be open
    generator = np.random.default_rng(5 + components.NOISE_SEED)
    random_actions = generator.uniform(-2, 2, (250, 1)).astype(np.float32)
    np.testing.assert_array_equal(rows[:250, 3:4], random_actions)

    env = gym.make(ENV)
    env.seed(5)
    warm_up = reference_steps(env, random_actions)
    # The collector that follows begins a new episode, with the environment's next reset.
    trained = reference_steps(env, rows[250:, 3:4])
    expected = np.vstack([reference_rows(part, 3, 0.9) for part in (warm_up, trained)])
    complete = len(rows) - 2
    np.testing.assert_allclose(rows[:complete], expected[:complete], rtol=2e-5, atol=2e-5)
    # 0.9² in whole windows, more in those that a time limit or the end of the warm-up cuts short
    assert set(np.round(rows[:, 5].astype(float), 2)) == {0.81, 0.9, 1.0}
    finished = [sum(reward for _, _, reward, _, _ in steps) for steps in trained[:-1]]
    assert len(finished) == 2
    assert run.metrics().collect_return.iloc[-2] == pytest.approx(np.mean(finished), rel=1e-5)


def test_the_policy_in_the_run_directory_is_the_one_that_was_scored(small_config, tmp_path):
    """An evaluation of the saved policy, made here, gives the final score of the metrics."""
    config = small_config(env_name=ENV, replay="tf_uniform", seed=6)
    run = labkit.train(config, labkit.open_run(tmp_path / "run", config))
    policy = load_actor(run.path / "policy", config.observation_scale)
    env = labkit.make_environment(ENV)
    seed = components.evaluated(config, final=True)[1]
    total = 0.0
    for word in np.random.SeedSequence(seed).generate_state(2):
        env.seed(int(word) % 2**31)
        step = env.reset()  # a loop of its own, on the raw time steps
        while not step.is_last():
            step = env.step(policy(step.observation))
            total += float(step.reward)
    final = run.metrics().iloc[-1]
    assert final.eval_lengths == (200.0, 200.0)
    scored = final.eval_return
    assert scored == pytest.approx(total / config.num_eval_episodes, rel=1e-4)
