"""What a user sees for each of many mistakes: one line that names what is wrong; nothing is lost.

The table below is the documentation: what was done, and how the line begins.
"""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import Future

import gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from tf_agents.environments.random_py_environment import RandomPyEnvironment
from tf_agents.specs.array_spec import BoundedArraySpec

import labkit
from labkit.config import SACConfig
from labkit.environments.make import make_environment
from labkit.errors import (
    BrokenEnvironmentError,
    ParameterError,
    RunError,
    StalledError,
    StorageError,
)
from labkit.replay import reverb_replay
from labkit.sac.rollout import Evaluation
from labkit.training import checkpoint, local
from labkit.training.local import LocalTraining
from labkit.training.run import open_run, read_metrics, start_run

BOX = gym.spaces.Box(-1, 1, (1,), np.float32)

PARAMETERS = [
    ({"num_iterations": 0}, "`num_iterations` must be a whole number from 1.*, got 0"),
    ({"num_iterations": 1.5}, "`num_iterations` must be .*, got 1.5"),
    ({"num_iterations": "many"}, "`num_iterations` must be .*, got 'many'"),
    ({"num_iterations": float("nan")}, "`num_iterations` must be .*, got nan"),
    ({"num_iterations": 10**12}, "`num_iterations` must be .*, got 1000000000000"),
    ({"num_iterations": [5]}, r"`num_iterations` must be .*, got \[5\]"),
    ({"num_iterations": "__import__('os')"}, r"`num_iterations` must be .*, got .*"),
    ({"seed": -1}, "`seed` must be .*, got -1"),
    ({"seed": True}, "`seed` must be .*, got True"),
    ({"batch_size": 0}, "`batch_size` must be .*, got 0"),
    (
        {"batch_size": 10, "replay_buffer_capacity": 5},
        "`replay_buffer_capacity` must be at least `batch_size` = 10 .*, got 5",
    ),
    ({"gamma": 1.01}, "`gamma` must be a number from 0 to 1.*, got 1.01"),
    ({"gamma": "0,99"}, "`gamma` must be .*, got '0,99'"),
    (
        {"critic_learning_rate": 0},
        "`critic_learning_rate` must be a number above 0.*, got 0",
    ),
    ({"actor_learning_rate": float("inf")}, "`actor_learning_rate` must be .*, got inf"),
    ({"target_update_tau": 2}, "`target_update_tau` must be .*, got 2"),
    ({"greedy_share": 0.3}, "`greedy_share` was removed: the policy's noise is in every episode"),
    ({"reward_scale_factor": "None or so"}, "`reward_scale_factor` must be .*, got 'None or so'"),
    ({"actor_fc_layer_params": "(256, )x"}, r"`actor_fc_layer_params` must be .*, got .*"),
    ({"actor_fc_layer_params": (0,)}, r"`actor_fc_layer_params` must be .*, got \(0,\)"),
    ({"observation_scale": (1, 0)}, r"`observation_scale` must be .*, got \(1, 0\)"),
    (
        {"observation_scale": (1e-60, 1, 1)},
        r"`observation_scale` must be 0 to 100000 numbers from 1e-09 to 1e\+09, such as "
        r"\(3.14, 20\), or None, got \(1e-60, 1, 1\)$",
    ),
    ({"strategy": "mirrored:0"}, "`strategy` must be .*, got 'mirrored:0'"),
    ({"strategy": "gpus"}, "`strategy` must be .*, got 'gpus'"),
    ({"replay": "redis"}, "`replay` must be 'reverb' or 'tf_uniform'.*, got 'redis'"),
    ({"steps_per_call": 0}, "`steps_per_call` must be .*, got 0"),
    ({"checkpoint_seconds": -5}, "`checkpoint_seconds` must be .*, got -5"),
    ({"environment_timeout": "soon"}, "`environment_timeout` must be .*, got 'soon'"),
    (
        {"env_name": "MinitaurBulletEnv"},
        "`env_name` must be .*, got 'MinitaurBulletEnv'; did you mean",
    ),
    ({"env_name": ""}, "`env_name` must be .*, got ''"),
    ({"env_name": 7}, "`env_name` must be .*, got 7"),
    ({"num_iteration": 5}, "`num_iteration` is not a parameter; did you mean 'num_iterations'"),
    ({"gamma": 10**5000}, "`gamma` must be .*, got a value of type int that cannot be printed"),
    ({"replay": 10**5000}, "`replay` must be .*, got a value of type int that cannot be printed"),
    (
        {"bootstrap_time_limits": 10**5000},
        "`bootstrap_time_limits` must be .*, got a value of type int that cannot be printed",
    ),
    ({"seed": "9" * 5000}, f"`seed` must be .*, got '{'9' * 79}…$"),
    ({"x" * 5000: 1}, f"`'{'x' * 79}…` is not a parameter$"),
    ({7: 1}, "`7` is not a parameter$"),
    ({"resume": "always"}, "`resume` must be 'auto' or 'never'.*, got 'always'"),
    (
        {"run_dir": "/proc/none"},
        "`run_dir` must be a directory that this process can create .*, got",
    ),
    (
        {"run_dir": "a\0b"},
        "`run_dir` must be a directory that this process can create .*, got",
    ),
]


