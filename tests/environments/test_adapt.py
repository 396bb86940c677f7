"""What labkit stores of the environments of Gym and Gymnasium: copies, ends of episodes, errors."""

import itertools
import json
import random
import subprocess
import sys

import gym
import gymnasium
import numpy as np
import pytest

from labkit.environments.make import check_specs, make_environment
from labkit.errors import BrokenEnvironmentError, ParameterError
from labkit.sac.rollout import Collector, random_policy

ZEROS, ONES = np.zeros(2, np.float32), np.ones(2, np.float32)
MINITAUR = "MinitaurBulletEnv-v0"


class OfGym(gym.Env):
    """Counts its steps in the array that it returns each time, and changes the action it gets."""

    observation_space = gym.spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    answer = None  # what the 20th step answers instead

    def __init__(self):
        self.state = np.zeros(2, self.observation_space.dtype)

    def reset(self):
        self.state[:] = 0
        return self.state

    def step(self, action):
        assert self.action_space.contains(action), (action, action.dtype)
        self.state += 1
        action *= 0
        parts = self.state, 1.0, bool(self.state[0] == 30), {}
        return self.answer(*parts) if self.answer and self.state[0] == 20 else parts


class OfGymnasium(gymnasium.Env):
    """The same for Gymnasium."""

    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    answer = None
    __init__ = OfGym.__init__

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return OfGym.reset(self), {}

    def step(self, action):
        *others, done, info = OfGym.step(self, action)
        return others if len(others) == 3 else (*others, done, False, info)


gym.register("LabkitOfGym-v0", entry_point=OfGym, max_episode_steps=5)
gymnasium.register("LabkitOfGymnasium-v0", entry_point=OfGymnasium, max_episode_steps=5)


def collected(env, steps):
    rows = []
    Collector(env, random_policy(env.action_spec(), 0), rows.append).run(steps)
    return rows


def ends(env, steps):
    """Discount of each step, after a reset; None before the last step of an episode."""
    env.reset()
    played = [env.step(ZEROS) for _ in range(steps)]
    return [float(step.discount) if step.is_last() else None for step in played]


@pytest.mark.parametrize("kind", [OfGym, OfGymnasium])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_steps_are_stored_as_they_were_in_float32(kind, dtype):
    space = type(kind.observation_space)(0, 200, (2,), dtype)
    env = make_environment(type("Mine", (kind,), {"observation_space": space}))
    check_specs(env)
    rows = collected(env, 25)
    assert len(rows) == 25
    for row in rows:
        assert row.observation.dtype == row.action.dtype == np.float32
        np.testing.assert_array_equal(row.next_observation - row.observation, [1, 1])
        assert np.abs(row.action).min() > 0, "not the action that the environment changed"


@pytest.mark.parametrize("kind", [OfGym, OfGymnasium])
def test_an_action_has_the_environment_s_dtype_and_bounds(kind):
    """Rounded to float32, 0.1 is beyond float64's bound of 0.1; `step` asserts its bounds."""
    space = type(kind.action_space)(-0.1, 0.1, (2,), np.float64)
    env = make_environment(type("Mine", (kind,), {"action_space": space}))
    env.reset()
    env.step(np.array([-0.1, 0.1], np.float32))


# --- the end of an episode

WRAPPERS = [
    lambda: gym.make("LabkitOfGym-v0"),
    lambda: gym.wrappers.ClipAction(gym.make("LabkitOfGym-v0")),
    lambda: gym.wrappers.TimeLimit(gym.wrappers.ClipAction(gym.make("LabkitOfGym-v0")), 8),
    lambda: gymnasium.make("LabkitOfGymnasium-v0"),
    lambda: gymnasium.wrappers.ClipAction(gymnasium.make("LabkitOfGymnasium-v0")),
]


