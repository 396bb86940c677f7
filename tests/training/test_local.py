"""The local executor on real parts, small: what a run leaves, how it ends, how it resumes."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import gym
import gymnasium
import numpy as np
import pandas as pd
import pytest
import reverb
import tensorflow as tf

import labkit
from labkit.environments.make import check_name
from labkit.errors import BrokenEnvironmentError, DivergedError
from labkit.replay.transitions import Transition
from labkit.sac.actor import ActorPolicy
from labkit.training import checkpoint, components, learner, local
from labkit.training.components import RESUME_SEED, evaluated
from labkit.training.progress import StopRequest
from labkit.training.records import read_config, read_content, read_metrics
from labkit.training.run import open_run


class Target(gym.Env):
    """Pays most for the action 0.5, in episodes of one step: SAC must find it."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self):
        return np.zeros(1, np.float32)

    def step(self, action):
        return np.zeros(1, np.float32), -float((action[0] - 0.5) ** 2), True, {}


@pytest.fixture
def config(small_config):
    """`config(seed=3)`: a small configuration of `Target`."""
    return lambda **changes: small_config(**{"env_name": "Target", **changes})


def fails_after(steps, error, done=True):
    """An environment whose step raises `error`, or does what it says, at the step after `steps`."""

    class Failing(Target):
        taken = 0  # in both environments

        def step(self, action):
            Failing.taken += 1
            if Failing.taken > steps:
                if callable(error):
                    return error()
                raise error
            return np.zeros(1, np.float32), 0.0, done, {}

    return Failing


def begun(settings, path):
    """A training of `Target` after its warm-up."""
    made = components.build(settings, components.make_environments(settings, Target))
    components.warm_up(settings, made)
    return made, local.LocalTraining(settings, open_run(path, settings), made)


# --- what a run leaves


@pytest.fixture(scope="module")
def minitaur_run(tmp_path_factory):
    from small import SMALL

    config, rows = labkit.SACConfig(**SMALL, seed=2), []
    run = open_run(tmp_path_factory.mktemp("run") / "here", config)
    labkit.train(config, run, on_metrics=rows.append)
    return run, rows


def test_metrics_of_a_run(minitaur_run):
    run, rows = minitaur_run
    table = run.metrics()
    evaluated = table[table.eval_return.notna()]
    assert list(evaluated.gradient_step) == [0, 10, 20]
    assert list(evaluated.env_step) == [300, 310, 320]
    assert [len(x) for x in evaluated.eval_returns] == [1, 1, 2]
    for row in evaluated.itertuples():
        assert row.eval_return == pytest.approx(np.mean(row.eval_returns), rel=1e-4)
        assert len(row.eval_lengths) == len(row.eval_distances) == len(row.eval_returns)
    logged = table[table.critic_loss.notna()]
    assert list(logged.gradient_step) == [5, 10, 15, 20]
    assert np.isfinite(logged[["critic_loss", "actor_loss", "alpha_loss", "entropy"]]).all(None)
    assert logged.alpha.iloc[0] == pytest.approx(np.exp(-4), rel=0.02)
    assert (np.diff(table.wall_seconds) >= 0).all()
    assert [row["gradient_step"] for row in rows] == table.gradient_step.tolist()
    assert [row.get("critic_loss") for row in rows[1:3]] == logged.critic_loss[:2].tolist()


def written(folder, tag):
    """The gradient steps at which TensorBoard shows the scalar `tag`."""
    events = itertools.chain.from_iterable(
        tf.compat.v1.train.summary_iterator(str(file)) for file in sorted(folder.rglob("*tfev*"))
    )
    return [event.step for event in events for value in event.summary.value if value.tag == tag]


def test_files_of_a_run(minitaur_run):
    run, _ = minitaur_run
    content = read_content(run.path)
    assert read_config(run.path) == run.config
    assert content["environment"]["name"] == "MinitaurBulletEnv-v0"
    assert content["environment"]["max_episode_steps"] == 1000
    assert written(run.path / "events", "critic_loss") == [5, 10, 15, 20]
    assert written(run.path / "events", "eval_return") == [0, 10, 20]
    assert checkpoint.steps(run.path / "checkpoints") == [20]


