"""What labkit stores of environments that reuse buffers, wrap time limits or answer wrongly."""

import itertools

import gym
import numpy as np
import pytest
from tf_agents.drivers.py_driver import PyDriver
from tf_agents.policies.random_py_policy import RandomPyPolicy

from labkit.environments.make import check_separate, check_specs, make_environment
from labkit.environments.seeding import environment_name
from labkit.errors import BrokenEnvironmentError, ParameterError
from labkit.replay.transitions import Transition, layout_of
from labkit.sac import evaluation
from labkit.sac.rollout import Collector, evaluate, random_policy

BOX = gym.spaces.Box(-1, 1, (2,), np.float32)


class OwnBuffer(gym.Env):
    """Returns the same array each time, and changes the action that it gets."""

    observation_space = gym.spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = BOX

    def __init__(self):
        self.state = np.zeros(2, np.float32)

    def reset(self):
        self.state[:] = 0
        return self.state

    def step(self, action):
        self.state += 1
        action *= 0
        return self.state, 1.0, self.state[0] == 10, {}


def collected(env, steps=20):
    """The transitions of the collector."""
    rows = []
    Collector(env, random_policy(env.action_spec(), 0), rows.append).run(steps)
    return rows


def driven(env, steps=20):
    """The transitions that TF-Agents' driver reports, as to the first actors of notebook 03."""
    told = []
    policy = RandomPyPolicy(env.time_step_spec(), env.action_spec(), seed=0)
    PyDriver(env, policy, [told.append], max_steps=steps).run(env.reset())
    return [
        Transition(one.observation, one.action, one.reward, one.discount, two.observation)
        for one, two in itertools.pairwise(told)
        if not one.is_boundary()
    ]


@pytest.mark.parametrize("path", [collected, driven])
def test_an_environment_that_returns_its_own_buffer_is_stored_step_by_step(path):
    rows = path(make_environment(OwnBuffer))
    assert len(rows) >= 18
    for row in rows:
        np.testing.assert_array_equal(row.next_observation - row.observation, [1, 1])
        assert np.abs(row.action).min() > 0, "not the action that the environment changed"


class Endless(gym.Env):
    """Never ends by itself, in observations and actions of a given dtype."""

    action_space = BOX
    observation_space = BOX

    def reset(self):
        return np.zeros(2, self.observation_space.dtype)

    def step(self, action):
        assert self.action_space.contains(action), (action, action.dtype)
        return np.zeros(2, self.observation_space.dtype), 0.0, False, {}


gym.register("LabkitEndless-v0", entry_point=Endless, max_episode_steps=5)
WRAPPERS = [
    lambda env: gym.wrappers.RescaleAction(env, -1, 1),
    gym.wrappers.ClipAction,
    gym.wrappers.RecordEpisodeStatistics,
    lambda env: gym.wrappers.ClipAction(gym.wrappers.RecordEpisodeStatistics(env)),
    lambda env: env,
]


def last_steps(env, steps=5):
    env.reset()
    return [env.step(np.zeros(2, np.float32)) for _ in range(steps)]


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize(("bootstrap", "discount"), [(True, 1.0), (False, 0.0)])
def test_a_time_limit_below_other_wrappers_truncates(wrap, bootstrap, discount):
    env = make_environment(
        lambda: wrap(gym.make("LabkitEndless-v0")), bootstrap_time_limits=bootstrap
    )
    assert env.max_episode_steps == 5
    for _ in range(2):  # the second episode as the first
        *before, last = last_steps(env)
        assert not any(step.is_last() for step in before)
        assert (bool(last.is_last()), float(last.discount)) == (True, discount)


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize("limit", [3, 8])
def test_max_episode_steps_replaces_a_time_limit_wherever_it_is(wrap, limit):
    env = make_environment(lambda: wrap(gym.make("LabkitEndless-v0")), max_episode_steps=limit)
    assert [bool(step.is_last()) for step in last_steps(env, limit)] == [False] * (limit - 1) + [
        True
    ]
    assert float(env.current_time_step().discount) == 1.0


