"""Several replicas train as one device would: slow, because each strategy is compiled anew."""

import numpy as np
import pytest
import tensorflow as tf
from test_strategy import finish, start

from labkit.environments.make import make_environment
from labkit.replay.transitions import Layout
from labkit.sac import agent as agents
from labkit.sac.update import make_update
from labkit.training import checkpoint
from labkit.training.run import read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]
MIRRORED = ("mirrored:1", "mirrored:2", "mirrored:4")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """What 1, 2 and 4 replicas made of the same batches, by strategy; in two processes."""
    folder = tmp_path_factory.mktemp("replicas")
    together = ("mirrored:2,cpu", "mirrored:4,mirrored:1")
    finish(*[start("mirrored", folder / names) for names in together])
    return {path.stem: dict(np.load(path)) for path in folder.glob("*.npz")}


def apart(found, expected):
    """‖found − expected‖ / ‖expected‖."""
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


GRADIENTS = [f"gradient of {name}" for name in ("critic", "actor", "alpha")]
WEIGHTS = ["critic 1", "critic 2", "actor", "target 1", "target 2", "log alpha"]


@pytest.mark.parametrize("strategy", MIRRORED)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_one_device(measured, strategy, name):
    assert np.linalg.norm(measured["cpu"][name]) > 0
    assert apart(measured[strategy][name], measured["cpu"][name]) < 1e-5


def test_optimizers_keep_their_moments_in_one_order(measured):
    """TF-Agents lists the critics' variables in another order in each process."""
    for name in ("critic", "actor", "alpha"):
        orders = [measured[strategy][f"order of {name}"] for strategy in ("cpu", *MIRRORED)]
        for order in orders[1:]:
            assert apart(order, orders[0]) < 1e-5


@pytest.mark.parametrize("strategy", MIRRORED)
@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_after_ten_steps_of_sgd_are_those_of_one_device(measured, strategy, name):
    one, first = measured["cpu"], measured["cpu"][f"{name} at first"]
    # They must have moved for their agreement to say anything.
    assert apart(one[name], first) > 1e-3
    assert apart(measured[strategy][name], one[name]) < 1e-5
    assert apart(measured[strategy][f"{name}, period 2"], one[f"{name}, period 2"]) < 1e-5


@pytest.mark.parametrize("name", GRADIENTS)
def test_different_whole_batches_are_something_else(measured, name):
    """A hundred times the bound at least; the mean of one number, α's, moves least."""
    assert apart(measured["whole batches"][name], measured["cpu"][name]) > 1e-3


@pytest.mark.parametrize("strategy", MIRRORED)
def test_losses_shown_are_those_of_one_device(measured, strategy):
    assert measured["cpu"]["losses"].shape == (10, 4)
    np.testing.assert_allclose(
        measured[strategy]["losses"], measured["cpu"]["losses"], rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("strategy", MIRRORED)
def test_one_step_counts_once_and_all_copies_stay_equal(measured, strategy):
    assert measured[strategy]["steps"] == measured["cpu"]["steps"] == 10
    assert measured[strategy]["copies apart"] == 0


@pytest.mark.parametrize("strategy", MIRRORED)
def test_threads_of_replicas_do_not_take_each_others_noise(measured, strategy):
    name = "loss with hand-overs"
    np.testing.assert_allclose(measured[strategy][name], measured["cpu"][name], rtol=1e-4)


@pytest.fixture(scope="module")
def mirrored_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "mirrored"
    finish(start("train", path))
    return path, dict(np.load(path / "agent.npz"))


def test_a_mirrored_run_ends_and_learns(mirrored_run):
    path, found = mirrored_run
    assert found["replicas"] == 2
    table = read_metrics(path)
    assert table.gradient_step.iloc[-1] == 40
    logged = table[table.critic_loss.notna()]
    assert np.isfinite(logged[["critic_loss", "actor_loss", "alpha_loss"]].to_numpy()).all()
    assert (np.diff([np.exp(-4), *logged.alpha]) < 0).all()


def test_the_policy_of_a_mirrored_run_acts_the_same_without(mirrored_run):
    path, found = mirrored_run
    from tf_agents.trajectories import time_step

    policy = tf.saved_model.load(str(path / "policy"))
    actions = policy.action(time_step.restart(found["observations"], 16)).action
    np.testing.assert_allclose(actions, found["actions"], atol=1e-5)
    assert np.ptp(actions, axis=0).min() > 1e-3  # it looks at what it is given


@pytest.mark.parametrize("written_by", ["labkit", "tensorflow"])
def test_checkpoints_of_a_mirrored_run_restore_without(
    mirrored_run, small_config, random_rows, written_by
):
    path, found = mirrored_run
    env, one_device = make_environment("MinitaurBulletEnv-v0"), tf.distribute.get_strategy()
    agent = agents.create_agent(small_config(seed=9), env, one_device)
    agent._seed = small_config().seed  # of the noise: the weights are to come from the checkpoint
    update = make_update(agent, Layout(28, 8), one_device)
    update(tf.zeros([32, 66]))  # Adam's moments are there after the first step
    variables = agents.state_variables(agent)
    if written_by == "labkit":
        saved = checkpoint.latest(path / "checkpoints")
        checkpoint.assign(variables, checkpoint.load(saved)[0], saved)
    else:
        status = tf.train.Checkpoint(agent=agent).read(str(path / "tensorflow"))
        status.assert_existing_objects_matched()
    for place, variable in enumerate(variables):
        np.testing.assert_array_equal(variable.numpy(), found[f"{place:04d}"])
    assert f"{len(variables):04d}" not in found
    assert agent.train_step_counter.numpy() == 40
    losses, weights = update(tf.constant(random_rows(32)))
    np.testing.assert_allclose(losses, found["next_losses"], rtol=1e-4, atol=1e-6)
    assert apart(weights, found["next_weights"]) < 1e-5