@pytest.mark.thorough
def test_a_finished_run_can_be_opened_again_and_nothing_is_left_to_train(minitaur_run, tmp_path):
    """As after a kill between the final score and the last policy: the policy is missing."""
    (finished, _), path = minitaur_run, tmp_path / "run"
    shutil.copytree(finished.path, path)
    shutil.rmtree(path / "policy")
    before = [(path / name).read_bytes() for name in ("metrics.csv", "config.json")]
    for _ in range(2):  # a training cell may run twice
        labkit.train(finished.config, open_run(path, finished.config))
        assert [(path / name).read_bytes() for name in ("metrics.csv", "config.json")] == before
    assert (path / "policy" / "saved_model.pb").exists()


@pytest.mark.thorough
def test_a_finished_run_resumes_when_asked_for_more(config, tmp_path):
    for total in (20, 30):
        labkit.train(config(num_iterations=total), open_run(tmp_path, config(num_iterations=total)),
                     make_env=Target)  # fmt: skip
    table = read_metrics(tmp_path)
    evaluated = table[table.eval_return.notna()]
    assert evaluated.gradient_step.tolist() == [0, 10, 20, 30]
    assert [len(row) for row in evaluated.eval_returns] == [1, 1, 2, 2]
    logged = table[table.critic_loss.notna()]
    assert logged.gradient_step.tolist() == list(range(5, 31, 5))
    assert logged.env_step.tolist() == list(range(305, 331, 5))
    assert (np.diff(table.wall_seconds) >= 0).all()
    assert written(tmp_path / "events", "critic_loss") == list(range(5, 31, 5))


@pytest.mark.thorough
def test_without_a_run_it_resumes_or_takes_the_next_directory(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = labkit.train(config(), make_env=Target)
    assert str(first.path) == "runs/0001"
    shutil.rmtree(first.path / "checkpoints")
    cut = config(checkpoint_interval=10)
    with pytest.raises(RuntimeError, match="out of order"):
        labkit.train(cut, make_env=fails_after(316, RuntimeError("out of order")))
    assert str(labkit.train(cut, make_env=fails_after(9_999, None)).path) == "runs/0002"
    assert str(labkit.train(cut, make_env=Target).path) == "runs/0003", "another environment"


@pytest.mark.thorough
def test_it_learns_in_a_users_own_environment(config, tmp_path):
    rates = {"critic_learning_rate": 3e-3, "actor_learning_rate": 3e-3, "initial_log_alpha": -6}
    settings = config(num_iterations=800, eval_interval=800, num_eval_episodes=3, **rates)
    run = labkit.train(settings, open_run(tmp_path, settings), make_env=Target)
    returns = run.metrics().eval_return.dropna()
    assert returns.iloc[0] < -0.1  # untrained: near 0
    assert returns.iloc[-1] > -0.01  # within 0.1 of the best action


# --- how it ends


def test_one_interrupt_stops_an_evaluation_between_two_env_steps(config, tmp_path, capsys):
    def press():
        if Endless.taken == 350:  # of both environments; in the first evaluation
            os.kill(os.getpid(), signal.SIGINT)
        return np.zeros(1, np.float32), 0.0, False, {}

    Endless = fails_after(349, press, done=False)
    run = labkit.train(config(), open_run(tmp_path, config()), make_env=Endless)
    assert Endless.taken == 350
    printed = capsys.readouterr()
    assert "stopped at gradient step 0 of 20; run this again to resume" in printed.out
    assert printed.err.count("stopping after this iteration; interrupt once more") == 1
    assert run.metrics().eval_return.isna().all(), "an unfinished evaluation does not count"


def test_an_error_of_the_users_environment_leaves_a_checkpoint_and_names_it(
    config, tmp_path, capsys
):
    settings = config(eval_interval=0, steps_per_call=5)
    run, broken = open_run(tmp_path, settings), fails_after(312, RuntimeError("out of order"))
    with pytest.raises(RuntimeError, match=r"^out of order$"):
        labkit.train(settings, run, make_env=broken)
    saved = tmp_path / "checkpoints" / "000000015"
    line = f"the run ends with a RuntimeError; last good checkpoint: {saved}"
    assert line in capsys.readouterr().out
    labkit.train(settings, run, make_env=type("Failing", (Target,), {}))
    steps = run.metrics().dropna(subset="critic_loss").gradient_step.tolist()
    assert steps == [5, 10, 15, 20]


SCRIPT = """
import labkit, test_local
from small import SMALL
config = labkit.SACConfig(**{**SMALL, "eval_interval": 0, "env_name": "Failing"})
labkit.train(config, make_env=test_local.fails_after(300, test_local.ERROR))
"""
ERROR = BrokenEnvironmentError("out of order")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["labkit", "user"])
def test_in_a_script_an_error_of_labkit_is_one_line(tmp_path, kind):
    """The error comes in the first gradient steps, while TensorFlow compiles them."""
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path]
    code = SCRIPT if kind == "labkit" else SCRIPT.replace("test_local.ERROR", "KeyError('mine')")
    done = subprocess.run(
        [sys.executable, "-c", code],
        **{"cwd": tmp_path, "text": True, "capture_output": True, "timeout": 200},
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
    )
    assert done.returncode == 1
    if kind == "labkit":
        (line,) = done.stderr.splitlines()
        assert line == "BrokenEnvironmentError: out of order; last good checkpoint: none yet"
    else:
        assert "Traceback" in done.stderr, "the user must see where it is"