@pytest.mark.parametrize("make", WRAPPERS)
@pytest.mark.parametrize(("bootstrap", "discount"), [(True, 1.0), (False, 0.0)])
@pytest.mark.parametrize("limit", [None, 3, 9])
def test_a_time_limit_truncates(make, bootstrap, discount, limit):
    """The registered one, or another one in its place; also in the second episode."""
    env = make_environment(make, None, limit, bootstrap)
    length = limit or 5
    assert env.max_episode_steps == length
    assert [ends(env, length) for _ in range(2)] == [[*[None] * (length - 1), discount]] * 2


@pytest.mark.parametrize(("kind", "mark"), [(OfGym, False), (OfGym, True), (OfGymnasium, True)])
def test_an_environment_that_marks_its_own_truncations_is_believed(kind, mark):
    class Marked(kind):
        def step(self, action):
            if kind is OfGym:
                return self.state, 0.0, True, {"TimeLimit.truncated": mark}
            return self.state, 0.0, False, mark, {}

    assert ends(make_environment(Marked), 1) == [float(mark)]


def test_a_termination_at_the_time_limit_is_a_termination():
    for kind in (OfGym, OfGymnasium):
        assert ends(make_environment(kind, max_episode_steps=30), 30)[-1] == 0.0


@pytest.mark.parametrize(
    ("name", "limit", "act", "discount"),
    [
        (MINITAUR, 50, lambda draws: np.zeros(8, np.float32), 1.0),  # it stands still
        (MINITAUR, None, lambda draws: draws.uniform(-1, 1, 8).astype(np.float32), 0.0),  # a fall
        ("LunarLanderContinuous-v2", None, lambda draws: ZEROS, 0.0),
        ("CartPole-v0", None, lambda draws: np.array(0), 0.0),
        ("gymnasium:Hopper-v5", None, lambda draws: np.ones(3, np.float32), 0.0),
    ],
)
def test_real_environments_truncate_and_terminate(name, limit, act, discount):
    env, draws = make_environment(name, 0, limit), np.random.default_rng(0)
    step = env.reset()
    taken = itertools.takewhile(lambda _: not step.is_last(), itertools.count(1))
    for length in taken:  # noqa: B007
        step = env.step(act(draws))
    assert (float(step.discount), length) == (discount, limit or length)


# --- random generators


def rollout(env, steps=40):
    generator = np.random.default_rng(5)
    seen = [env.reset().observation]
    for _ in range(steps):
        seen.append(env.step(generator.uniform(-1, 1, 8).astype(np.float32)).observation)
    return np.array(seen)


def test_an_environment_draws_from_its_own_copy_of_the_global_generators():
    """The Minitaur's randomizer draws from Python's and NumPy's at each reset."""
    first, second, other = (make_environment(MINITAUR, seed) for seed in (3, 3, 4))
    random.seed(1), np.random.seed(1)
    draws = random.random(), np.random.rand()
    random.seed(1), np.random.seed(1)
    expected = [rollout(first), rollout(first)]
    assert (random.random(), np.random.rand()) == draws, "and leaves the global ones alone"
    rollout(other)
    np.testing.assert_array_equal([rollout(second), rollout(second)], expected)
    assert not np.array_equal(expected[0], rollout(other))


def test_the_generators_survive_a_checkpoint():
    first, second = make_environment(MINITAUR, 3), make_environment(MINITAUR, 4)
    rollout(first)
    state = json.loads(json.dumps(first.gym.get_state()))
    second.gym.set_state(state)
    np.testing.assert_array_equal(rollout(first), rollout(second))


def test_a_seed_repeats_an_environment_of_gymnasium():
    first, second, other = (make_environment("gymnasium:Pendulum-v1", seed) for seed in (7, 7, 8))
    starts = [env.reset().observation for env in (first, second, other)]
    np.testing.assert_array_equal(starts[0], starts[1])
    assert not np.array_equal(starts[0], starts[2])


# --- wrong answers

