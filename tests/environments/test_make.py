"""Environments by name or factory: what they are, and what is rejected before any work."""

import sys

import gym
import gymnasium
import numpy as np
import pytest

from labkit.environments import make
from labkit.environments.make import (
    check_separate,
    check_specs,
    environment_name,
    forward_position,
    make_environment,
    raw_env,
    step_seconds,
)
from labkit.errors import ParameterError
from labkit.replay.transitions import layout_of


@pytest.mark.parametrize(
    ("name", "width", "limit", "seconds", "moves"),
    [
        ("MinitaurBulletEnv-v0", 28 + 8 + 2 + 28, 1_000, 0.01, True),
        ("HalfCheetahBulletEnv-v0", 26 + 6 + 2 + 26, 1_000, 0.0165, True),
        ("LunarLanderContinuous-v2", 8 + 2 + 2 + 8, 1_000, 0.02, False),
        ("Pendulum-v1", 3 + 1 + 2 + 3, 200, 0.05, False),
        ("gymnasium:Pendulum-v1", 3 + 1 + 2 + 3, 200, 0.05, False),
        ("gymnasium:Hopper-v5", 11 + 3 + 2 + 11, 1_000, 0.008, False),
        ("gymnasium:HalfCheetah-v5", 17 + 6 + 2 + 17, 1_000, 0.05, False),
    ],
)
def test_environments_by_name(name, width, limit, seconds, moves, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = make_environment(name, seed=0)
    check_specs(env)
    first = env.reset().observation
    assert np.array_equal(first, make_environment(name, seed=0).reset().observation)
    assert layout_of(env).width == width
    assert (environment_name(env), env.gym.max_episode_steps) == (name, limit)
    assert step_seconds(env) == pytest.approx(seconds)
    assert (forward_position(env) is not None) == moves
    env.close()
    assert capfd.readouterr() == ("", ""), "native code prints past Python"
    assert list(tmp_path.iterdir()) == [], "MuJoCo writes its warnings to a file"


class Corridor(gym.Env):
    """A user's own environment: walk right."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self):
        self.place = 0.0
        return np.array([self.place, np.random.rand()], np.float32)

    def step(self, action):
        self.place += 0.1 * float(action[0])
        return np.array([self.place, 0.0], np.float32), 1.0, self.place > 0.9, {}


class OfGymnasium(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


def test_a_user_s_own_class():
    env = make_environment(Corridor, seed=0, max_episode_steps=30)
    check_specs(env)
    assert environment_name(env) == "Corridor"
    assert isinstance(raw_env(env), Corridor)
    again = make_environment(Corridor, seed=0)
    assert env.reset().observation[1] == again.reset().observation[1], "NumPy's global generator"


def test_an_id_that_another_module_registers(tmp_path, monkeypatch):
    text = "import gymnasium\ngymnasium.register('Other-v0', 'gymnasium.envs.classic_control:"
    (tmp_path / "other_robots.py").write_text(text + "PendulumEnv')\n")
    monkeypatch.syspath_prepend(tmp_path)
    env = make_environment("gymnasium:other_robots:Other-v0", seed=0)
    assert environment_name(env) == "gymnasium:Other-v0"


# --- what is rejected

WORKS = r"`env_name` must be an environment that works here"
ID = r"`env_name` must be a registered id of Gym, or gymnasium:Id \("


class Unmakeable(gym.Env):
    def __init__(self):
        raise TypeError("descriptors cannot be\ncreated directly")


gym.register("LabkitUnmakeable-v0", entry_point=Unmakeable)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("MyRobot",), ID + r"Environment `MyRobot` doesn't exist\.\), got 'MyRobot'$"),
        (("Pendulm-v1",), ID + ".*Did you mean: `Pendulum`"),
        (("HalfCheetahBulletEnv-v1",), ID + ".*provides the versioned environments: . `v0`"),
        (("gymnasium:HalfCheeta-v5",), ID + ".*Did you mean: `HalfCheetah`"),
        (("gymnasium:../../x",), ID + r"Malformed environment ID: \.\./\.\./x"),
        (("gymnasium:no_robots:Other-v0",), WORKS + ".*no_robots.*, got 'gymnasium:no"),
        (("HalfCheetah-v2",), WORKS + ".*mujoco.*, got 'HalfCheetah-v2'"),
        (("LabkitUnmakeable-v0",), WORKS + r" \(descriptors cannot be\), got 'LabkitUnmakeable"),
        ((Corridor(),), "`make_env` must be a class or a function that returns an env.*got <"),
        ((lambda: None,), "`make_env` must be a function that returns a gym.Env .*, got None"),
        (
            (lambda: gymnasium.make_vec("Pendulum-v1", 2),),
            "`make_env` must be a function that returns a gym.Env or a gymnasium.Env",
        ),
        ((Corridor, -1), "`seed` must be a whole number from 0 to .*, got -1"),
        ((Corridor, 0, 0), r"`max_episode_steps` must be a whole number from 1 .*None\), got 0"),
    ],
)
def test_a_wrong_argument_is_one_line(arguments, line):
    with pytest.raises(ParameterError, match=f"^{line}") as caught:
        make_environment(*arguments)
    assert "\n" not in str(caught.value)


def box(low, high, shape=(1,), dtype=np.float32, of=gym):
    return of.spaces.Box(low, high, shape, dtype)


REAL = r"`make_env` must be an environment whose (observations|actions) are one vector of real num"
BOUNDS = r"`make_env` must be an environment whose actions have two bounds within ±1e\+09 .*, got '"


@pytest.mark.parametrize(
    ("kind", "spaces", "line"),
    [
        (Corridor, {"action_space": gym.spaces.Discrete(2)}, REAL + r".*shape \(\) and dtype int"),
        (Corridor, {"action_space": box(0, 9, dtype=np.int64)}, REAL + ".*dtype int64"),
        (
            Corridor,
            {"observation_space": box(0, 255, (8, 8, 3), np.uint8)},
            REAL + r".*\(8, 8, 3\)",
        ),
        (Corridor, {"observation_space": gym.spaces.Dict(goal=box(0, 1))}, REAL + ".*shape None"),
        (Corridor, {"action_space": box(-np.inf, np.inf)}, BOUNDS),
        (Corridor, {"action_space": box(1, 1)}, BOUNDS),
        (
            OfGymnasium,
            {"action_space": gymnasium.spaces.Discrete(2)},
            r"`action_space` must be a Box of real numbers \(see .*, got Discrete\(2\)$",
        ),
        (
            OfGymnasium,
            {"observation_space": gymnasium.spaces.Dict(goal=box(0, 1, of=gymnasium))},
            "`observation_space` must be .*gymnasium.wrappers.FlattenObservation.*, got Dict",
        ),
    ],
)
def test_spaces_that_sac_cannot_use_are_one_line(kind, spaces, line):
    with pytest.raises(ParameterError, match=f"^{line}") as caught:
        check_specs(make_environment(type("Mine", (kind,), spaces)))
    assert "\n" not in str(caught.value)


def test_the_same_environment_in_two_roles_is_rejected():
    one = Corridor()
    twice = [make_environment(lambda: gym.wrappers.ClipAction(one)) for _ in range(2)]
    with pytest.raises(ParameterError, match=r"^`make_env` must give two .*, got the same one"):
        check_separate(*twice)
    check_separate(make_environment(Corridor), make_environment(Corridor))


def test_an_error_of_the_user_s_own_constructor_is_shown_whole():
    with pytest.raises(TypeError, match="created directly"):
        make_environment(Unmakeable)


def test_without_gymnasium_one_line_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ParameterError, match=r"import of gymnasium .*, got 'gymnasium:Hopper"):
        make.check_name("gymnasium:Hopper-v5")