def limited(*steps):
    """`Endless` in time limits, the first one inside."""

    def make():
        env = Endless()
        for limit in steps:
            env = gym.wrappers.TimeLimit(env, limit)
        return env

    return make


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        (limited(30, 20), 20),
        (limited(20, 30), 20),
        (limited(np.int64(6)), 6),
        (limited(4.5), 5),  # as 0.45 s / 0.1 s; Gym ends at the first step that is not below it
        (limited(float("inf"), 6), 6),
        (lambda: gym.wrappers.TimeLimit(gym.make("LabkitEndless-v0"), 3), 3),
        (lambda: gym.wrappers.TimeLimit(gym.wrappers.ClipAction(limited(7)()), 9), 7),
        (lambda: gym.wrappers.TimeLimit(gym.wrappers.ClipAction(limited(9)()), 7), 7),
    ],
)
def test_of_several_time_limits_the_smallest_holds(make, steps):
    for env, length in [(make_environment(make), steps), (make_environment(make, None, 25), 25)]:
        assert env.max_episode_steps == length
        assert type(env.max_episode_steps) is int, "it is written as JSON"
        lasts = last_steps(env, length)
        assert [bool(step.is_last()) for step in lasts] == [False] * (length - 1) + [True]
        assert float(lasts[-1].discount) == 1.0


@pytest.mark.parametrize("kind", [gym.wrappers.TimeLimit, gym.wrappers.OrderEnforcing])
def test_a_subclass_of_gym_s_own_wrappers_keeps_its_code(kind):
    class Doubled(kind):
        def step(self, action):
            observation, reward, done, info = super().step(action)
            return observation, reward + 2.0, done, info

    env = make_environment(lambda: Doubled(gym.make("LabkitEndless-v0")))
    steps = last_steps(env)
    assert [float(step.reward) for step in steps] == [2.0] * 5
    assert [bool(step.is_last()) for step in steps] == [False] * 4 + [True]


@pytest.mark.parametrize(("truncated", "discount"), [(True, 1.0), (False, 0.0)])
def test_an_environment_that_marks_its_own_truncations_is_believed(truncated, discount):
    class Marked(Endless):
        def step(self, action):
            return np.zeros(2, np.float32), 0.0, True, {"TimeLimit.truncated": truncated}

    (step,) = last_steps(make_environment(Marked), 1)
    assert (bool(step.is_last()), float(step.discount)) == (True, discount)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_floats_are_converted_both_ways(dtype):
    class Other(Endless):
        action_space = gym.spaces.Box(-0.1, 0.1, (2,), dtype)
        observation_space = gym.spaces.Box(-1, 1, (2,), dtype)

    env = make_environment(Other)
    check_specs(env)
    assert layout_of(env).width == 8
    for spec in (env.observation_spec(), env.action_spec()):
        assert spec.dtype == np.float32
    env.reset()
    step = env.step(np.array([-0.1, 0.1], np.float32))  # beyond float64's bound of 0.1
    assert step.observation.dtype == np.float32


def answers(step=None, reset=None):
    """An environment whose third step, or whose reset, answers so."""

    class Answers(Endless):
        count = 0

        def reset(self):
            return np.zeros(2, np.float32) if reset is None else reset

        def step(self, action):
            self.count += 1
            good = np.zeros(2, np.float32), 0.0, False, {}
            return step(*good) if step and self.count == 3 else good

    return Answers