def nested(depth):
    """Lists within lists, as a JSON file may hold them."""
    value = []
    for _ in range(depth):
        value = [value]
    return value


PARAMETERS += [
    ({"observation_scale": nested(10**4)}, "`observation_scale` must be .*, got a value of type l"),
    ({"observation_scale": nested(9)}, r"`observation_scale` must be .*, got \[\[\[\[\[\[\[\[\["),
    ({"gamma": {"value": 0.9}}, "`gamma` must be .*, got {'value': 0.9}"),
]


@pytest.mark.parametrize("given_", [[{"gamma": 0.9}], "gamma", None, 5])
def test_parameters_that_are_no_dictionary(given_):
    with pytest.raises(ParameterError, match=r"^`parameters` must be a dictionary from names"):
        SACConfig.parse(given_)


@pytest.mark.parametrize("executor", [labkit.train, labkit.train_on_ray])
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            {"config": {"gamma": 0.98}},
            r"`config` must be .* SACConfig.parse\(\{'gamma'.*, got",
        ),
        ({"config": None}, "`config` must be an SACConfig, .*, got None"),
        ({"config": SACConfig}, "`config` must be an SACConfig, .*, got <class"),
        ({"run": "r1"}, r"`run` must be None, or what labkit.open_run\(.* returns, got 'r1'"),
    ],
)
def test_arguments_of_another_type(
    tmp_path, monkeypatch, small_config, executor, arguments, expected
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match=f"^{expected}") as caught:
        executor(**{"config": small_config(), **arguments})
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


def test_a_dictionary_is_no_configuration(tmp_path):
    with pytest.raises(ParameterError, match=r"^`config` must be .*SACConfig.parse\(.*, got \{\}$"):
        labkit.open_run(tmp_path / "run", {})
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


def test_components_of_another_type(tmp_path, monkeypatch, small_config):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match=r"^`components` must be None, or .*, got \{\}$"):
        labkit.train(small_config(), components={})
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"episodes": 0}, r"`episodes` must be a whole number from 1 .*, got 0"),
        ({"episodes": "three"}, "`episodes` must be a whole number from 1 .*, got 'three'"),
        ({"seed": -1}, "`seed` must be a whole number from 0 .*, got -1"),
        (
            {"env": "Pendulum-v1"},
            r"`env` must be what labkit.make_environment\(.* got 'Pendulum-v1'",
        ),
        (
            {"env": RandomPyEnvironment(*[BoundedArraySpec((1,), np.float32)] * 2)},
            r"`env` must be what labkit.make_environment\(.* got <",
        ),
        ({"env": gym.make("Pendulum-v1")}, r"`env` must be what labkit.make_environment\(.* got <"),
        (
            {"policy": None},
            "`policy` must be a function from an observation to an action, got None",
        ),
        *(
            ({"policy": policy}, rf"`policy` must return actions of shape \(1,\), got {got}")
            for policy, got in (
                (lambda _: np.zeros(3), r"array\(\[0"),
                (lambda _: np.zeros((2, 2)), r"array\(\[\[0"),
                (lambda _: None, "None"),
                (lambda _: "left", "'left'"),
            )
        ),
    ],
)
def test_evaluations(arguments, expected):
    good = {"env": make_environment("Pendulum-v1"), "episodes": 1, "seed": 0}
    good["policy"] = lambda _: np.zeros(1, np.float32)
    with pytest.raises(ParameterError, match=f"^{expected}") as caught:
        labkit.evaluate(**{**good, **arguments})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("given_", "expected"), PARAMETERS)