class Infinite(Target):
    """Its reward, squared, is more than a float32 can hold."""

    def step(self, action):
        return np.zeros(1, np.float32), 1e30, True, {}


def test_an_infinite_loss_is_named(config, tmp_path):
    settings = config(eval_interval=0)
    with pytest.raises(DivergedError, match=r"critic loss .* gradient step 1; last good"):
        labkit.train(settings, open_run(tmp_path, settings), make_env=Infinite)


def test_rows_that_are_not_numbers_are_named(config, tmp_path):
    settings = config(eval_interval=0)
    made, training = begun(settings, tmp_path)
    for _ in range(300):
        made.replay.write(Transition([np.nan], [0.0], 0.0, 1.0, [0.0]))
    made.replay.flush()
    with pytest.raises(DivergedError, match="a row of the replay table is infinite or not a num"):
        training.execute(StopRequest())
    made.replay.close()


def test_weights_that_are_not_numbers_are_not_saved(config, tmp_path, monkeypatch):
    """The loss of the step that makes them may still be finite; nothing resumes from them."""
    take_steps = learner.Learner.gradient_steps

    def overflow(self, count):
        result = take_steps(self, count)
        weights = self.agent._critic_network_1.trainable_variables[0]
        weights.assign(tf.fill(weights.shape, np.nan))
        return result

    monkeypatch.setattr(learner.Learner, "gradient_steps", overflow)
    settings = config(num_iterations=1, eval_interval=0)
    run = open_run(tmp_path / "run", settings)
    with pytest.raises(DivergedError, match=r"weights .* gradient step 1; .* none yet"):
        labkit.train(settings, run, make_env=Target)
    assert not list((run.path / "checkpoints").glob("0*"))


def test_a_table_that_a_stranger_emptied_ends_the_run(config, tmp_path):
    """Any client that reaches the port of a Reverb server can reset its tables."""
    settings = config(num_iterations=400, eval_interval=0, recent_transitions=0)
    made, training = begun(settings, tmp_path)

    def reset(row):
        if row["gradient_step"] == 105:
            reverb.Client(made.replay.address).reset("transitions")

    message = r"the replay table holds \d+ rows at gradient step 200, and had 400: another client"
    training.learner.run.on_metrics = reset
    with pytest.raises(labkit.RunError, match=message):
        training.execute(StopRequest())
    made.replay.close()


# --- environments


@pytest.mark.thorough
def test_it_closes_the_environments_that_it_made(config, tmp_path):
    closed = []

    class Closing(Target):
        def close(self):
            closed.append(self)

    run = labkit.train(config(), open_run(tmp_path, config()), make_env=Closing)
    assert run.metrics().eval_return.notna().any()
    assert len({id(env) for env in closed}) == len(closed) == 2


@pytest.mark.parametrize(("bootstrap", "discount"), [(True, 1.0), (False, 0.0)])
def test_a_time_limit_bootstraps_unless_the_configuration_says_otherwise(
    bootstrap, discount, small_config, monkeypatch
):
    """Of the environment that fills the table; the evaluated one ends as it is registered to."""
    check_name("MinitaurBulletEnv-v0")  # PyBullet registers it
    monkeypatch.setattr(gym.spec("MinitaurBulletEnv-v0"), "max_episode_steps", 3)
    made = components.make_environments(small_config(bootstrap_time_limits=bootstrap))
    for env, expected in zip(made, (discount, 1.0), strict=True):
        steps = [env.reset(), *(env.step(np.zeros(8, np.float32)) for _ in range(3))]
        assert [float(step.discount) for step in steps[1:]] == [1.0, 1.0, expected]
        assert [bool(step.is_last()) for step in steps] == [False, False, False, True]


