"""The local executor on real parts, small."""

import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import attrs
import gym
import numpy as np
import old_runs
import pandas as pd
import pytest
import tensorflow as tf
from labkit.training.signals import StopRequest
from tf_agents.trajectories import time_step

import labkit
from labkit.environments.make import check_name, make_environment
from labkit.errors import DivergedError
from labkit.replay import server as ports
from labkit.replay.transitions import Layout
from labkit.sac import agent as agents
from labkit.sac.actor import ActorPolicy
from labkit.sac.rollout import Collector, evaluate, random_policy
from labkit.training import components, learner, local, logger, metrics
from labkit.training.run import FORMAT, open_run, read_config, read_metrics


def test_the_return_of_the_collected_episodes_is_that_of_the_last_ten():
    class Episodes(gym.Env):
        """One step each; the return is the episode's number."""

        observation_space = action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        number = 0

        def reset(self):
            return np.zeros(1, np.float32)

        def step(self, action):
            self.number += 1
            return np.zeros(1, np.float32), self.number, True, {}

    def collector():
        return Collector(env, random_policy(env.action_spec(), seed=0), lambda _: None)

    env = make_environment(Episodes, seed=0)
    first, second = collector(), collector()
    assert math.isnan(first.mean_return())
    first.run(12)
    assert first.mean_return() == np.mean(range(3, 13))
    second.set_state(first.get_state())
    second.run(1)
    assert second.mean_return() == np.mean(range(4, 14))


def test_evaluations_do_not_disturb_the_first_300_transitions():
    def collect(interrupted):
        env = make_environment("MinitaurBulletEnv-v0", seed=5, max_episode_steps=120)
        rows = []
        policy = random_policy(env.action_spec(), seed=5)
        collector = Collector(env, policy, lambda row: rows.append(np.hstack(row)))
        if interrupted:
            other = make_environment("MinitaurBulletEnv-v0", seed=9, max_episode_steps=40)
        for _ in range(6):
            collector.run(50)
            if interrupted:
                evaluate(other, random_policy(env.action_spec(), seed=1), 1, seed=2)
        return np.array(rows)

    calm, disturbed = collect(False), collect(True)
    assert calm.shape == (300, 66)
    np.testing.assert_array_equal(calm, disturbed)
    resets = np.any(calm[1:, :28] != calm[:-1, 38:], axis=1).sum()
    assert resets >= 2, "the Minitaur draws random numbers at resets only"


def test_evaluation_repeats_itself():
    env = make_environment("MinitaurBulletEnv-v0", seed=0, max_episode_steps=40)
    first, second, other = (
        evaluate(env, random_policy(env.action_spec(), seed=1), 2, seed=s) for s in (7, 7, 8)
    )
    assert first == second
    assert first.returns != other.returns
    assert all(abs(d) < 1 for d in first.distances)


@pytest.fixture(scope="module")
def minitaur_run(tmp_path_factory):
    from conftest import SMALL

    path = tmp_path_factory.mktemp("run") / "here"
    config = labkit.SACConfig(**SMALL, seed=2)
    return labkit.train(config, open_run(path, config))


def test_metrics_of_a_run(minitaur_run):
    table = minitaur_run.metrics()
    assert list(table.columns) == metrics.COLUMNS
    evaluated = table[table.eval_return.notna()]
    assert list(evaluated.gradient_step) == [0, 10, 20]
    assert list(evaluated.env_step) == [300, 310, 320]
    assert [len(x) for x in evaluated.eval_returns] == [1, 1, 2]
    for row in evaluated.itertuples():
        assert row.eval_return == pytest.approx(np.mean(row.eval_returns), rel=1e-4)
        assert len(row.eval_lengths) == len(row.eval_distances) == len(row.eval_returns)
    logged = table[table.critic_loss.notna()]
    assert list(logged.gradient_step) == [5, 10, 15, 20]
    assert np.isfinite(logged[["critic_loss", "actor_loss", "alpha_loss"]].to_numpy()).all()
    assert logged.alpha.iloc[0] == pytest.approx(np.exp(-4), rel=0.02)
    assert (np.diff(table.wall_seconds) >= 0).all()