def test_parameters(tmp_path, monkeypatch, given_, expected):
    monkeypatch.chdir(tmp_path)
    ours = {k: v for k, v in given_.items() if k not in ("run_dir", "resume")}
    with pytest.raises(ParameterError, match=f"^{expected}") as caught:  # noqa: PT012
        SACConfig.parse(ours)
        start_run(given_)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


def finished(path):
    run = open_run(path, SACConfig(num_iterations=5))
    score = Evaluation((1.0,) * 20, (9.0,) * 20, (0.0,) * 20)
    run.log_evaluation(score, env_step=5, gradient_step=5, wall_seconds=1)


def edit_config(**changes):
    def damage(path):
        run = open_run(path, SACConfig(num_iterations=5))
        run.log(env_step=301, gradient_step=1)
        content = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**content, **changes}))

    return damage


def overwrite(name, text):
    def damage(path):
        open_run(path, SACConfig(num_iterations=5))
        (path / name).write_text(text)

    return damage


FILES = [
    (finished, "`run_dir` must be a new directory.* a finished run is never overwritten"),
    (overwrite("config.json", "{"), r".*config\.json is damaged: it is not the JSON"),
    (overwrite("config.json", "[]"), r".*config\.json is damaged"),
    (edit_config(format=2), r".*config\.json has format 2; this labkit reads format 1"),
    (edit_config(format=0), r".*config\.json has format 0; this labkit reads format 1"),
    (edit_config(config={"gamma": 7}), r".*config\.json is damaged: `gamma` must be .*, got 7"),
    (edit_config(config={"colour": 7}), r".*config\.json is damaged: `colour` is not a parameter"),
    (
        edit_config(config={"seed": 9}),
        "`run_dir` must be a new directory or a run of this config",
    ),
    (overwrite("metrics.csv", "a,b\n1,2\n"), r".*metrics\.csv is damaged: it lacks the column"),
    (overwrite("metrics.csv", ""), r".*metrics\.csv cannot be read"),
    (overwrite("metrics.csv", '"\n'), r".*metrics\.csv (cannot be read|is damaged)"),
]


@pytest.mark.parametrize(("damage", "expected"), FILES)
def test_files(tmp_path, damage, expected):
    path = tmp_path / "run"
    damage(path)
    before = {file: file.read_bytes() for file in path.iterdir() if file.is_file()}
    with pytest.raises(ParameterError, match=f"^{expected}") as caught:
        open_run(path, SACConfig(num_iterations=5))
    assert "\n" not in str(caught.value)
    assert {file: file.read_bytes() for file in before} == before, "nothing was overwritten"


class Env(gym.Env):
    """One number in, one number out; `answer` makes it misbehave from its 310th step on."""

    observation_space = BOX
    action_space = BOX
    steps = 0

    def reset(self):
        return np.zeros(1, np.float32)

    def step(self, action):
        self.steps += 1
        good = (np.zeros(1, np.float32), 0.0, self.steps % 20 == 0, {})
        return self.answer(*good) if self.steps >= 310 else good

    def answer(self, *good):
        return good


def env(**attributes):
    return type("Mine", (Env,), attributes)