class Slides(gymnasium.Env):
    """Notes the seeds of its resets and observes its steps; the reward is 1."""

    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    seeds: list = []  # noqa: RUF012  (of all instances)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        Slides.seeds.append(seed)
        return np.array([self.np_random.random(), 0.0]), {}

    def step(self, action):
        return np.zeros(2), 1.0, False, False, {}


@pytest.mark.thorough
def test_gymnasium_trains_and_resumes_with_a_seed_that_it_has_not_used(config, tmp_path):
    settings = config(env_name="Slides", replay="tf_uniform")
    options = {"make_env": Slides, "max_episode_steps": 20}
    labkit.train(settings, open_run(tmp_path, settings), **options)
    used = set(Slides.seeds)
    first = int(np.random.SeedSequence(1_000_003).generate_state(1)[0]) % 2**31  # episode
    assert {0, first} <= used, "neither the collecting nor the evaluated one had its seed"
    Slides.seeds.clear()
    longer = attrs.evolve(settings, num_iterations=30)
    with pytest.raises(labkit.ParameterError, match="max_episode_steps: 20 there and 30 here"):
        labkit.train(longer, open_run(tmp_path, longer), make_env=Slides, max_episode_steps=30)
    before = (tmp_path / "config.json").read_bytes()
    assert json.loads(before)["config"]["num_iterations"] == 20, "a rejected start changes nothing"
    labkit.train(longer, open_run(tmp_path, longer), **options)
    words = np.random.SeedSequence([0, 20, RESUME_SEED]).generate_state(1)  # seed, gradient step
    assert int(words[0]) % 2**31 in set(Slides.seeds) - used
    assert read_config(tmp_path).num_iterations == 30


def test_evaluations_have_episodes_of_their_own(config):
    """Interim ones of a run share theirs; a final one has others for each budget and seed."""
    every = list(itertools.product((0, 1, 2**31 - 1), (50_000, 90_000, 10**9)))
    pairs = [config(seed=seed, num_iterations=budget) for seed, budget in every]
    finals = {evaluated(one, final=True)[1] for one in pairs}
    interim = {evaluated(one)[1] for one in pairs}
    assert (len(finals), len(interim), finals & interim) == (9, 3, set())
    assert all(type(seed) is int and 0 <= seed < 2**31 for seed in finals | interim)
    assert evaluated(pairs[0], final=True) == evaluated(pairs[0], final=True)


# --- again


@pytest.mark.thorough
def test_training_again_after_the_end_adds_no_evaluation(config, tmp_path):
    """As the cell of a notebook that is run again."""
    run = open_run(tmp_path, config())
    first, *others = [labkit.train(config(), run, Target).metrics() for _ in range(3)]
    for again in others:
        pd.testing.assert_frame_equal(again, first)


def test_the_policy_that_collects_is_the_newest(config, tmp_path):
    """After the last iteration the collecting policy holds the last gradient step's weights."""
    made, done = begun(config(), tmp_path)
    observation = np.full(1, 0.3, np.float32)
    before = ActorPolicy(made.agent)(observation)
    done.execute(stop=StopRequest())
    done.policy._temperature = 0.0  # the mean action
    assert done.policy(observation) == ActorPolicy(made.agent)(observation) != before
    assert made.env_steps == 320
    made.replay.close()
    made.replay.close()  # twice is harmless


def test_the_next_call_can_sample_what_this_one_collected(config, tmp_path):
    uniform = config(replay="tf_uniform")  # Reverb's rows would come a moment later anyway
    made, training = begun(uniform, tmp_path)
    collected = training.iterate(StopRequest())
    assert made.replay.size() == 300 + collected > 300
    made.replay.close()


def test_arguments_of_another_type_are_one_line(config):
    with pytest.raises(labkit.ParameterError, match=r"`run` must be None, or what labkit\.open_"):
        labkit.train(config(), "runs/0001")
    with pytest.raises(labkit.ParameterError, match="`config` must be an SACConfig"):
        labkit.train({"gamma": 0.9})
