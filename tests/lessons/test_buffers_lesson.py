"""Notebook 02: the DQN on its page, and what it says about TF-Agents' buffers and losses."""

import books
import numpy as np
import pytest
import reverb
import tensorflow as tf
from tf_agents.agents.ddpg import critic_network
from tf_agents.agents.sac import sac_agent
from tf_agents.networks import actor_distribution_network
from tf_agents.replay_buffers import reverb_replay_buffer, reverb_utils
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step, trajectory

from labkit.lessons import buffers
from labkit.replay import server


@pytest.fixture(scope="module")
def page():
    """What the cells of the DQN define."""
    names = {"np": np}
    for cell in books.read("02").cells:
        if cell.id in ("ring", "dqn-network", "dqn-gradient", "ess"):
            exec(cell.source.partition("whole_run =")[0], names)
    return names


def test_a_full_ring_overwrites_its_oldest_rows(page):
    ring = page["RingBuffer"](8, np.int64)
    for row in range(13):
        ring.add(row)
    assert ring.rows.tolist() == [8, 9, 10, 11, 12, 5, 6, 7]
    assert set(ring.sample(1_000, np.random.default_rng(0))) == set(range(5, 13))


def test_the_gradient_is_that_of_the_loss_with_the_target_held_constant(page):
    rng = np.random.default_rng(0)
    weights, target = page["new_weights"](rng), page["new_weights"](rng)
    rows = np.zeros(6, page["ROW"])
    rows["obs_tm1"], rows["obs_t"] = rng.normal(size=(2, 6, 4))
    rows["a_tm1"], rows["r_t"], rows["discount_t"] = [0, 1, 0, 1, 1, 0], 1, [1, 1, 0, 1, 0, 1]
    errors = page["td_errors"](weights, target, rows)
    assert np.allclose((errors + _chosen(page, weights, rows))[[2, 4]], 1), "a termination"
    gradient = page["loss_gradient"](weights, rows, errors)
    fixed = errors + _chosen(page, weights, rows)
    for array, slope in zip(weights, gradient, strict=True):
        place = tuple(np.array(array.shape) // 2)
        losses = []
        for change in (1e-6, -1e-6):
            array[place] += change
            losses.append(np.mean((fixed - _chosen(page, weights, rows)) ** 2))
            array[place] -= change
        assert slope[place] == pytest.approx((losses[0] - losses[1]) / 2e-6, abs=1e-6)


def _chosen(page, weights, rows):
    return page["q_values"](weights, rows["obs_tm1"])[np.arange(len(rows)), rows["a_tm1"]]


def test_equal_neighbours_are_worth_one_row_and_independent_ones_all(page):
    values = np.random.default_rng(0).normal(size=3_200)
    assert page["effective_sample_size"](np.repeat(values, 32)) == pytest.approx(1)
    assert page["effective_sample_size"](values) == pytest.approx(32, rel=0.4)


@pytest.mark.parametrize("kind", ["TFUniform", "PyUniform"])
def test_windows_of_a_ring_cross_episode_ends_but_not_the_write_position(kind):
    ring = buffers.filled(kind, buffers.numbered_steps(13))
    windows = buffers.drawn_windows(ring.as_dataset(sample_batch_size=50, num_steps=2))
    assert windows == [(k, k + 1) for k in range(5, 12)]  # 7→8 and 11→12 join two episodes


def test_reverb_holds_only_windows_within_an_episode():
    spec = buffers.NUMBERED_SPEC
    uniform, fifo = reverb.selectors.Uniform(), reverb.selectors.Fifo()
    signature, limiter = tensor_spec.add_outer_dim(spec), reverb.rate_limiters.MinSize(1)
    table = reverb.Table("numbered", uniform, fifo, 5, limiter, signature=signature)
    local = server.start_server([table])
    ring = reverb_replay_buffer.ReverbReplayBuffer(spec, "numbered", 2, local_server=local)
    observer = reverb_utils.ReverbAddTrajectoryObserver(ring.py_client, "numbered", 2)
    for step in buffers.numbered_steps(12):
        observer(step)
    observer.flush()
    windows = buffers.drawn_windows(ring.as_dataset(sample_batch_size=50, num_steps=2), 500)
    assert windows == [(5, 6), (6, 7), (8, 9), (9, 10), (10, 11)]  # no 7→8
    observer.close()
    local.stop()


def test_the_table_shows_results_and_errors():
    table = buffers.api_table({"a": [1, 2], "b": None}, ["len(b)", "b"], {})
    assert table.loc["len(b)"].to_dict() == {"a": "2", "b": "TypeError"}
    assert table.loc["b", "b"] == "done"


def test_sac_does_not_mask_a_window_that_joins_two_episodes():
    """So its buffer must not draw them. DQN masks them, as the notebook shows."""
    number = tf.TensorSpec([1], tf.float32)
    pushed = tensor_spec.BoundedTensorSpec([1], tf.float32, -1, 1)
    agent = sac_agent.SacAgent(
        time_step.time_step_spec(number),
        pushed,
        critic_network=critic_network.CriticNetwork((number, pushed)),
        actor_network=actor_distribution_network.ActorDistributionNetwork(number, pushed),
        actor_optimizer=tf.keras.optimizers.Adam(),
        critic_optimizer=tf.keras.optimizers.Adam(),
        alpha_optimizer=tf.keras.optimizers.Adam(),
    )
    agent.initialize()
    ones = tf.ones([1, 2])
    joined = trajectory.Trajectory(
        step_type=tf.constant([[2, 0]]),  # LAST, FIRST
        observation=ones[..., None],
        action=0.5 * ones[..., None],
        policy_info=(),
        next_step_type=tf.constant([[0, 1]]),
        reward=1_000.0 * ones,
        discount=ones,
    )
    assert float(agent.loss(joined).extra.critic_loss) > 900_000