AT = "at its env step 20, step 20 of the episode"
WRONG = [
    (lambda o, r, *rest: (o, np.nan, *rest), f"reward is nan {AT}"),
    (lambda o, r, *rest: (o, 1e39, *rest), rf"reward is 1e\+39 {AT}"),
    (lambda o, r, *rest: (o, None, *rest), f"reward must be one number, got None {AT}"),
    (lambda o, *rest: ([0, np.inf], *rest), rf"observation\[1\] is inf {AT}"),
    (lambda o, *rest: ("no", *rest), f"observation must be an array of numbers, got 'no' {AT}"),
    (lambda o, *rest: (np.zeros(3), *rest), rf"observation has shape \(3,\), not \(2,\), {AT}"),
    (lambda o, r, d, i: (o, r, i), r"step must return \(observation, reward, .*\), got [(\[]array"),
]


@pytest.mark.parametrize("kind", [OfGym, OfGymnasium])
@pytest.mark.parametrize(("answer", "line"), WRONG)
def test_a_wrong_answer_is_named_before_it_is_stored(kind, answer, line):
    rows, env = [], make_environment(type("Mine", (kind,), {"answer": staticmethod(answer)}))
    collector = Collector(env, random_policy(env.action_spec(), 0), rows.append)
    with pytest.raises(BrokenEnvironmentError, match=f"^the environment's {line}") as caught:
        collector.run(30)
    assert len(rows) == 19
    assert "\n" not in str(caught.value)


def test_a_reward_of_one_number_in_an_array_will_do():
    for kind in (OfGym, OfGymnasium):
        answer = staticmethod(lambda o, r, *rest: (o, np.full(1, 7.0), *rest))
        env = make_environment(type("Mine", (kind,), {"answer": answer}))
        assert collected(env, 20)[-1].reward == 7


@pytest.mark.parametrize(
    ("methods", "line"),
    [
        ({"step": OfGym.step}, r"step must return \(observation, .* truncated, info\), got"),
        ({"reset": lambda self, seed: ZEROS}, r"reset must return \(observation, info\), got"),
    ],
)
def test_the_methods_of_the_other_library_are_found_before_any_work(methods, line):
    with pytest.raises(ParameterError, match=rf"^`make_env` must be .*\(the environment's {line}"):
        make_environment(type("Mine", (OfGymnasium,), methods))
    env = make_environment(type("Mine", (OfGym,), {"reset": lambda self: (ZEROS, {})}))
    with pytest.raises(BrokenEnvironmentError, match="observation must be an array of numbers"):
        env.reset()


# --- the time limit of a step

PROGRAM = """
import ctypes, os, signal, subprocess, sys, time
import gym, numpy as np
from labkit.environments.make import make_environment

class Mine(gym.Env):
    observation_space = action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self):
        return np.zeros(1, np.float32)

    def step(self, action):
        print("begins", flush=True)
        {step}
        return np.zeros(1, np.float32), 0.0, False, {{}}

env = make_environment(Mine, timeout=1)
env.reset()
time.sleep(1.5)  # not in the environment: no limit
env.step(np.zeros(1, np.float32))
print("ends", flush=True)
"""
LOCKED = "ctypes.PyDLL(None).sleep(60)  # keeps Python's lock, as physics does"
# Ctrl-Z, and `fg` later than the limit.
SUSPENDED = (
    "subprocess.Popen(['sh', '-c', f'sleep 2; kill -CONT {os.getpid()}']); "
    "os.kill(os.getpid(), signal.SIGTSTP); time.sleep(0.2)"
)
# In a process that the environment forks, nothing of the program may run after `sys.exit`.
FORKS = "pid = os.fork(); pid or sys.exit(); os.waitpid(pid, 0)"


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    ("step", "status", "output"),
    [(LOCKED, 1, "begins\n"), (SUSPENDED, 0, "begins\nends\n"), (FORKS, 0, "begins\nends\n")],
    ids=["hangs", "is suspended", "forks"],
)
def test_a_step_that_hangs_ends_the_process(step, status, output):
    command = [sys.executable, "-c", PROGRAM.format(step=step)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (status, output), ended.stderr
    assert ("Timeout (0:00:01)!" in ended.stderr) == bool(status)
    assert ('File "<string>", line 14 in step' in ended.stderr) == bool(status)