NAN = np.array([np.nan], np.float32)
ALWAYS_THE_SAME = env()()
ENVIRONMENTS = [
    (
        env(answer=lambda self, o, r, d, i: (NAN, r, d, i)),
        BrokenEnvironmentError,
        r"the environment's observation\[0\] is nan at its env step 310, step 10 of the episode; "
        "last good checkpoint: .*5$",
    ),
    (
        env(answer=lambda self, o, r, d, i: (o, float("inf"), d, i)),
        BrokenEnvironmentError,
        "the environment's reward is inf at its env step 310, step 10 of the episode; last good ",
    ),
    (
        env(answer=lambda self, o, r, d, i: (np.zeros(2, np.float32), r, d, i)),
        BrokenEnvironmentError,
        r"the environment's observation has shape \(2,\), not \(1,\), at its env step 310",
    ),
    (
        env(answer=lambda self, o, r, d, i: (o, None, d, i)),
        BrokenEnvironmentError,
        "the environment's reward must be one number, got None at its env step 310.* checkpoint: ",
    ),
    (
        env(reset=lambda self: NAN),
        BrokenEnvironmentError,
        r"the environment's observation\[0\] is nan after its reset at env step 0; last good "
        "checkpoint: none yet$",
    ),
    (
        env(step=lambda self, action: (np.zeros(1, np.float32), NAN[0], False, {})),
        BrokenEnvironmentError,
        "the environment's reward is nan at its env step 1, .*; last good checkpoint: none yet$",
    ),
    (
        env()(),
        ParameterError,
        "`make_env` must be a class or .* a new Gym or Gymnasium environment each time",
    ),
    (
        lambda: None,
        ParameterError,
        "`make_env` must be .* a gym.Env of Gym 0.23, or a gymnasium.Env, got None",
    ),
    (
        lambda: ALWAYS_THE_SAME,
        ParameterError,
        "`make_env` must be .* a new Gym or Gymnasium environment each time, got the same .* twice",
    ),
    (
        env(observation_space=gym.spaces.Dict({"a": BOX})),
        ParameterError,
        "`make_env` must be an environment whose observations are one vector of real numbers",
    ),
    (
        env(observation_space=gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)),
        ParameterError,
        r"`make_env` must be .* observations of shape \(8, 8, 3\) and dtype uint8",
    ),
    (
        env(action_space=gym.spaces.Discrete(2)),
        ParameterError,
        "`make_env` must be an environment whose actions are one vector of real numbers",
    ),
    (
        env(action_space=gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)),
        ParameterError,
        "`make_env` must be an environment with bounded actions",
    ),
]


@pytest.mark.parametrize(("make", "kind", "expected"), ENVIRONMENTS)
def test_environments(tmp_path, small_config, make, kind, expected):
    config = small_config(env_name="Mine", checkpoint_interval=5, steps_per_call=5)
    with pytest.raises(kind, match=f"^{expected}") as caught:
        labkit.train(config, open_run(tmp_path / "run", config), make_env=make)
    assert "\n" not in str(caught.value)


def test_the_values_of_the_minitaur_are_not_for_a_user_s_own_environment(tmp_path, small_config):
    config = small_config()  # with the default `env_name`
    expected = "^`env_name` must be a name for the environment of `make_env`, such as 'Mine': this"
    with pytest.raises(ParameterError, match=expected) as caught:
        labkit.train(config, open_run(tmp_path / "run", config), make_env=env())
    assert str(caught.value).endswith("got 'MinitaurBulletEnv-v0'")
    with pytest.raises(ParameterError, match=expected):
        labkit.train_on_ray(config, make_env=env())
    import pybullet_envs  # noqa: F401  (registers the Minitaur)

    own = gym.make("MinitaurBulletEnv-v0")  # the Minitaur, wrapped by the user
    labkit.training.components.check_tuned(config, make_environment(lambda: own))


