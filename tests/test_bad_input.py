"""What a user sees for each of many mistakes: one line that names what is wrong; nothing is lost.

The tables are the documentation: what was done, and how the line begins.
"""

import json
import os
import signal
import subprocess
import sys

import gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from small import Walk
from small_disk import may_mount

import labkit
from labkit import ParameterError, SACConfig
from labkit.errors import BrokenEnvironmentError, RunError, StalledError, StorageError
from labkit.replay import reverb_replay
from labkit.training import components, local

PARAMETERS = [
    ({"num_iterations": 0}, "`num_iterations` must be a whole number from 1.*, got 0"),
    ({"num_iterations": 1.5}, "`num_iterations` must be .*, got 1.5"),
    ({"num_iterations": "many"}, "`num_iterations` must be .*, got 'many'"),
    ({"num_iterations": float("nan")}, "`num_iterations` must be .*, got nan"),
    ({"num_iterations": "__import__('os')"}, "`num_iterations` must be .*, got .*"),
    ({"seed": -1}, "`seed` must be .*, got -1"),
    ({"seed": True}, "`seed` must be .*, got True"),
    ({"seed": "9" * 5000}, f"`seed` must be .*, got '{'9' * 79}…$"),
    ({"batch_size": 10, "replay_buffer_capacity": 5}, "`replay_buffer_capacity` must be at least"),
    ({"gamma": 1.01}, "`gamma` must be a number from 0 to 1.*, got 1.01"),
    ({"gamma": "0,99"}, "`gamma` must be .*, got '0,99'"),
    ({"critic_learning_rate": 0}, "`critic_learning_rate` must be a number above 0.*, got 0"),
    ({"actor_learning_rate": float("inf")}, "`actor_learning_rate` must be .*, got inf"),
    ({"actor_fc_layer_params": (0,)}, r"`actor_fc_layer_params` must be .*, got \(0,\)"),
    ({"observation_scale": (1e-60, 1)}, r"`observation_scale` must be .* numbers from 1e-09 to"),
    ({"strategy": "mirrored:0"}, "`strategy` must be .*, got 'mirrored:0'"),
    ({"replay": "redis"}, "`replay` must be 'reverb' or 'tf_uniform'.*, got 'redis'"),
    ({"environment_timeout": "soon"}, "`environment_timeout` must be .*, got 'soon'"),
    ({"env_name": "MinitaurBulletEnv"}, "`env_name` must be .* versioned environments: .*`v0`"),
    ({"env_name": ""}, "`env_name` must be .*, got ''"),
    ({"resume": "always"}, "`resume` must be 'auto' or 'never'.*, got 'always'"),
    ({"run_dir": "/proc/none"}, "`run_dir` must be a directory that this process can create"),
]


@pytest.mark.parametrize(("parameters", "expected"), PARAMETERS)
def test_parameters(tmp_path, monkeypatch, parameters, expected):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match=f"^{expected}") as caught:
        labkit.start_run(parameters)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


def evaluate(**arguments):
    """`labkit.evaluate` on a pendulum, but for these arguments."""
    good = {"env": labkit.make_environment("Pendulum-v1"), "episodes": 1, "seed": 0}
    good["policy"] = lambda _: np.zeros(1, np.float32)
    return labkit.evaluate(**{**good, **arguments})


ARGUMENTS = [
    (lambda: SACConfig.parse({"num_iteration": 5}), "`num_iteration` is not .* 'num_iterations'"),
    (lambda: SACConfig.parse({"action_repeat": 2}), "`action_repeat` is not a parameter"),
    (lambda: SACConfig.parse([{"gamma": 0.9}]), "`parameters` must be a dictionary from names"),
    (lambda: labkit.train({"gamma": 0.98}), r"`config` must be .* SACConfig.parse\(\{'gamma'"),
    (lambda: labkit.train_on_ray({}), r"`config` must be .* SACConfig.parse\("),
    (lambda: labkit.train(SACConfig(), run="r1"), "`run` must be None, or what labkit.open_run"),
    (lambda: labkit.train_on_ray(SACConfig(), run="r1"), "`run` must be None, or what labkit.open"),
    (lambda: labkit.open_run("run", {}), r"`config` must be .*SACConfig.parse\(.*, got \{\}$"),
    (lambda: evaluate(episodes=0), "`episodes` must be a whole number from 1 .*, got 0"),
    (lambda: evaluate(seed=-1), "`seed` must be a whole number from 0 .*, got -1"),
    (lambda: evaluate(env="Pendulum-v1"), "`env` must be what labkit.make_environment"),
    (lambda: evaluate(policy=lambda _: np.zeros(3)), r"`policy` must .* actions of shape \(1,"),
    (lambda: evaluate(policy=lambda _: "left"), r"`policy` must .* \(1,\), got 'left'"),
]