def test_files_of_a_run(minitaur_run):
    content = json.loads((minitaur_run.path / "config.json").read_text())
    assert labkit.SACConfig.parse(content["config"]) == minitaur_run.config
    assert content["format"] == FORMAT
    assert content["versions"]["tensorflow"] == "2.15.1"
    assert content["versions"]["gymnasium"] == "1.3.0"
    assert list((minitaur_run.path / "events").glob("events.out.tfevents.*"))


def test_a_finished_run_can_be_opened_again_and_nothing_is_left_to_train(minitaur_run, tmp_path):
    """As after a kill between the final score and the last policy: the policy is missing."""
    path = tmp_path / "run"
    shutil.copytree(minitaur_run.path, path)
    shutil.rmtree(path / "policy")
    before = (path / "metrics.csv").read_bytes()
    for _ in range(2):  # a training cell may run twice
        run = labkit.train(minitaur_run.config, open_run(path, minitaur_run.config))
        assert (path / "metrics.csv").read_bytes() == before
    assert len(run.metrics()) == len(minitaur_run.metrics())
    assert (path / "policy" / "saved_model.pb").exists()
    other = labkit.SACConfig(**{**attrs.asdict(minitaur_run.config), "gamma": 0.9})
    with pytest.raises(labkit.ParameterError, match=r"gamma is 0\.995 there"):
        open_run(path, other)
    assert open_run(path, other, resume="never").path == tmp_path / "run-2"


def test_a_finished_run_that_lost_its_last_line_end_keeps_its_policy(
    minitaur_run, tmp_path, capsys
):
    """Without its checkpoint it begins anew: its final score is no longer a whole row."""
    path = tmp_path / "run"
    shutil.copytree(minitaur_run.path, path)
    shutil.rmtree(path / "checkpoints")
    table = path / "metrics.csv"
    table.write_bytes(table.read_bytes().rstrip())
    before = {file: file.read_bytes() for file in (path / "policy").rglob("*") if file.is_file()}
    labkit.train(minitaur_run.config, open_run(path, minitaur_run.config))
    for file, content in before.items():
        assert (path / "policy-1" / file.relative_to(path / "policy")).read_bytes() == content
    assert f"its policy is in {path / 'policy-1'}" in capsys.readouterr().out


def test_a_start_that_is_rejected_leaves_a_finished_run_as_it_is(small_config, tmp_path):
    config = small_config(env_name="Target", num_iterations=2)
    labkit.train(config, open_run(tmp_path, config), make_env=Target)
    before = (tmp_path / "config.json").read_bytes()
    longer = attrs.evolve(config, num_iterations=4)
    run = open_run(tmp_path, longer)
    with pytest.raises(labkit.ParameterError, match="a run of the same environment"):
        labkit.train(longer, run, make_env=Target, max_episode_steps=3)
    assert (tmp_path / "config.json").read_bytes() == before
    labkit.train(longer, run, make_env=Target)
    assert read_config(tmp_path).num_iterations == 4


FAILS_EARLY = """
import sys
sys.path[:0] = sys.argv[2:]
import gym, numpy as np
import labkit, conftest

class Failing(gym.Env):
    observation_space = action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    steps = 0

    def reset(self):
        return np.zeros(1, np.float32)

    def step(self, action):
        self.steps += 1
        if self.steps > 300:  # in the first gradient steps, while TensorFlow compiles them
            raise RuntimeError("out of order")
        return np.zeros(1, np.float32), 0.0, False, {}

config = labkit.SACConfig(**{**conftest.SMALL, "eval_interval": 0}, env_name="Failing")
labkit.train(config, labkit.open_run(sys.argv[1], config), make_env=Failing)
"""


