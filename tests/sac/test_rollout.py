"""Episodes: what a collector writes and what an evaluation reports, on a robot that fits a line."""

import gym
import numpy as np
import pytest

import labkit
from labkit.environments.make import raw_env
from labkit.errors import DivergedError, ParameterError
from labkit.sac.rollout import Collector, evaluate, random_policy


class Line(gym.Env):
    """A cart at x that moves by its action; reward x; falls off at x ≥ 3; starts at random."""

    observation_space = gym.spaces.Box(-10, 10, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def seed(self, seed=None):
        self._random = np.random.default_rng(seed)

    def reset(self):
        self.x = self._random.uniform(0, 0.5)
        return np.array([self.x], np.float32)

    def step(self, action):
        self.x += float(action[0])
        return np.array([self.x], np.float32), self.x, self.x >= 3, {}


def forward(_):
    return np.array([1.0], np.float32)


def still(_):
    return np.array([0.0], np.float32)


@pytest.fixture
def line():
    return labkit.make_environment(Line, seed=0, max_episode_steps=10)


def collected(env, policy, steps, **options):
    rows = []
    collector = Collector(env, policy, rows.append, **options)
    collector.run(steps)
    collector.end()
    return rows, collector


def test_a_fall_has_discount_0_and_a_time_limit_1(line):
    falls, _ = collected(line, forward, 12)
    assert [float(row.discount) for row in falls] == [1, 1, 0] * 4
    limits, _ = collected(line, still, 20)
    assert [float(row.discount) for row in limits] == [1] * 20


def test_without_bootstrap_a_time_limit_has_discount_0():
    env = labkit.make_environment(Line, 0, max_episode_steps=5, bootstrap_time_limits=False)
    rows, _ = collected(env, still, 10)
    assert [float(row.discount) for row in rows] == [1, 1, 1, 1, 0] * 2


def test_a_transition_has_both_observations_and_no_pair_joins_two_episodes(line):
    rows, _ = collected(line, forward, 6)
    for row in rows:
        assert float(row.next_observation[0]) == pytest.approx(float(row.observation[0]) + 1)
        assert float(row.reward) == pytest.approx(float(row.next_observation[0]))


def test_a_collector_counts_steps_and_returns_of_whole_episodes(line):
    begun = []
    rows, collector = collected(line, forward, 7, before_episode=lambda: begun.append(1))
    assert (collector.env_steps, len(begun)) == (7, 3)
    by_hand = [sum(float(row.reward) for row in rows[i : i + 3]) for i in (0, 3)]
    assert list(collector.recent_returns) == pytest.approx(by_hand)
    assert collector.mean_return() == pytest.approx(np.mean(by_hand))
    assert np.isnan(collected(line, forward, 1)[1].mean_return())


def test_the_policy_may_change_within_an_episode(line):
    rows = []
    collector = Collector(line, still, rows.append)
    collector.run(2)
    collector.policy = forward
    collector.run(1)
    assert [float(row.action[0]) for row in rows] == [0, 0, 1]


def test_an_evaluation_reports_returns_lengths_and_distances_by_hand():
    """Undiscounted sums of the environment's own reward, for each episode."""
    env = labkit.make_environment(Line, seed=0, max_episode_steps=10)
    result = evaluate(env, forward, episodes=3, seed=5)
    seeds = np.random.SeedSequence(5).generate_state(3) % 2**31
    starts = [np.random.default_rng(seed).uniform(0, 0.5) for seed in seeds]
    np.testing.assert_allclose(result.returns, np.multiply(3, starts) + (1 + 2 + 3), rtol=1e-5)
    assert result.lengths == (3.0, 3.0, 3.0)
    assert np.isnan(result.distances).all(), "this environment has no robot with a base"
    assert result.mean_return == pytest.approx(np.mean(result.returns))


def test_episodes_depend_on_the_seed_alone(line):
    first = evaluate(line, forward, 2, seed=5)
    collected(line, forward, 4)  # whatever was played before
    assert evaluate(line, forward, 2, seed=5).returns == first.returns
    assert evaluate(line, forward, 2, seed=6).returns != first.returns
    assert first.returns[0] != first.returns[1]


def test_two_processes_play_the_same_episodes_as_one(line):
    here = []
    robot = labkit.make_environment("MinitaurBulletEnv-v0", seed=4, max_episode_steps=40)
    for size in (0, 0.3, 1):

        def policy(seen, size=size):
            here.append(seen)
            return size * np.tanh(seen[:8])

        one = evaluate(robot, policy, 3, seed=2)
        here.clear()
        assert evaluate(robot, policy, 3, seed=2, processes=2) == one
        assert here == [], "forks play"
    evaluate(line, policy, 3, seed=2, processes=2)
    assert here, "nobody knows whether a user's own environment can be forked"


def test_the_minitaurs_distance_is_how_far_its_base_moved_forward(minitaur):
    robot, places, draw = raw_env(minitaur), [], random_policy(minitaur.action_spec(), 0)

    def policy(seen):
        places.append(robot.minitaur.GetBasePosition()[0])
        return draw(seen)

    result = evaluate(minitaur, policy, 1, seed=1)
    (length,), (distance,) = result.lengths, result.distances
    assert length == len(places)
    assert distance == pytest.approx(places[-1], abs=0.02)  # it begins near 0
    assert abs(distance) > 0.02, "else the sign is not tested"


def test_random_actions_fill_the_bounds_and_depend_on_the_seed(line):
    spec = line.action_spec()
    drawn = np.array([random_policy(spec, 1)(None)[0] for _ in range(2)])
    assert drawn[0] == drawn[1]
    policy = random_policy(spec, 2)
    many = np.array([policy(None)[0] for _ in range(2_000)])
    assert -1 <= many.min() < -0.99
    assert 0.99 < many.max() <= 1
    assert abs(many.mean()) < 5 / np.sqrt(12 * 500)


def test_an_action_that_is_not_finite_is_named_with_its_env_step(line):
    answers = iter([0.0, 0.0, np.nan])
    with pytest.raises(
        DivergedError, match=r"the action at step 3 of the episode is array\(\[nan\]"
    ):
        collected(line, lambda _: np.array([next(answers)], np.float32), 5)


def test_wrong_arguments_get_one_line(line):
    with pytest.raises(
        ParameterError, match=r"`policy` must be a function that returns actions of shape \(1,\)"
    ):
        evaluate(line, lambda _: np.zeros(2, np.float32), 1, 0)
    for wrong in ((None, forward, 1, 0), (line, forward, 0, 0), (line, forward, 1, -1)):
        with pytest.raises(ParameterError, match=r"^`(env|episodes|seed)` must be"):
            evaluate(*wrong)