@pytest.mark.parametrize(("call", "expected"), ARGUMENTS)
def test_arguments(tmp_path, monkeypatch, call, expected):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match=f"^{expected}") as caught:
        call()
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


# --- files of a run that another program changed


def changed(**changes):
    """Changes `config.json`."""

    def damage(path):
        content = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**content, **changes}))

    return damage


def overwritten(name, text):
    return lambda path: (path / name).write_text(text)


FILES = [
    (overwritten("config.json", "{"), r".*config\.json is damaged: Expecting"),
    (overwritten("config.json", "[]"), r".*config\.json is damaged"),
    (changed(format=0), r".*config\.json has format 0; this labkit reads format"),
    (changed(config={"gamma": 7}), r".*config\.json is damaged: `gamma` must be .*, got 7"),
    (changed(config={"colour": 7}), r".*config\.json is damaged: `colour` is not a parameter"),
    (changed(config={"seed": 9}), "`run_dir` must be a new directory or a run of this config"),
]


@pytest.mark.parametrize(("damage", "expected"), FILES)
def test_files(tmp_path, damage, expected):
    path, config = tmp_path / "run", SACConfig(num_iterations=5)
    labkit.open_run(path, config).log(env_step=301, gradient_step=1, critic_loss=0.5)
    damage(path)
    before = {file: file.read_bytes() for file in path.iterdir() if file.is_file()}
    with pytest.raises(ParameterError, match=f"^{expected}") as caught:
        labkit.open_run(path, config)
    assert "\n" not in str(caught.value)
    assert {file: file.read_bytes() for file in before} == before, "nothing was overwritten"


# --- environments

BOX = gym.spaces.Box(-1, 1, (1,), np.float32)


class Env(Walk):
    """`answer` makes it misbehave from its 310th step on."""

    def step(self, action):
        good = super().step(action)
        return self.answer(*good) if self.steps >= 310 else good

    def answer(self, *good):
        return good


def env(**attributes):
    return type("Mine", (Env,), attributes)


NAN = np.array([np.nan], np.float32)
SAME = env()()
INFINITE = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
BROKEN = [  # found while it runs
    (
        env(answer=lambda self, o, r, d, i: (NAN, r, d, i)),
        r"the environment's observation\[0\] is nan at its env step 310, step 10 of the episode; "
        "last good checkpoint: .*5$",
    ),
    (
        env(answer=lambda self, o, r, d, i: (o, float("inf"), d, i)),
        "the environment's reward is inf at its env step 310, step 10 of the episode; last good ",
    ),
    (
        env(answer=lambda self, o, r, d, i: (np.zeros(2, np.float32), r, d, i)),
        r"the environment's observation has shape \(2,\), not \(1,\), at its env step 310",
    ),
    (
        env(reset=lambda self: NAN),
        r"the environment's observation\[0\] is nan at its env step 0, step 0 of the episode; last "
        "good checkpoint: none yet$",
    ),
]
UNFIT = [  # found before any work
    (env()(), "`make_env` must be a class or a function that returns an environment, got <"),
    (
        lambda: None,
        "`make_env` must be a function that returns a gym.Env or a gymnasium.Env, got None",
    ),
    (lambda: SAME, "`make_env` must give two environments, .* got the same one twice"),
    (
        env(observation_space=gym.spaces.Dict({"a": BOX})),
        "`make_env` must be an environment whose observations are one vector of real numbers",
    ),
    (
        env(action_space=gym.spaces.Discrete(2)),
        "`make_env` must be an environment whose actions are one vector of real numbers",
    ),
    (
        env(action_space=INFINITE),
        "`make_env` must be an environment whose actions have two bounds within",
    ),
]


