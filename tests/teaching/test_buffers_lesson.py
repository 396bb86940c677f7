"""Notebook 02: windows of TF-Agents' buffers, their speeds, and the DQN in NumPy."""

import math
import sys
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.replay_buffers import py_uniform_replay_buffer, tf_uniform_replay_buffer
from tf_agents.specs import tensor_spec

from labkit.errors import ParameterError
from labkit.teaching import (
    buffer_benchmark,
    buffer_comparison,
    buffer_plots,
    numpy_dqn,
)
from labkit.teaching.dqn_config import DQNConfig
from labkit.teaching.replay_memories import CARTPOLE_ROW, PrioritizedBuffer, RingBuffer


def uniform(kind):
    """A buffer of six steps that got nine, in episodes of four."""
    spec = buffer_comparison.counted_spec()
    if kind == "tf":
        buffer = tf_uniform_replay_buffer.TFUniformReplayBuffer(spec, batch_size=1, max_length=6)
    else:
        spec = tensor_spec.to_nest_array_spec(spec)
        buffer = py_uniform_replay_buffer.PyUniformReplayBuffer(spec, capacity=6)
    for step in buffer_comparison.counted_steps(9):
        buffer.add_batch(buffer_comparison.batched(step))
    return buffer


@pytest.mark.parametrize("kind", ["tf", "py"])
def test_windows_of_a_ring_cross_episode_ends_but_not_the_write_position(kind):
    counts = buffer_comparison.draw_windows(uniform(kind).as_dataset(50, num_steps=2), 1_234)
    assert counts.total() == 1_234
    assert set(counts) == {(k, k + 1) for k in range(3, 8)}  # 3→4 and 7→8 join two episodes


def test_reverb_draws_only_windows_within_an_episode():
    buffer, observer = buffer_comparison.reverb_buffer(buffer_comparison.counted_spec(), capacity=5)
    for step in buffer_comparison.counted_steps(12):
        observer(step)
    observer.flush()
    counts = buffer_comparison.draw_windows(buffer.as_dataset(50, num_steps=2), 1_000)
    assert set(counts) == {(5, 6), (6, 7), (8, 9), (9, 10), (10, 11)}  # no 7→8
    observer.close()
    buffer.local_server.stop()


def test_deviation_and_descriptions():
    assert buffer_comparison.largest_deviation([10, 10, 10]) == 0
    # mean 10, variance 10 · (1 − 1/2)
    assert buffer_comparison.largest_deviation([8, 12]) == pytest.approx(2 / math.sqrt(5))
    assert buffer_comparison.describe((np.zeros([2, 3]), np.zeros([2]))) == "arrays [2, 3]"
    calls = {"a": ([1, 2], {}), "b": (None, {"len": ("size", lambda: None)})}
    table = buffer_comparison.api_table(calls, {"len": len})
    assert table.loc["len"].to_dict() == {"a": "2, a number", "b": "TypeError → size: done"}


def test_missing_reverb_prints_one_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "reverb", None)
    assert not buffer_comparison.reverb_here()
    assert capsys.readouterr().out == buffer_comparison.NO_REVERB + "\n"


def test_a_buffer_is_measured():
    spec = buffer_comparison.counted_spec()._replace(observation=tf.TensorSpec([4], tf.float32))
    measured = buffer_benchmark.measure("PyUniform", spec, seconds=0.1, capacity=2_000)
    assert 0 < measured.inserts_per_second < math.inf
    assert 0 < measured.samples_per_second < math.inf
    sizes = [part.dtype.size * math.prod(part.shape) for part in tf.nest.flatten(spec)]
    assert measured.bytes_per_step == sum(sizes)


def test_figures_show_their_data():
    counts = Counter({(5, 6): 100, (6, 7): 90, (7, 8): 110})
    rows = np.array([[8, 5, 6, 7]])
    figure = buffer_plots.windows([buffer_plots.BufferWindows("ring", rows, 1, 4, counts)])
    assert [patch.get_height() for patch in figure.axes[1].patches[:3]] == [100, 90, 110]
    measured = {"one": buffer_benchmark.Measurement(17_000.0, 2.0e5, 48.0, 0.153)}
    texts = [[t.get_text() for t in axes.texts] for axes in buffer_plots.speeds(measured).axes]
    assert texts == [["17 000"], ["200 000"], ["48"], ["0.15"]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"num_iterations": 1.5},
            "`num_iterations` must be a whole number from 1 to 1 000 000 000",
        ),
        ({"td_loss": "mse"}, "`td_loss` must be 'squared' or 'huber', got 'mse'"),
        ({"gamma": 1.01}, "`gamma` must be a number from 0 to 1 (discount per env step), got 1.01"),
        ({"replay_buffer_capacity": 100}, "`replay_buffer_capacity` must be at least `batch_size`"),
    ],
)
def test_a_wrong_parameter_is_one_line(given, message):
    with pytest.raises(ParameterError) as caught:
        DQNConfig.from_notebook(given)
    assert str(caught.value).startswith(message)


def test_whole_floats_and_text_become_integers():
    found = DQNConfig.from_notebook({"num_iterations": "3e1", "seed": 4.0, "other": "ignored"})
    assert found == DQNConfig(num_iterations=30, seed=4)


# --- replay memories and a DQN in NumPy


def test_a_full_ring_overwrites_its_oldest_rows():
    ring = RingBuffer(8, np.int64)
    for row in range(13):
        ring.add(row)
    assert ring.rows.tolist() == [8, 9, 10, 11, 12, 5, 6, 7]
    assert set(ring.sample(1_000, np.random.default_rng(0))[1]) == set(range(5, 13))


def test_priorities_draws_and_weights_follow_the_paper():
    buffer = PrioritizedBuffer(6, np.int64, 0.6, epsilon=0.5)
    for row in range(3):
        buffer.add(row)
    buffer.update(np.arange(3), np.array([-7.5, 0.0, 3.5]))
    expected = np.array([8.0, 0.5, 4.0]) ** 0.6
    expected /= expected.sum()
    _, rows = buffer.sample(50_000, np.random.default_rng(1))
    np.testing.assert_allclose(np.bincount(rows) / 50_000, expected, atol=0.012)
    weights = buffer.weights(np.arange(3), beta=1.0)
    np.testing.assert_allclose(weights, expected.min() / expected)
    buffer.add(3)
    assert buffer.scaled[3] == pytest.approx(8**0.6), "a new row has the largest priority"


def test_one_seed_gives_one_curve():
    settings = numpy_dqn.Settings(
        seed=3, env_steps=400, warm_up=100, eval_interval=200, eval_episodes=2
    )
    curves = [numpy_dqn.train(RingBuffer(500, CARTPOLE_ROW), settings) for _ in range(2)]
    assert curves[0] == curves[1]
    assert [step for step, _ in curves[0]] == [200, 400]