ZEROS = np.zeros(2, np.float32)
AT = "at its env step 3, step 3 of the episode"
BROKEN = [
    (answers(lambda o, r, d, i: (o, np.nan, d, i)), f"reward is nan {AT}"),
    (answers(lambda o, r, d, i: (o, 1e39, d, i)), rf"reward is 1e\+39 {AT}"),
    (answers(lambda o, r, d, i: (o, None, d, i)), f"reward must be one number, got None {AT}"),
    (
        answers(lambda o, r, d, i: (o, np.ones(1), d, i)),
        rf"reward must be one number, got array\(\[1\.\]\) {AT}",
    ),
    (
        answers(lambda o, r, d, i: (o, r, d, False, i)),
        r"step must return \(observation, reward, done, info\), as in Gym 0.23, not Gymnasium, got",
    ),
    *[
        (
            answers(lambda o, r, d, i, wrong=wrong: (o, r, wrong, i)),
            f"done must be True or False, got .* {AT}",
        )
        for wrong in (np.array([True, False]), [False], "False", np.nan, None, 2, np.ma.masked)
    ],
    (
        answers(lambda o, r, d, i: (o, r, d, {"TimeLimit.truncated": np.array([True, False])})),
        rf"info\['TimeLimit.truncated'\] must be True or False, got array.* {AT}",
    ),
    (
        answers(lambda o, r, d, i: (o, np.ma.masked, d, i)),
        f"reward must be one number, got masked {AT}",
    ),
    (answers(lambda o, r, d, i: (o + 1j, r, d, i)), f"observation is not an array of numbers {AT}"),
    (
        answers(lambda o, r, d, i: (["1", "2"], r, d, i)),
        f"observation is not an array of numbers {AT}",
    ),
    (
        answers(lambda o, r, d, i: (np.ma.array([1, 2], mask=[0, 1]), r, d, i)),
        f"observation is not an array of numbers {AT}",
    ),
    (answers(lambda o, r, d, i: next(iter(()))), f"step raised StopIteration {AT}"),
    (answers(lambda o, r, d, i: None), r"step must return \(observation, .*, got None"),
    (answers(lambda o, r, d, i: ([0, np.inf], r, d, i)), rf"observation\[1\] is inf {AT}"),
    (answers(lambda o, r, d, i: ("no", r, d, i)), f"observation is not an array of numbers {AT}"),
    (answers(lambda o, r, d, i: (None, r, d, i)), r"observation has shape \(\), not \(2,\), at"),
    (
        answers(reset=np.array([np.nan, 0], np.float32)),
        r"observation\[0\] is nan after its reset at env step 0",
    ),
    (
        answers(reset=(ZEROS, {})),
        "reset must return the observation alone, as in Gym 0.23, not Gymnasium, got",
    ),
    (answers(reset=np.zeros(3)), r"observation has shape \(3,\), not \(2,\), after its reset"),
]


@pytest.mark.parametrize(("make", "expected"), BROKEN)
@pytest.mark.parametrize("path", [collected, driven])
def test_a_wrong_answer_is_named_before_it_is_stored(make, expected, path):
    with pytest.raises(BrokenEnvironmentError, match=f"^the environment's {expected}") as caught:
        path(make_environment(make))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Endless(), "`make_env` must be a class or a function that returns a new Gym .*, got <"),
        (None, "`make_env` must be a class or a function that returns a new Gym .*, got None"),
        (lambda: None, "`make_env` must be a function that returns a gym.Env .*, got None"),
        (lambda: Endless, "`make_env` must be a function that returns a gym.Env .*, got <class"),
    ],
)
def test_what_is_not_a_factory_is_refused(given, expected):
    with pytest.raises(ParameterError, match=f"^{expected}"):
        make_environment(given)


def test_a_factory_that_fails_is_named_with_the_reason():
    def factory():
        raise ImportError("no simulator")

    expected = r"^`make_env` must be an environment that works here \(no simulator\), got <function"
    with pytest.raises(ParameterError, match=expected):
        make_environment(factory)


def box(low, high):
    return gym.spaces.Box(np.array(low, np.float32), np.array(high, np.float32))


SPACES = [
    (
        {"action_space": box([-1, 1], [1, 0.5])},
        r"`action_space` must be .*; \[1\] has 1.0, 0.5, got",
    ),
    (
        {"action_space": box([-1, np.nan], [1, 1])},
        r"`action_space` must be .*; \[1\] has nan, 1.0, g",
    ),
    (
        {"observation_space": box([1], [-1])},
        r"`observation_space` must be .*; \[0\] has 1.0, -1.0, g",
    ),
    (
        {"action_space": box([], [])},
        r"`action_space` must be .* one number or more, .* \(0,\), got",
    ),
    ({"observation_space": box([], [])}, "`observation_space` must be a space of one number or m"),
    ({"action_space": None}, "`action_space` must be a gym.Space of the environment, got None"),
    ({"observation_space": None}, "`observation_space` must be a gym.Space of .*, got None"),
    ({"action_space": box([-1, 2], [1, 2])}, r"`make_env` must be .*; action\[1\] of this one has"),
    (
        {"observation_space": type("Custom", (gym.Space,), {})((2,), np.float32)},
        r"`make_env` must be an environment whose spaces TF-Agents can describe \(",
    ),
    (
        {"action_space": gym.spaces.Box(0, 1, (2,), dtype=bool)},
        r"`make_env` must be an environment whose spaces TF-Agents can describe \(",
    ),
    (
        {"action_space": box([-1e38], [1e38])},
        r"`make_env` must be .* within ±1e\+09; .* -1e\+38 to",
    ),
]