@pytest.mark.parametrize(
    ("make", "kind", "expected"),
    [(m, BrokenEnvironmentError, e) for m, e in BROKEN]
    + [(m, ParameterError, e) for m, e in UNFIT],
)
def test_environments(tmp_path, small_config, make, kind, expected):
    config = small_config(env_name="Mine", checkpoint_interval=5, steps_per_call=5)
    with pytest.raises(kind, match=f"^{expected}") as caught:
        labkit.train(config, labkit.open_run(tmp_path / "run", config), make_env=make)
    assert "\n" not in str(caught.value)


def test_the_values_of_the_minitaur_are_not_for_a_user_s_own_environment(small_config, tmp_path):
    config = small_config()  # with the default `env_name`
    expected = "^`env_name` must be a name for the environment of `make_env`, such as 'Mine': this"
    with pytest.raises(ParameterError, match=expected):
        labkit.train(config, labkit.open_run(tmp_path / "run", config), make_env=env())


@pytest.mark.timeout(100)
def test_a_server_that_is_gone_is_named_within_a_time_limit(tmp_path, small_config, monkeypatch):
    monkeypatch.setattr(reverb_replay, "ANSWER_SECONDS", 1)
    monkeypatch.setattr(reverb_replay, "SAMPLE_TIMEOUT_SECONDS", 10)

    def answer(self, *good):
        made.replay.server.stop()
        return good

    config = small_config(env_name="Mine", num_iterations=5_000, eval_interval=0)
    pair = components.make_environments(config, env(answer=answer))
    made = components.build(config, pair)
    components.warm_up(config, made)
    training = local.LocalTraining(config, labkit.open_run(tmp_path, config), made)
    with pytest.raises(StalledError, match=r"Reverb server at localhost:\d+ no longer answers"):
        training.execute(local.StopRequest())


@pytest.mark.skipif(not may_mount(), reason="it hides /etc/hosts, for which it must be root")
def test_a_server_that_cannot_be_reached_is_named(tmp_path):
    """Where the hosts file lacks localhost, Reverb's writer would wait without end."""
    code = "from labkit.replay import reverb_replay, transitions as t; "
    code += "reverb_replay.ReverbReplay(t.Layout(1, 1), 9)"
    (tmp_path / "hosts").write_text("")
    program = f"mount --bind hosts /etc/hosts && exec {sys.executable} -c '{code}'"
    command = ["unshare", "--mount", "sh", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    (line,) = done.stderr.splitlines()
    assert line.startswith("ServerGoneError: no Reverb server with a table 'transitions' answers")


STORAGE = {
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
    run = labkit.open_run(tmp_path / "run", config)
    with pytest.raises(StorageError, match=f"^{STORAGE[name]}") as caught:
        labkit.train(config, run, make_env=env(answer=answer))
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, RunError)


def test_an_interrupt_is_announced_and_a_second_one_stops_at_once(capsys):
    with pytest.raises(KeyboardInterrupt), local.StopRequest() as stop:  # noqa: PT012
        with labkit.quiet():
            os.kill(os.getpid(), signal.SIGINT)
        assert stop
        os.kill(os.getpid(), signal.SIGINT)
    assert capsys.readouterr().err.count("interrupt once more to stop at once") == 1


FIELDS = SACConfig.names()
ANYTHING = (
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=20)
    | some.binary(max_size=5) | some.lists(some.integers() | some.floats() | some.text(max_size=5))
    | some.sampled_from(["(1, 2)", "1e3", "[1,", "(" * 99, "1e999", "0x10", "1_000", "-0.0", " 7 "])
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(some.dictionaries(some.sampled_from(FIELDS) | some.text(max_size=8), ANYTHING, max_size=4))
def test_fuzzed_parameters_are_taken_or_rejected_in_one_line(parameters):
    rejected = None
    try:
        config = SACConfig.parse(parameters)
    except ParameterError as error:
        rejected = str(error)
    if rejected is None:
        again = json.loads(json.dumps({name: getattr(config, name) for name in FIELDS}))
        assert SACConfig.parse(again) == config, "what was taken survives a file"
    else:
        assert "\n" not in rejected
        assert any(name in rejected or repr(name)[1:-1] in rejected for name in parameters)
