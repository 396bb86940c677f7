"""Gymnasium's environments: what is stored of them, and what is refused before any work."""

import ctypes.util
import functools
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import gym
import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

import labkit
from labkit.config import TUNED, UNTUNED
from labkit.environments import gymnasium as adapter
from labkit.environments.make import check_name, check_separate, check_specs, make_environment
from labkit.environments.physics import forward_position, step_seconds
from labkit.environments.seeding import environment_name, raw_env
from labkit.errors import BrokenEnvironmentError, ParameterError, RunError
from labkit.plotting.rendering import frame
from labkit.replay.transitions import layout_of
from labkit.sac.rollout import Collector, evaluate, random_policy

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "environments.md"
ACTIONS = Box(-1, 1, (2,), np.float32)
ZEROS = np.zeros(2, np.float32)


class Buffer(gymnasium.Env):
    """Counts its steps in one float64 array, which it returns each time; never ends by itself."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = ACTIONS

    def __init__(self, end=None, ends_as=(True, False)):
        self.state, self.seeds = np.zeros(2), []
        self.end, self.ends_as = end, ends_as

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.state[:] = 0, self.np_random.random()
        return self.state, {}

    def step(self, action):
        assert self.action_space.contains(action), (action, action.dtype)
        self.state[0] += 1
        terminated, truncated = self.ends_as if self.state[0] == self.end else (False, False)
        return self.state, 1.0, terminated, truncated, {}


gymnasium.register("LabkitBuffer-v0", entry_point=Buffer, max_episode_steps=5)


def steps_of(env, count):
    env.reset()
    return [env.step(ZEROS) for _ in range(count)]


# --- what is stored


@pytest.mark.parametrize(
    ("ends_as", "bootstrap", "discount"),
    [
        ((True, False), True, 0.0),
        ((False, True), True, 1.0),
        ((True, True), True, 0.0),  # the last step of the time limit terminates
        ((np.bool_(False), np.bool_(True)), True, 1.0),
        ((False, True), False, 0.0),
    ],
)
def test_terminated_stores_discount_0_and_truncated_keeps_1(ends_as, bootstrap, discount):
    make = functools.partial(Buffer, 4, ends_as)
    rows = []
    env = make_environment(make, seed=0, bootstrap_time_limits=bootstrap)
    Collector(env, random_policy(env.action_spec(), 0), rows.append).run(8)
    assert [float(row.discount) for row in rows] == [1, 1, 1, discount] * 2


def test_a_buffer_that_the_environment_reuses_is_copied_and_cast():
    env, rows = make_environment(Buffer, seed=0), []
    check_specs(env)
    assert layout_of(env).width == 8
    Collector(env, random_policy(env.action_spec(), 0), rows.append).run(10)
    assert [row.observation[0] for row in rows] == list(range(10))
    for row in rows:
        assert row.next_observation[0] - row.observation[0] == 1
        assert row.observation.dtype == row.next_observation.dtype == np.float32


@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: env,
        gymnasium.wrappers.ClipAction,
        lambda env: gymnasium.wrappers.RescaleAction(env, np.float32(-1), np.float32(1)),
        gymnasium.wrappers.RecordEpisodeStatistics,
        lambda env: gymnasium.wrappers.TimeLimit(env, 9),
    ],
)
@pytest.mark.parametrize(("limit", "length"), [(None, 5), (3, 3), (8, 8)])
def test_a_time_limit_truncates_wherever_it_is(wrap, limit, length):
    env = make_environment(lambda: wrap(gymnasium.make("LabkitBuffer-v0")), max_episode_steps=limit)
    assert env.max_episode_steps == length
    for _ in range(2):
        lasts = steps_of(env, length)
        assert [bool(step.is_last()) for step in lasts] == [False] * (length - 1) + [True]
        assert float(lasts[-1].discount) == 1.0


def test_a_reset_gets_the_seed_once_and_the_trial_leaves_no_trace():
    env = make_environment(Buffer, seed=7)
    first, second = (env.reset().observation[1] for _ in range(2))
    env.seed(9)
    env.reset()
    assert raw_env(env).seeds == [None, 7, None, 9]  # the first one is the trial's
    generator = np.random.default_rng(7)  # as `gymnasium.Env.reset` makes it
    assert [first, second] == [np.float32(generator.random()) for _ in range(2)]


def test_without_a_seed_it_is_unpredictable():
    assert len({float(make_environment(Buffer).reset().observation[1]) for _ in range(3)}) == 3


def test_an_error_counts_the_env_steps_of_the_user_s_own_steps():
    class Late(Buffer):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            return observation, np.nan if self.state[0] == 6 else reward, *rest

    expected = "^the environment's reward is nan at its env step 6, step 6 of the episode$"
    with pytest.raises(BrokenEnvironmentError, match=expected):
        steps_of(make_environment(Late), 6)


def test_an_id_of_gymnasium_is_named_with_its_prefix():
    env = make_environment("gymnasium:Pendulum-v1", seed=0)
    assert environment_name(env) == "gymnasium:Pendulum-v1"
    assert environment_name(make_environment(Buffer)) == "Buffer"
    assert env.max_episode_steps == 200
    result = evaluate(env, lambda observation: np.zeros(1, np.float32), 1, seed=0)
    assert result.lengths == (200,)
    assert np.isnan(result.distances).all()
    assert "distance" not in str(result)


def test_an_id_that_another_module_registers(tmp_path, monkeypatch):
    text = "import gymnasium\ngymnasium.register('Other-v0', 'gymnasium.envs.classic_control:"
    (tmp_path / "other_robots.py").write_text(text + "PendulumEnv')\n")
    monkeypatch.syspath_prepend(tmp_path)
    env = make_environment("gymnasium:other_robots:Other-v0", seed=0)
    assert environment_name(env) == "gymnasium:Other-v0"
    (tmp_path / "no_message.py").write_text("raise ImportError\n")
    with pytest.raises(ParameterError, match=r"module can be imported \(ImportError\), got"):
        check_name("gymnasium:no_message:Other-v0")
    with pytest.raises(ParameterError, match=r"^`env_name` must be .*no_robots.*, got 'gymnasium:"):
        check_name("gymnasium:no_robots:Other-v0")


def test_the_same_instance_twice_is_refused():
    one = Buffer()
    wrapped = [make_environment(lambda: gymnasium.wrappers.ClipAction(one)) for _ in range(2)]
    with pytest.raises(ParameterError, match=r"^`make_env` must be .*, got the same environment"):
        check_separate(*wrapped)
    check_separate(make_environment(Buffer), make_environment(Buffer))


# --- what is refused before any work


def of_spaces(**spaces):
    return type("Mine", (Buffer,), spaces)


def answering(step=None, reset=None):
    """A `Buffer` whose second step, or whose reset, answers so."""

    class Answering(Buffer):
        def reset(self, *, seed=None, options=None):
            answer = super().reset(seed=seed)
            return answer if reset is None else reset(*answer)

        def step(self, action):
            answer = super().step(action)
            return step(*answer) if step and self.state[0] == 2 else answer

    return Answering


class NoSeed(Buffer):
    """Its reset is that of Gym 0.23."""

    def reset(self):
        return ZEROS, {}


def old_step(o, r, d, t, i):
    return o, r, d, i


gymnasium.register("LabkitOldStep-v0", entry_point=answering(old_step), max_episode_steps=5)
FOUR = (
    r"step must return \(observation, reward, terminated, truncated, info\), as in Gymnasium, got"
)
RETURN = "return `terminated` and `truncated` in place of `done`"
AT = r"at its env step 2, step 2 of the episode"
WORKS = "`make_env` must be an environment that works here \\(the environment's "
BROKEN = {
    "discrete actions": (
        of_spaces(action_space=Discrete(2)),
        r"`action_space` must be a Box of real numbers \(SAC needs real-valued actions, so choose "
        r"or wrap an environment that has them\), got Discrete\(2\)$",
    ),
    "binary actions": (
        of_spaces(action_space=MultiBinary(3)),
        r"`action_space` must be a Box .*, got MultiBinary\(3\)$",
    ),
    "dictionary observations": (
        of_spaces(observation_space=Dict(goal=Box(0, 1, (2,)))),
        r"`observation_space` must be a Box of real numbers \(wrap the environment in "
        r"gymnasium.wrappers.FlattenObservation\), got Dict\(.*$",
    ),
    "no observation space": (
        of_spaces(observation_space=None),
        r"`observation_space` must be a Box .*, got None$",
    ),
    "images": (
        type(
            "Images",
            (Buffer,),
            {
                "observation_space": Box(0, 255, (8, 8, 3), np.uint8),
                "reset": lambda self, seed=None: (np.zeros((8, 8, 3), np.uint8), {}),
                "step": lambda self, a: (np.zeros((8, 8, 3), np.uint8), 0.0, False, False, {}),
            },
        ),
        r"`make_env` must be an environment whose observations are one vector .* shape \(8, 8, 3\) "
        r"and dtype uint8 \(labkit has no networks for images: choose an environment without\), "
        "got 'Images'$",
    ),
    "a matrix of actions": (
        of_spaces(action_space=Box(-1, 1, (2, 2))),
        r"`make_env` must be .* actions of shape \(2, 2\) .*`action_space` of shape \(n,\).*Mine'$",
    ),
    "unbounded actions": (
        of_spaces(action_space=Box(-np.inf, np.inf, (2,))),
        r"`make_env` must be an environment with bounded actions, .* \(wrap it, with an "
        r"`action_space` that has bounds\), got 'Mine'$",
    ),
    "Gym's four values": (
        answering(old_step),
        rf"{WORKS}{FOUR} \(array.*: {RETURN}\), got <class",
    ),
    "Gym's four values in a wrapper": (
        lambda: gymnasium.make("LabkitOldStep-v0", disable_env_checker=True),
        rf"{WORKS}{FOUR} four values: {RETURN}\), got <function",
    ),
    "six values": (answering(lambda *five: (*five, 0)), rf"{WORKS}{FOUR} \(array.*\), got <class"),
    "reset returns the observation alone": (
        answering(reset=lambda o, i: o),
        rf"{WORKS}reset must return \(observation, info\), as in Gymnasium, got array\(.*<class",
    ),
    "reset takes no seed": (
        NoSeed,
        rf"{WORKS}reset must take `seed` and `options`, as in Gymnasium \(.*<class",
    ),
    "a shape that changes": (
        answering(lambda o, *rest: (np.zeros(3), *rest)),
        rf"{WORKS}observation has shape \(3,\), not \(2,\), {AT}\), got <class",
    ),
    "a reward of shape (1,)": (
        answering(lambda o, r, *rest: (o, np.ones(1), *rest)),
        rf"{WORKS}reward must be one number, got array\(\[1\.\]\) {AT}\), got <class",
    ),
    "no reward": (
        answering(lambda o, r, *rest: (o, None, *rest)),
        rf"{WORKS}reward must be one number, got None {AT}\), got <class",
    ),
    "an infinite observation": (
        answering(lambda o, *rest: (np.array([0, np.inf]), *rest)),
        rf"{WORKS}observation\[1\] is inf {AT}\), got <class",
    ),
    "terminated is no truth value": (
        answering(lambda o, r, d, t, i: (o, r, None, t, i)),
        rf"{WORKS}terminated must be True or False, got None\), got <class",
    ),
    "several environments in one": (
        lambda: gymnasium.make_vec("Pendulum-v1", 2),
        r"`make_env` must be a function that returns a gym.Env of Gym 0.23, or a gymnasium.Env, ",
    ),
}


@pytest.mark.parametrize(("make", "line"), BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_trained_is_one_line_before_any_work(make, line):
    with pytest.raises(ParameterError, match=f"^{line}") as caught:
        check_specs(make_environment(make))
    assert "\n" not in str(caught.value)


def test_a_shape_that_changes_later_is_named_before_it_is_stored():
    class Grows(Buffer):
        def step(self, action):
            answer = super().step(action)
            return (np.zeros(3), *answer[1:]) if self.state[0] == 20 else answer

    rows, env = [], make_environment(Grows)
    expected = r"^the environment's observation has shape \(3,\), not \(2,\), at its env step 20, s"
    with pytest.raises(BrokenEnvironmentError, match=expected):
        Collector(env, random_policy(env.action_spec(), 0), rows.append).run(30)
    assert len(rows) == 19


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "gymnasium:HalfCheeta-v5",
            r"`env_name` must be one of the \d+ ids that Gymnasium has, got 'gymnasium:HalfCheeta-"
            r"v5'; did you mean 'gymnasium:HalfCheetah-v5'\?$",
        ),
        ("HalfCheetah-v5", r"`env_name` must be .*; did you mean 'gymnasium:HalfCheetah-v5'\?$"),
        ("HalfCheetahBulletEnv-v1", "`env_name` must .*; did you mean 'HalfCheetahBulletEnv-v0'"),
        ("MyRobot", r"`env_name` must be one of the \d+ registered Gym ids, got 'MyRobot'$"),
        (
            "gymnasium:.robots:Other-v0",
            r"`env_name` must be .* no leading dot, got 'gymnasium:\.robots:Other-v0'$",
        ),
        ("gymnasium:Hopper-v2", "`env_name` must be an environment that works here .*"),
    ],
)
def test_an_unknown_id_is_one_line(name, line):
    with pytest.raises(ParameterError, match=f"^{line}") as caught:
        make_environment(name)
    assert "\n" not in str(caught.value)


def test_without_gymnasium_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(adapter.importlib.util, "find_spec", lambda name: None)
    expected = (
        r"^`env_name` must be a Gym id here, where Gymnasium is missing \(pip install "
        r"'\.\[gymnasium\]' in labkit's folder\), got 'gymnasium:Hopper-v5'$"
    )
    with pytest.raises(ParameterError, match=expected):
        make_environment("gymnasium:Hopper-v5")
    with pytest.raises(ParameterError, match=r"^`env_name` must be one of the \d+ registered Gym"):
        check_name("Hopper-v5")


def test_a_make_env_that_needs_a_missing_gymnasium_says_what_to_install():
    def make():
        raise ModuleNotFoundError("No module named 'gymnasium'", name="gymnasium")

    expected = (
        r"^`make_env` must be .* \(No module named 'gymnasium'; pip install '\.\[gymnasium\]'"
    )
    with pytest.raises(ParameterError, match=expected):
        make_environment(make)


def test_labkit_loads_no_gymnasium_before_it_needs_it():
    code = "import sys, labkit\nlabkit.make_environment('MountainCarContinuous-v0')\n"
    code += "print([name for name in ('gymnasium', 'mujoco') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_gym_s_own_environments_take_no_trial_steps():
    class Plain(gym.Env):
        observation_space = action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

        def reset(self):
            raise AssertionError("not before training")

    make_environment(Plain)


def test_the_page_s_environments_can_all_be_trained_in(monkeypatch):
    """Its lines run; `labkit.train` is replaced by what checks an environment before training."""
    code = "\n".join(re.findall(r"^    (.*)$", PAGE.read_text(), re.MULTILINE))
    checked = []

    def train(config, make_env=None, max_episode_steps=None):
        made = make_environment(make_env or config.env_name, 0, max_episode_steps)
        check_specs(made)
        checked.append((config.env_name, environment_name(made), made.max_episode_steps))

    monkeypatch.setattr(labkit, "train", train)
    exec(code, {})
    assert checked == [
        ("gymnasium:Hopper-v5", "gymnasium:Hopper-v5", 1_000),
        ("HalfCheetahBulletEnv-v0", "HalfCheetahBulletEnv-v0", 1_000),
        ("MyPendulum", "gymnasium:Pendulum-v1", 200),
        ("MyCar", "MountainCarContinuous-v0", 500),
    ]


def test_the_page_scores_an_exported_policy(monkeypatch, capsys):
    """Its lines run; tests/cli/test_export.py covers the module `policy` that an export has."""
    (code,) = re.findall(r"^```python\n(.*?)```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)

    def still():
        return lambda observation: np.zeros(1, np.float32)

    monkeypatch.setitem(sys.modules, "policy", SimpleNamespace(Policy=still))
    exec(code, {})
    assert re.match(r"mean return -1\d{3}\.\d\d ± .* over 20 episodes", capsys.readouterr().out)


def test_the_page_has_the_settings_that_depend_on_the_environment():
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    assert {name for name, _, _ in rows} == set(UNTUNED)
    for name, tuned, untuned in rows:
        if name == "observation_scale":
            assert f"the {len(TUNED['MinitaurBulletEnv-v0'][name])} numbers" in tuned
        else:
            assert tuned == str(TUNED["MinitaurBulletEnv-v0"][name])
        assert untuned.split(":")[0] == str(UNTUNED[name])


def test_the_debian_packages_are_the_same_everywhere():
    for file in (PAGE, ROOT / "docs" / "running.md", ROOT / ".ci" / "run"):
        assert f"install {adapter.DEBIAN_PACKAGES}" in file.read_text(), file


# --- MuJoCo's robots

needs_egl = pytest.mark.skipif(
    ctypes.util.find_library("EGL") is None, reason=f"apt install {adapter.DEBIAN_PACKAGES}"
)


@pytest.mark.parametrize(
    ("name", "width", "seconds"),
    [
        ("gymnasium:HalfCheetah-v5", 17 + 6 + 2 + 17, 0.05),
        ("gymnasium:Hopper-v5", 11 + 3 + 2 + 11, 0.008),
        ("gymnasium:Walker2d-v4", 17 + 6 + 2 + 17, 0.008),
    ],
)
def test_robots_of_mujoco_step_and_print_nothing(
    name, width, seconds, capfd, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    env = make_environment(name, seed=0)
    check_specs(env)
    assert layout_of(env).width == width
    assert env.max_episode_steps == 1_000
    assert step_seconds(env) == pytest.approx(seconds)
    assert forward_position(env) is None
    again = make_environment(name, seed=0)
    policy = random_policy(env.action_spec(), 0)
    rows = [[], []]
    for one, found in zip((env, again), rows, strict=True):
        policy = random_policy(env.action_spec(), 0)
        Collector(one, policy, found.append).run(30)
    np.testing.assert_array_equal(
        [row.next_observation for row in rows[0]], [row.next_observation for row in rows[1]]
    )
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == [], "MuJoCo writes its warnings to a file"


@needs_egl
def test_a_robot_of_mujoco_is_drawn_without_a_display():
    env = make_environment("gymnasium:Hopper-v5", seed=0)
    env.reset()
    before = frame(env)
    assert before.shape == (360, 480, 3)
    assert before.std() > 10
    for _ in range(20):
        env.step(np.ones(3, np.float32))
    assert np.abs(frame(env).astype(int) - before).max() > 50, "the picture does not move"


def test_a_missing_render_mode_is_one_line():
    env = make_environment(lambda: gymnasium.make("Pendulum-v1"))
    env.reset()
    expected = re.escape(
        "`render_mode` must be 'rgb_array' where the environment is made, so that it can be drawn, "
        "got None"
    )
    with pytest.raises(ParameterError, match=f"^{expected}$"):
        frame(env)
    drawn = make_environment(lambda: gymnasium.make("Pendulum-v1", render_mode="rgb_array"))
    drawn.reset()
    assert frame(drawn).std() > 0


def test_a_machine_without_egl_is_told_what_to_install(monkeypatch):
    env = make_environment("gymnasium:Hopper-v5", seed=0)
    env.reset()

    def render(mode):
        raise AttributeError("'NoneType' object has no attribute 'eglQueryString'")

    monkeypatch.setattr(raw_env(env).mujoco_renderer, "render", render)
    todo = "it draws with EGL; on Debian: apt install libegl1 libgl1-mesa-dri$"
    for variable, reason in (("egl", "'NoneType' .*"), ("disable", "MUJOCO_GL is 'disable'")):
        monkeypatch.setenv("MUJOCO_GL", variable)
        expected = rf"^MuJoCo cannot draw on this machine \({reason}\): {todo}"
        with pytest.raises(RunError, match=expected):
            frame(env)