def test_observations_that_a_wrapper_changed_have_no_known_reflection():
    class Shorter(gym.ObservationWrapper):
        def __init__(self, inner):
            super().__init__(inner)
            space = inner.observation_space
            self.observation_space = gym.spaces.Box(space.low[:24], space.high[:24])

        def observation(self, observation):
            return np.float32(observation[:24])  # the tilt is left out

    shorter = make_environment(lambda: Shorter(gym.make("MinitaurBulletEnv-v0")))
    expected = "^`symmetry_augmentation` must be False: observations or actions are not those of"
    with pytest.raises(ParameterError, match=expected):
        labkit.training.components.check_tuned(labkit.SACConfig(), shorter)
    without = labkit.SACConfig(symmetry_augmentation=False)
    labkit.training.components.check_tuned(without, shorter)


def test_max_episode_steps_limits_both_environments(tmp_path, small_config):
    """Without a time limit this environment would never end."""
    endless = env(step=lambda self, action: (np.zeros(1, np.float32), 1.0, False, {}))
    config = small_config(env_name="Mine", replay="tf_uniform")
    run = open_run(tmp_path / "run", config)
    table = labkit.train(config, run, make_env=endless, max_episode_steps=7).metrics()
    assert set(table.eval_lengths.explode().dropna()) == {7.0}
    assert table.collect_return.dropna().iloc[-1] == 7.0
    with pytest.raises(ParameterError, match=r"^`max_episode_steps` must be .* or None\), got 0"):
        labkit.train(config, make_env=endless, max_episode_steps=0)
    with pytest.raises(ParameterError, match=r"^`max_episode_steps` must be None if"):
        labkit.train(config, components=object(), max_episode_steps=7)


def test_a_mistake_in_a_user_s_own_environment_is_shown_as_it_is(tmp_path, small_config):
    def answer(self, *good):
        return 1 / 0

    config = small_config(env_name="Mine")
    with pytest.raises(ZeroDivisionError):
        labkit.train(config, open_run(tmp_path, config), make_env=env(answer=answer))


@pytest.mark.timeout(100)
def test_a_server_that_is_gone_is_named_within_a_time_limit(tmp_path, small_config, monkeypatch):
    monkeypatch.setattr(reverb_replay, "ANSWER_SECONDS", 1)
    monkeypatch.setattr(reverb_replay, "SAMPLE_TIMEOUT_SECONDS", 10)

    def answer(self, *good):
        made.replay.server.stop()
        return good

    config = small_config(env_name="Mine", num_iterations=5_000, eval_interval=0)
    made = labkit.training.components.build(config, env(answer=answer))
    labkit.training.components.warm_up(config, made)
    with pytest.raises(
        StalledError, match=r"Reverb server at localhost:\d+ no longer answers; last good"
    ):
        labkit.train(config, open_run(tmp_path, config), made)


STORAGE = {
    "metrics.csv": r".*metrics\.csv cannot be written \(No space left on device\); last good",
    "policy.partial": r".*policy cannot be written",
    "checkpoints": "no checkpoint could be written to .* at gradient step 10",
}


@pytest.mark.parametrize("name", STORAGE)
def test_a_full_disk_or_a_vanished_folder_is_named(tmp_path, small_config, name):
    """/dev/full is a disk without space; a file where a folder must be is one that vanished."""

    def answer(self, *good):
        place = tmp_path / "run" / name
        if place.is_dir():
            place.rename(tmp_path / "moved")
        place.unlink(missing_ok=True)
        place.symlink_to("/dev/full")
        type(self).answer = Env.answer
        return good

    config = small_config(env_name="Mine", checkpoint_interval=10, policy_save_interval=10)
    with pytest.raises(StorageError, match=f"^{STORAGE[name]}") as caught:
        labkit.train(config, open_run(tmp_path / "run", config), make_env=env(answer=answer))
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, RunError)
    assert caught.value._render_traceback_() == [f"StorageError: {caught.value}"]