def test_an_environment_that_fails_during_compilation_does_not_abort_python(tmp_path):
    command = [sys.executable, "-c", FAILS_EARLY, str(tmp_path), str(Path(__file__).parents[1])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert "out of order" in done.stderr
    assert done.returncode == 1, done.stderr[-2000:]


def test_the_last_policy_is_saved_before_its_score(small_config, tmp_path, monkeypatch):
    """A process that is killed right after the score leaves both."""
    order = []

    def note(name):
        real = getattr(logger.RunLogger, name)
        monkeypatch.setattr(
            logger.RunLogger, name, lambda *given: order.append(name) or real(*given)
        )

    note("save_policy")
    note("log_evaluation")
    config = small_config(env_name="Target", num_iterations=5)
    labkit.train(config, open_run(tmp_path, config), make_env=Target)
    assert order == ["log_evaluation", "save_policy", "log_evaluation"]


def test_saved_policy_needs_no_labkit(minitaur_run, tmp_path):
    """Loaded in a process that never imports labkit, it acts as it does here."""
    script = """
import os, sys
os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3")
import numpy as np, tensorflow as tf
from tf_agents.trajectories import time_step as ts
policy = tf.saved_model.load(sys.argv[1])
observations = np.load(sys.argv[2])
np.save(sys.argv[3], policy.action(ts.restart(observations, batch_size=len(observations))).action)
assert "labkit" not in sys.modules
"""
    observations = np.random.default_rng(0).normal(size=(4, 28)).astype(np.float32)
    np.save(tmp_path / "in.npy", observations)
    arguments = [minitaur_run.path / "policy", tmp_path / "in.npy", tmp_path / "out.npy"]
    subprocess.run([sys.executable, "-c", script, *map(str, arguments)], check=True, timeout=120)
    actions = np.load(tmp_path / "out.npy")
    again = tf.saved_model.load(str(minitaur_run.path / "policy"))
    here = again.action(time_step.restart(observations, batch_size=4)).action
    np.testing.assert_allclose(actions, here, atol=1e-6)
    assert actions.shape == (4, 8)
    assert np.abs(actions).max() <= 1


class Target(gym.Env):
    """Pays most for the action 0.5, in episodes of one step: SAC must find it."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self):
        return np.zeros(1, np.float32)

    def step(self, action):
        return np.zeros(1, np.float32), -float((action[0] - 0.5) ** 2), True, {}


def test_without_a_run_it_trains_in_the_next_directory(small_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = labkit.train(small_config(env_name="Target"), make_env=Target)
    assert str(run.path) == "runs/0001"
    assert run.metrics().eval_return.notna().any()


def test_it_closes_the_environments_that_it_made(small_config, tmp_path):
    closed = []

    class Closing(Target):
        def close(self):
            closed.append(self)

    config = small_config(env_name="Target")
    labkit.train(config, open_run(tmp_path, config), make_env=Closing)
    assert len({id(env) for env in closed}) == len(closed) == 2


def test_an_environment_that_cannot_be_closed_ends_no_training(small_config, tmp_path, capsys):
    class Stuck(Target):
        def close(self):
            raise OSError("the port is gone\nlater")

    config = small_config(env_name="Target")
    run = labkit.train(config, open_run(tmp_path, config), make_env=Stuck)
    assert run.metrics().eval_return.notna().any()
    line = "the environment could not be closed: OSError: the port is gone\n"
    assert capsys.readouterr().out.count(line) == 2


def test_an_agent_with_another_action_repeat_is_rejected(small_config, tmp_path):
    config = small_config(env_name="Target", replay="tf_uniform")
    made = components.build(config, Target)
    again = attrs.evolve(config, action_repeat=2)
    with pytest.raises(labkit.ParameterError, match=r"`action_repeat` must be 1, as in the agent"):
        labkit.train(again, open_run(tmp_path, again), made)
    made.close()


@pytest.mark.parametrize("replay", ["tf_uniform", "reverb"])
def test_components_with_an_empty_table_are_rejected(replay, small_config, tmp_path):
    config = small_config(env_name="Target", replay=replay)
    made = components.build(config, Target)
    run = open_run(tmp_path, config)
    with pytest.raises(
        labkit.ParameterError, match=r"`components` must have a filled replay .*empty"
    ):
        labkit.train(config, run, made)
    components.warm_up(config, made)
    assert labkit.train(config, run, made).metrics().eval_return.notna().any()
    made.close()


def test_components_that_were_trained_without_a_checkpoint_are_rejected(small_config, tmp_path):
    """As the training cell of a notebook that is run again after it was interrupted twice."""
    config = small_config(env_name="Target")
    run = open_run(tmp_path, config)
    made = components.build(config, Target)
    components.warm_up(config, made)
    begun = local.LocalTraining(config, run, made)
    with local.BackgroundThread("gradient steps") as thread:
        begun.iterate(thread, StopRequest())
    with pytest.raises(labkit.ParameterError, match="`components` must be new, but their agent"):
        labkit.train(config, run, made)
    made.close()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gamma": 0.5}, r"`gamma` must be 0\.9\d*, as in the agent of `components`, got 0\.5"),
        ({"reward_scale_factor": 3.0}, "`reward_scale_factor` must be"),
        ({"actor_update_period": 7}, "`actor_update_period` must be"),
        ({"env_name": "MinitaurBulletEnv-v0"}, "name for the environment of `components`, "),
    ],
)
def test_components_of_another_configuration_are_rejected(
    changed, message, small_config, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    made = components.build(small_config(env_name="Target", replay="tf_uniform"), Target)
    fields = {"env_name": "Target", "replay": "tf_uniform", **changed}
    with pytest.raises(labkit.ParameterError, match=message):
        labkit.train(small_config(**fields), components=made)
    assert list(tmp_path.iterdir()) == []
    made.close()


def test_components_with_another_kind_of_agent_are_rejected(small_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = components.build(small_config(env_name="Target", replay="tf_uniform"), Target)
    made.agent = object()
    with pytest.raises(labkit.ParameterError, match=r"`components\.agent` must be a SeededSacAg"):
        labkit.train(small_config(env_name="Target", replay="tf_uniform"), components=made)
    made.close()


def test_errors_about_the_environments_of_components_name_components(small_config):
    config = small_config(env_name="Target", replay="tf_uniform")
    made = components.build(config, Target)
    other, made.eval_env = made.eval_env, made.collect_env
    with pytest.raises(labkit.ParameterError, match=r"^`components` must be .* got the same env"):
        labkit.train(config, components=made)
    made.eval_env, made.collect_env = other, labkit.make_environment("CartPole-v1")
    with pytest.raises(labkit.ParameterError, match=r"^`components` must be .* `observation_spa"):
        labkit.train(config, components=made)
    made.eval_env = labkit.make_environment("CartPole-v1")
    expected = r"^`components\.collect_env` must be an environment whose actions"
    with pytest.raises(labkit.ParameterError, match=expected):
        labkit.train(config, components=made)
    made.close()


def test_an_open_port_is_announced(small_config, monkeypatch, capsys):
    monkeypatch.setattr(ports, "faces_outward", lambda: True)
    ports.warn_once.cache_clear()
    components.open_replay(small_config(), Layout(1, 1)).close()
    assert ports.WARNING in capsys.readouterr().out
    ports.warn_once.cache_clear()


def test_an_action_that_is_not_a_number_is_named():
    env = make_environment("Pendulum-v1", seed=0)
    collector = Collector(env, lambda _: np.full(1, np.nan, np.float32), lambda _: None)
    with pytest.raises(DivergedError, match=r"^action\[0\] is nan at env step \d: "):
        collector.run(1)


@pytest.mark.parametrize(("every", "due"), [(0, False), (50, False), (10, True)])
def test_a_checkpoint_is_due_after_its_seconds(small_config, every, due):
    config = small_config(checkpoint_seconds=every)
    clock = {"seconds": lambda: 30.0, "_saved_seconds": 10.0}
    waiting = SimpleNamespace(config=config, _due=bool, **clock)
    assert learner.Learner.checkpoint_due(waiting) is due


def test_rows_of_a_run_without_a_checkpoint_are_not_removed_silently(
    small_config, tmp_path, capsys
):
    config = small_config(env_name="Target", replay="tf_uniform")
    run = open_run(tmp_path, config)
    run.log(env_step=305, gradient_step=5)
    labkit.train(config, run, make_env=Target)
    aside = tmp_path / "metrics-1.csv"
    line = f"{tmp_path} has no checkpoint: it begins anew; its rows are in {aside}\n"
    assert capsys.readouterr().out.startswith(line)
    assert aside.read_text().splitlines()[1].startswith("305,5,")
    assert run.metrics().gradient_step.max() == config.num_iterations


@pytest.mark.parametrize("replay", ["reverb", "tf_uniform"])
def test_a_relative_run_directory_outlasts_a_change_of_the_working_directory(
    replay, small_config, tmp_path, monkeypatch
):
    class Moving(Target):
        def step(self, action):
            monkeypatch.chdir(tmp_path / "b")
            return super().step(action)

    for name in "ab":
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    config = small_config(env_name="Target", replay=replay, checkpoint_interval=10)
    run = open_run("run", config)
    assert str(run.path) == "run"
    monkeypatch.chdir(tmp_path / "a")
    assert run.path == tmp_path / "run"
    monkeypatch.chdir(tmp_path)
    labkit.train(config, run, make_env=Moving)
    assert run.metrics().gradient_step.max() == config.num_iterations
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "run"]
    assert list((tmp_path / "b").iterdir()) == list((tmp_path / "a").iterdir()) == []
    assert {"checkpoints", "events", "policy"} <= {path.name for path in run.path.iterdir()}


def test_it_learns_in_a_users_own_environment(small_config, tmp_path):
    config = small_config(
        env_name="Target",
        num_iterations=800,
        initial_log_alpha=-6,
        critic_learning_rate=3e-3,
        actor_learning_rate=3e-3,
        eval_interval=800,
        num_eval_episodes=3,
    )
    run = labkit.train(config, open_run(tmp_path, config), make_env=Target)
    returns = run.metrics().eval_return.dropna()
    assert returns.iloc[0] < -0.1  # untrained: near 0
    assert returns.iloc[-1] > -0.01  # within 0.1 of the best action


def test_without_intervals_only_the_end_is_evaluated_and_logged(small_config, tmp_path):
    none = {"eval_interval": 0, "log_interval": 0}
    config = small_config(env_name="Target", num_iterations=20, **none)
    run = labkit.train(config, open_run(tmp_path, config), make_env=Target)
    evaluated = run.metrics().dropna(subset="eval_return")
    assert evaluated.gradient_step.tolist() == [20]
    assert run.metrics().dropna(subset="critic_loss").gradient_step.tolist() == [20]


def written(folder, tag):
    """The gradient steps at which TensorBoard shows the scalar `tag`."""
    events = itertools.chain.from_iterable(
        tf.compat.v1.train.summary_iterator(str(file))
        for file in sorted(folder.rglob("*tfevents*"))
    )
    return [event.step for event in events for value in event.summary.value if value.tag == tag]


def test_a_finished_run_goes_on_when_asked_for_more(small_config, tmp_path):
    for total in (20, 30):
        config = small_config(env_name="Target", num_iterations=total)
        labkit.train(config, open_run(tmp_path, config), make_env=Target)
    table = read_metrics(tmp_path)
    evaluated = table[table.eval_return.notna()]
    assert evaluated.gradient_step.tolist() == [0, 10, 20, 30]
    assert [len(row) for row in evaluated.eval_returns] == [1, 1, 2, 2]
    logged = table[table.critic_loss.notna()]
    assert logged.gradient_step.tolist() == list(range(5, 31, 5))
    assert logged.env_step.tolist() == list(range(305, 331, 5))
    assert written(tmp_path / "events", "critic_loss") == list(range(5, 31, 5))
    assert written(tmp_path / "events", "eval_return") == [0, 10, 20, 30]


@pytest.mark.parametrize(("bootstrap", "discount"), [(True, 1.0), (False, 0.0)])
def test_the_end_of_time_is_collected_as_the_configuration_says(
    bootstrap, discount, small_config, monkeypatch
):
    """Of the environment that fills the table; the evaluated one ends as it is registered to."""
    check_name("MinitaurBulletEnv-v0")  # PyBullet registers it
    short = gym.spec("MinitaurBulletEnv-v0")
    monkeypatch.setattr(short, "max_episode_steps", 3)
    made = components.build(small_config(bootstrap_time_limits=bootstrap))
    made.close()
    for env, expected in ((made.collect_env, discount), (made.eval_env, 1.0)):
        steps = [env.reset(), *(env.step(np.zeros(8, np.float32)) for _ in range(3))]
        assert [float(step.discount) for step in steps[1:]] == [1.0, 1.0, expected]
        assert [bool(step.is_last()) for step in steps] == [False, False, False, True]


def test_one_interrupt_stops_an_evaluation_between_two_env_steps(small_config, tmp_path, capsys):
    class Endless(Target):
        """Never ends; the 350th step of both environments, in the first evaluation, is Ctrl-C."""

        taken = 0

        def step(self, action):
            Endless.taken += 1
            if Endless.taken == 350:
                os.kill(os.getpid(), signal.SIGINT)
            return np.zeros(1, np.float32), 0.0, False, {}

    config = small_config(env_name="Endless")
    run = labkit.train(config, open_run(tmp_path, config), make_env=Endless)
    assert Endless.taken == 350
    printed = capsys.readouterr()
    assert "stopped at gradient step 0 of 20" in printed.out
    assert printed.err.count("stopping after this iteration; interrupt once more") == 1
    assert run.metrics().eval_return.isna().all(), "an unfinished evaluation does not count"


def test_training_again_after_the_end_adds_no_evaluation(small_config, tmp_path):
    """As the cell of a notebook that is run again: with the same run and components."""
    config = small_config(env_name="Target")
    run = open_run(tmp_path, config)
    made = components.build(config, make_env=Target)
    components.warm_up(config, made)
    tables = [labkit.train(config, run, made).metrics() for _ in range(3)]
    made.close()
    looked_at = components.build(config, make_env=Target)
    looked_at.load(run.path)
    assert looked_at.env_steps == tables[0].env_step.max()
    looked_at.close()
    for again in tables[1:]:
        pd.testing.assert_frame_equal(again, tables[0])
    assert (tables[0].eval_return.notna() & (tables[0].gradient_step == 20)).sum() == 1


KILLED = """
import os, sys
sys.path[:0] = sys.argv[2:]
import labkit, conftest, test_local
for replay in ("reverb", "tf_uniform"):
    config = labkit.SACConfig(**conftest.SMALL, env_name="Target", replay=replay)
    run = labkit.open_run(f"{sys.argv[1]}/{replay}", config)
    labkit.train(config, run, make_env=test_local.Target)
os._exit(9)
"""


def test_a_killed_training_leaves_no_files_of_autograph(tmp_path):
    """AutoGraph deletes the sources that it writes only when Python exits by itself."""
    (tmp_path / "tmp").mkdir()
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "runs"), *folders],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 9, done.stderr[-3000:]
    assert list((tmp_path / "tmp").glob("__autograph*")) == []


class Broken(Target):
    """Its reward, squared, is more than a float32 can hold."""

    def step(self, action):
        return np.zeros(1, np.float32), 1e30, True, {}


def test_an_infinite_loss_is_named(small_config, tmp_path):
    config = small_config(env_name="Broken", eval_interval=0)
    with pytest.raises(DivergedError, match=r"critic loss .* gradient step 1; last good"):
        labkit.train(config, open_run(tmp_path, config), make_env=Broken)


def test_weights_that_are_not_numbers_are_not_saved(small_config, tmp_path, monkeypatch):
    """The loss of the step that makes them may still be finite; nothing resumes from them."""
    take_steps = learner.Learner.gradient_steps

    def overflow(self, count):
        result = take_steps(self, count)
        weights = self.agent._critic_network_1.trainable_variables[0]
        weights.assign(tf.fill(weights.shape, np.nan))
        return result

    monkeypatch.setattr(learner.Learner, "gradient_steps", overflow)
    config = small_config(env_name="Target", num_iterations=1, eval_interval=0)
    run = open_run(tmp_path / "run", config)
    with pytest.raises(DivergedError, match=r"weights .* gradient step 1; .* none yet"):
        labkit.train(config, run, make_env=Target)
    assert not list((run.path / "checkpoints").glob("0*"))


def test_an_environment_may_change_the_directory(small_config, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()

    def make():
        os.chdir(tmp_path / "elsewhere")
        return Target()

    warmed, warm_up = [], components.warm_up
    counted = lambda *args, **options: warmed.append(1) or warm_up(*args, **options)  # noqa: E731
    monkeypatch.setattr(local, "warm_up", counted)
    config = small_config(env_name="Target", eval_interval=0)
    for total in (config.num_iterations, config.num_iterations + 2):
        monkeypatch.chdir(tmp_path)
        longer = attrs.evolve(config, num_iterations=total)
        labkit.train(longer, open_run("run", longer), make_env=make)
    assert len(warmed) == 1, "the second start resumed the first"
    assert read_metrics(tmp_path / "run").gradient_step.max() == total


def flat(policy):
    """All weights and biases of a NumPy policy, in one vector."""
    return np.concatenate([array.ravel() for layer in policy._layers for array in layer])


def test_the_policy_that_collects_is_the_newest(small_config, tmp_path):
    """After the last iteration the collecting policy holds the last gradient step's weights."""
    config = small_config(env_name="Target", num_iterations=3)
    made = components.build(config, make_env=Target)
    components.warm_up(config, made)
    done = local.LocalTraining(config, open_run(tmp_path, config), made)
    before = flat(done.policy)
    done.execute(stop=StopRequest())
    np.testing.assert_array_equal(flat(done.policy), flat(ActorPolicy(made.agent)))
    assert (flat(done.policy) != before).any()
    assert made.env_steps == 303
    made.close()
    made.close()  # twice is harmless


@pytest.mark.parametrize("replay", ["reverb", "tf_uniform"])
def test_the_next_call_can_sample_what_this_one_collected(replay, small_config, tmp_path):
    config = small_config(env_name="Target", log_interval=0, eval_interval=0, replay=replay)
    made = components.build(config, make_env=Target)
    components.warm_up(config, made)
    begun = local.LocalTraining(config, open_run(tmp_path, config), made)
    with local.BackgroundThread("gradient steps") as thread:
        assert begun.iterate(thread, StopRequest()) == 10
    assert made.replay.size() == 310
    made.close()


WITHOUT_REVERB = """
import os, signal, sys
sys.path[:0] = sys.argv[2:]
import gym, numpy as np
import labkit, conftest
from labkit.training import components

class Counter(gym.Env):
    observation_space = gym.spaces.Box(-1e6, 1e6, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    steps = 0

    def reset(self):
        return np.array([self.steps], np.float32)

    def step(self, action):
        self.steps += 1
        if self.steps == 310:
            os.kill(os.getpid(), signal.SIGINT)
        return np.array([self.steps], np.float32), 0.0, self.steps % 50 == 0, {}

config = labkit.SACConfig(**conftest.SMALL, env_name="Counter", replay="tf_uniform")
run = labkit.open_run(sys.argv[1], config)
labkit.train(config, run, make_env=Counter)
made = components.build(config, Counter)
labkit.train(config, run, made)
assert made.replay.size() == 320, made.replay.size()
rows = made.replay.sample(1000)
assert (rows[:, -1] - rows[:, 0] == 1).all(), "a row joins two episodes"
assert (rows[:, 3] == 0).any()
assert "reverb" not in sys.modules
try:
    labkit.train(labkit.SACConfig(**conftest.SMALL, env_name="Counter"), make_env=Counter)
except labkit.ParameterError as error:
    print(error)
"""


def test_training_and_resuming_without_reverb(tmp_path):
    """Where Reverb has no wheels, TF-Agents' own buffer takes its place."""
    (tmp_path / "reverb").mkdir()
    (tmp_path / "reverb" / "__init__.py").write_text("raise ImportError('no wheel here')\n")
    folders = [str(tmp_path), str(Path(__file__).parents[1])]
    command = [sys.executable, "-c", WITHOUT_REVERB, str(tmp_path / "run"), *folders]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "stopped at gradient step 10 of 20" in done.stdout
    assert done.stdout.splitlines()[-1] == (
        "`replay` must be 'tf_uniform' here, where Reverb cannot be imported (no wheel here), "
        "got 'reverb'"
    )


def test_sac_does_not_mask_a_window_across_episodes(small_config):
    """Why `uniform.windows` drops them: the critic would learn from what never happened."""
    env = make_environment("MinitaurBulletEnv-v0", seed=0)
    agent = agents.create_agent(small_config(), env, tf.distribute.get_strategy())
    zeros = tf.nest.map_structure(
        lambda spec: np.zeros((2, 2, *spec.shape), spec.dtype.as_numpy_dtype),
        agent.collect_data_spec,
    )
    types = np.array([[1, 1], [2, 0]], np.int32)  # MID → MID, LAST → FIRST
    reward = np.array([[0, 0], [1000, 0]], np.float32)
    windows = zeros._replace(step_type=types, next_step_type=types[:, ::-1], reward=reward)
    windows = tf.nest.map_structure(tf.constant, windows)
    assert agent.loss(windows).extra.critic_loss > 1e5


@pytest.mark.parametrize("kind", ["reverb", "tf_uniform"])
def test_a_run_of_version_0_1_resumes(kind, tmp_path):
    """Its checkpoint was written before labkit's modules became packages."""
    config = old_runs.copy(kind, tmp_path / "run", num_iterations=70)
    before = read_metrics(tmp_path / "run")
    run = labkit.train(config, labkit.open_run(tmp_path / "run", config))
    table = run.metrics()
    columns = ["gradient_step", "env_step", "critic_loss", "eval_return"]
    pd.testing.assert_frame_equal(table[columns].head(len(before)), before[columns])
    added = table.iloc[len(before) :]
    assert added.gradient_step.tolist() == [65, 70, 70]  # two rows of losses, one evaluation
    assert added.env_step.tolist() == [365, 370, 370]
    assert len(added.eval_returns.iloc[-1]) == config.num_eval_episodes


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("metrics_bytes", None, "it lacks 'metrics_bytes'"),
        ("executor", "other", "it names no executor of labkit, but 'other'"),
        ("losses", [1, 2], "cannot reshape"),
        ("collector", None, "it lacks 'collector'"),
        ("noise", {"bit_generator": "?"}, "state must be for a PCG64"),
        ("environment", {}, "it lacks 'python'"),
    ],
)
def test_a_wrong_key_in_a_checkpoint_without_checksums_is_named(key, value, message, tmp_path):
    """As version 0.1 wrote them; with checksums the change itself is found."""
    config = old_runs.copy("tf_uniform", tmp_path / "run", num_iterations=70)
    file = tmp_path / "run" / "checkpoints" / "000000060" / "state.json"
    state = json.loads(file.read_text())
    state.pop(key, None)
    file.write_text(json.dumps(state if value is None else {**state, key: value}))
    with pytest.raises(labkit.ParameterError, match=rf"state\.json is damaged: {message}") as error:
        labkit.train(config, labkit.open_run(tmp_path / "run", config))
    assert "\n" not in str(error.value)


def test_a_run_with_a_removed_parameter_is_not_resumed(tmp_path):
    config = old_runs.copy("tf_uniform", tmp_path / "run", num_iterations=70)
    shutil.copy(old_runs.FOLDER / "tf_uniform" / "config.json", tmp_path / "run")
    with pytest.raises(labkit.ParameterError, match=r"greedy_share 0\.3 there, which was removed"):
        labkit.train(config, labkit.open_run(tmp_path / "run", config))


def test_a_run_of_another_configuration_is_rejected(small_config, tmp_path):
    run = labkit.open_run(tmp_path, small_config(env_name="Target"))
    with pytest.raises(labkit.ParameterError, match=r"`run_dir` must be .*gamma is 0\.99"):
        labkit.train(small_config(env_name="Target", gamma=0.9), run, make_env=Target)
    assert not (tmp_path / "checkpoints").exists()


def test_make_env_together_with_components_is_rejected(small_config):
    made = object()
    with pytest.raises(labkit.ParameterError, match="`make_env` must be None if `components`"):
        labkit.train(small_config(), components=made, make_env=Target)