@pytest.mark.parametrize(("spaces", "expected"), SPACES)
def test_spaces_that_cannot_be_used_are_refused(spaces, expected):
    with pytest.raises(ParameterError, match=f"^{expected}") as caught:
        check_specs(make_environment(type("Mine", (Endless,), spaces)))
    assert "\n" not in str(caught.value)


def test_an_attribute_spec_of_the_users_own_is_no_registered_name():
    env = make_environment(type("Mine", (Endless,), {"spec": {"weight": 3}}))
    assert environment_name(env) == "Mine"


def test_an_environment_without_spaces_is_refused():
    class Bare(gym.Env):
        pass

    with pytest.raises(
        ParameterError, match=r"^`observation_space` must be a gym.Space of the env"
    ):
        make_environment(Bare)


@pytest.mark.parametrize("seed", [-1, "x", 1.5, 2**32])
def test_a_seed_that_makes_no_sense_is_refused(seed):
    with pytest.raises(ParameterError, match=r"^`seed` must be a whole number from 0 to .*, got"):
        make_environment(Endless, seed)


@pytest.mark.parametrize("steps", [0, -1, 1.5, "many"])
def test_a_time_limit_that_makes_no_sense_is_refused(steps):
    with pytest.raises(ParameterError, match=r"^`max_episode_steps` must be .*; or None\), got"):
        make_environment(Endless, max_episode_steps=steps)


def test_the_same_instance_twice_is_refused():
    one = Endless()
    wrapped = [make_environment(lambda: gym.wrappers.ClipAction(one)) for _ in range(2)]
    with pytest.raises(ParameterError, match=r"^`make_env` must be .*, got the same environment"):
        check_separate(*wrapped)
    check_separate(make_environment(Endless), make_environment(Endless))


@pytest.mark.parametrize(
    ("name", "space"),
    [
        ("action_space", gym.spaces.Box(-5, 5, (2,))),
        ("action_space", gym.spaces.Box(-1, 1, (1,))),
        ("observation_space", gym.spaces.Box(-1, 1, (3,))),
    ],
)
def test_a_second_environment_with_other_spaces_is_refused(name, space):
    first, other = (
        make_environment(Endless),
        make_environment(type("Other", (Endless,), {name: space})),
    )
    expected = rf"^`make_env` must be .*, with the same `{name}`, got Box\(.*\) and then Box\("
    with pytest.raises(ParameterError, match=expected) as caught:
        check_separate(first, other)
    assert "\n" not in str(caught.value)


def test_an_evaluation_of_an_environment_that_never_ends_is_cut(monkeypatch, capsys):
    monkeypatch.setattr(evaluation, "EPISODE_LIMIT", 7)
    policy = lambda observation: np.zeros(2, np.float32)  # noqa: E731
    found = evaluate(make_environment(Endless), policy, 1, seed=0)
    assert found.lengths == (7,)
    line = "an evaluation episode was cut after 7 env steps: this environment has no time limit; "
    assert capsys.readouterr().out == f"{line}`max_episode_steps` sets one\n"
    longer = make_environment(Endless, max_episode_steps=9)
    assert evaluate(longer, policy, 1, seed=0).lengths == (9,)
    assert capsys.readouterr().out == ""


def test_an_evaluation_can_be_stopped_between_two_steps():
    taken = []

    def after_step():
        taken.append(1)
        if len(taken) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(make_environment(Endless), lambda o: ZEROS, 1, seed=0, after_step=after_step)
    assert len(taken) == 4


class NarrowBounds(OwnBuffer):
    """Rejects what is beyond its bounds, and has an attribute that TF-Agents' wrappers have."""

    action_space = gym.spaces.Box(-2.0, 0.4, (1,), np.float32)
    wrapped_env = property(lambda self: self)

    def step(self, action):
        assert self.action_space.contains(action)
        return super().step(action)


def test_an_action_is_within_its_bounds_to_the_last_bit():
    env = make_environment(NarrowBounds, seed=0)
    env.reset()
    middle, half_range = np.float32(-0.8), np.float32(1.2)
    saturated = np.array([middle + half_range], np.float32)
    assert saturated[0] > env.action_spec().maximum
    env.step(saturated)