HANGS = """
import sys, time
sys.path.insert(0, sys.argv[2])
import labkit
import test_bad_input
config = labkit.SACConfig(**test_bad_input.SMALL, environment_timeout=sys.argv[3])
def hang(self, *good):
    open(sys.argv[1] + "-hangs", "w").close()
    time.sleep(30)
    return good
Mine = test_bad_input.env(**({sys.argv[4]: hang} if sys.argv[4] else {}))
if sys.argv[4] == "evaluation":  # only the second environment hangs, which is the evaluated one
    kinds = [test_bad_input.env(), test_bad_input.env(step=hang)]
    Mine = lambda: kinds.pop(0)()
labkit.train(config, labkit.open_run(sys.argv[1], config), make_env=Mine)
"""
SMALL = {"env_name": "Mine", "checkpoint_interval": 5, "steps_per_call": 5, "num_iterations": 20,
         "initial_collect_steps": 300, "batch_size": 32, "num_eval_episodes": 1}  # fmt: skip


def hanging(path, limit, method=""):
    """Trains with an environment of which one method never returns."""
    command = [sys.executable, "-c", HANGS, str(path), os.path.dirname(__file__), limit, method]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("method", ["__init__", "seed", "reset", "step", "evaluation", "close"])
def test_an_environment_that_hangs_is_killed(tmp_path, method):
    """In its constructor, in `seed`, its first reset, the warm-up, an evaluation, or at the end."""
    ended = hanging(tmp_path, "1", method)
    assert ended.returncode == 1
    assert os.path.exists(f"{tmp_path}-hangs"), "it was killed before it hung"
    assert "Timeout (0:00:01)!" in ended.stderr
    assert 'File "<string>", line 9 in hang' in ended.stderr


def test_an_environment_that_hangs_is_killed_and_the_run_resumes(tmp_path):
    ended = hanging(tmp_path, "5", "answer")
    assert ended.returncode == 1
    assert "Timeout (0:00:05)!" in ended.stderr
    assert checkpoint.latest(tmp_path / "checkpoints").name == "000000005"
    again = hanging(tmp_path, "0")
    assert again.returncode == 0, again.stderr[-2000:]
    assert read_metrics(tmp_path).gradient_step.iloc[-1] == 20


def test_a_second_interrupt_stops_at_once():
    with pytest.raises(KeyboardInterrupt), local.stop_request() as stop:  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        assert stop
        os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_is_announced_also_where_output_is_hidden(capsys):
    with local.stop_request() as stop:
        with labkit.quiet():
            os.kill(os.getpid(), signal.SIGINT)
        assert stop
        assert stop
    assert capsys.readouterr().err.count("interrupt once more to stop at once") == 1


FIELDS = [field.name for field in SACConfig.__attrs_attrs__]
ANYTHING = (
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=20)
    | some.binary(max_size=5) | some.lists(some.integers() | some.floats() | some.text(max_size=5))
    | some.dictionaries(some.text(max_size=3), some.integers(), max_size=2)
    | some.sampled_from(["(1, 2)", "1e3", "[1,", "(" * 99, "1e999", "0x10", "1_000", "-0.0", " 7 "])
)  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(some.dictionaries(some.sampled_from(FIELDS) | some.text(max_size=8), ANYTHING, max_size=4))
def test_fuzzed_parameters_are_taken_or_refused_in_one_line(parameters):
    refused = None
    try:
        config = SACConfig.parse(parameters)
    except ParameterError as error:
        refused = str(error)
    if refused is None:
        again = json.loads(json.dumps({name: getattr(config, name) for name in FIELDS}))
        assert SACConfig.parse(again) == config, "what was taken survives a file"
    else:
        assert "\n" not in refused
        assert any(repr(name)[1:-1] in refused or name in refused for name in parameters)


def test_slow_gradient_steps_are_not_a_stall():
    """A call may take longer than the time limit, as long as it makes progress."""
    pending, waited = Future(), []

    class Running:
        """A training whose gradient steps make progress, one between two polls."""

        sample_timeout = 0.5
        started = property(lambda self: len(waited))

        def check(self, seconds):
            waited.append(seconds)
            if len(waited) == 5:
                pending.set_result("done")

    running = Running()
    running.learner = running.components = running.replay = running
    assert LocalTraining.wait_for(running, pending) == "done"
    assert max(waited) < 0.15  # without the progress between two polls: 0.2 s or more
