"""The actor in NumPy against TF-Agents' policy, and as files."""

from pathlib import Path

import numpy as np
import pytest
from tf_agents.policies import greedy_policy, policy_saver
from tf_agents.trajectories import time_step

from labkit import quiet
from labkit.errors import ParameterError
from labkit.sac.actor import Actor, ActorPolicy
from labkit.sac.rollout import load_actor

OBSERVATIONS = np.random.default_rng(0).normal(size=(16, 28)).astype(np.float32)


def distribution(agent, observations=OBSERVATIONS):
    steps = time_step.restart(observations, len(observations))
    return agent.policy.distribution(steps, ()).action


def test_two_layers_by_hand():
    """relu([1, −1] / 2) = [0.5, 0]; mean 0.5 · 2 = 1; middle 1, half range 3."""
    weights = [np.eye(2), np.zeros(2), np.array([[2.0, 9.0], [7.0, 9.0]]), np.zeros(2)]
    actor = Actor(weights, np.array([-2.0]), np.array([4.0]), (2.0, 2.0))
    np.testing.assert_allclose(actor(np.array([1.0, -1.0])), [1 + 3 * np.tanh(1.0)], rtol=1e-6)


def test_the_mean_action_is_that_of_the_agent(make_agent):
    agent = make_agent()
    policy = ActorPolicy(agent)
    expected = distribution(agent).mode()
    np.testing.assert_allclose(policy(OBSERVATIONS), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(policy(OBSERVATIONS[3]), expected[3], rtol=1e-4, atol=1e-6)


def test_samples_have_the_agents_distribution(make_agent):
    agent, observation = make_agent(), OBSERVATIONS[0]
    normal = distribution(agent, observation[None]).input_distribution
    policy = ActorPolicy(agent, seed=1)
    drawn = np.arctanh(np.array([policy(observation) for _ in range(4_000)], np.float64))
    stddev = normal.stddev()[0].numpy()
    # Five standard errors: one false alarm in a million runs for each of 16 numbers.
    apart = np.abs(drawn.mean(0) - normal.mean()[0])
    np.testing.assert_array_less(apart, 5 * stddev / np.sqrt(4_000))
    np.testing.assert_array_less(np.abs(drawn.std(0) / stddev - 1), 5 / np.sqrt(2 * 4_000))


def test_noise_depends_on_the_seed_and_resumes_from_its_state(make_agent):
    agent, observation = make_agent(), OBSERVATIONS[0]
    one, same, other = (ActorPolicy(agent, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one(observation), same(observation))
    assert not np.allclose(one(observation), other(observation))
    other.set_state(one.get_state())
    np.testing.assert_array_equal(one(observation), other(observation))


def test_temperature_scales_the_noise(make_agent):
    agent, observation = make_agent(), OBSERVATIONS[0]
    policy, normal = ActorPolicy(agent), distribution(agent, observation[None]).input_distribution
    np.testing.assert_allclose(policy.at(0.0, 5)(observation), policy(observation), rtol=1e-6)
    noise = np.random.default_rng(5).standard_normal(8, dtype=np.float32)
    expected = np.tanh(normal.mean()[0] + 2 * normal.stddev()[0] * noise)
    np.testing.assert_allclose(policy.at(2.0, 5)(observation), expected, rtol=1e-4)


def test_set_weights_replaces_the_network(make_agent):
    from labkit.sac.update import flat_weights

    one, other = make_agent(seed=1), make_agent(seed=2)
    policy = ActorPolicy(one)
    policy.set_weights(flat_weights(other).numpy())
    np.testing.assert_allclose(policy(OBSERVATIONS), ActorPolicy(other)(OBSERVATIONS), rtol=1e-6)


def test_an_npz_file_holds_the_whole_policy(make_agent, tmp_path):
    policy = ActorPolicy(make_agent(observation_scale=tuple(range(1, 29))))
    np.savez(tmp_path / "policy.npz", **policy.arrays())
    loaded = Actor.load(tmp_path / "policy.npz")
    np.testing.assert_allclose(loaded(OBSERVATIONS), policy(OBSERVATIONS), rtol=1e-6)


@pytest.fixture
def saved(make_agent, tmp_path):
    """An agent and the folder of its SavedModel, with layers in more than ten variables."""
    agent = make_agent(actor_fc_layer_params=(8,) * 6, observation_scale=(2.0,) * 28)
    with quiet():
        saver = policy_saver.PolicySaver(greedy_policy.GreedyPolicy(agent.policy))
        saver.save(str(tmp_path / "policy"))
    return agent, tmp_path / "policy"


def test_a_saved_policy_is_read_without_executing_it(saved):
    agent, folder = saved
    loaded = load_actor(folder, (2.0,) * 28)
    np.testing.assert_allclose(loaded(OBSERVATIONS), ActorPolicy(agent)(OBSERVATIONS), rtol=1e-6)


def test_a_damaged_policy_is_named(saved, tmp_path):
    _, folder = saved
    with pytest.raises(ParameterError, match="missing or damaged"):
        load_actor(tmp_path / "nothing", ())
    index = folder / "variables" / "variables.index"
    index.write_bytes(index.read_bytes()[:50])
    with pytest.raises(ParameterError, match="missing or damaged"):
        load_actor(folder, (2.0,) * 28)


def test_tensorflow_is_not_needed_for_the_actor():
    """`labkit export` copies the module, so it imports NumPy and the standard library alone."""
    import ast

    from labkit.sac import actor

    tree = ast.parse(Path(actor.__file__).read_text())
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    assert names == {"copy", "numpy", "collections.abc", "pathlib", "typing"}
