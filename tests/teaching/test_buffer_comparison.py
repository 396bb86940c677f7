"""What notebook 02 shows about replay buffers: their windows, and the calls that they accept."""

import math
import sys
from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.replay_buffers import py_uniform_replay_buffer, tf_uniform_replay_buffer
from tf_agents.specs import tensor_spec

from labkit import runtime
from labkit.teaching import buffer_comparison


def test_counted_steps_have_boundaries_where_episodes_end():
    steps = buffer_comparison.counted_steps(9, episode=4, start=100)
    assert [int(step.observation) for step in steps] == list(range(100, 109))
    assert [int(step.step_type) for step in steps] == [0, 1, 1, 2, 0, 1, 1, 2, 0]
    for step, following in pairwise(steps):
        assert step.next_step_type == following.step_type
    assert [bool(step.is_boundary()) for step in steps] == [False, False, False, True] * 2 + [False]


def ring(kind):
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
    counts = buffer_comparison.draw_windows(ring(kind).as_dataset(50, num_steps=2), 1_234)
    assert counts.total() == 1_234
    assert set(counts) == {(k, k + 1) for k in range(3, 8)}  # 3→4 and 7→8 join two episodes


@pytest.mark.parametrize("kind", ["tf", "py"])
def test_the_same_seed_gives_the_same_draws(kind):
    def draws():
        runtime.seed_everything(5)
        batches = ring(kind).as_dataset(16, num_steps=2).take(3)
        return [buffer_comparison.data_of(batch).observation.numpy().tolist() for batch in batches]

    first = draws()
    assert draws() == first
    assert first[0] != first[1]


def test_reverb_draws_only_windows_within_an_episode():
    buffer, observer = buffer_comparison.reverb_buffer(buffer_comparison.counted_spec(), capacity=5)
    for step in buffer_comparison.counted_steps(12):
        observer(step)
    observer.flush()
    counts = buffer_comparison.draw_windows(buffer.as_dataset(50, num_steps=2), 1_000)
    assert buffer.num_frames() == 5
    assert set(counts) == {(5, 6), (6, 7), (8, 9), (9, 10), (10, 11)}  # no 7→8
    observer.close()
    buffer.local_server.stop()


def test_largest_deviation_computed_by_hand():
    assert buffer_comparison.largest_deviation([10, 10, 10]) == 0
    # mean 10, variance 10 · (1 − 1/2)
    assert buffer_comparison.largest_deviation([8, 12]) == pytest.approx(2 / math.sqrt(5))


@pytest.mark.parametrize("windows", [7, 8, 14])
def test_uniform_draws_exceed_six_deviations_less_than_once_in_a_million(windows):
    draws, chance = 1_000 * windows, 1 / windows
    sigma = math.sqrt(draws * chance * (1 - chance))

    def probability(k):
        return math.exp(
            math.lgamma(draws + 1)
            - math.lgamma(k + 1)
            - math.lgamma(draws - k + 1)
            + k * math.log(chance)
            + (draws - k) * math.log(1 - chance)
        )

    beyond = [k for k in range(500, 2_000) if abs(k - 1_000) >= 6 * sigma]
    assert windows * sum(map(probability, beyond)) * 3 < 1e-6  # notebook 02 checks three buffers


def test_largest_deviation_detects_a_small_bias():
    weights = np.array([1, 1, 1, 1, 1, 1, 1.4])
    biased = np.random.default_rng(0).multinomial(7_000, weights / weights.sum())
    assert buffer_comparison.largest_deviation(biased) > 6


def test_results_are_described_by_kind_and_shape():
    assert buffer_comparison.describe(None) == "done"
    assert buffer_comparison.describe(5) == "5, a number"
    assert buffer_comparison.describe(tf.constant(5)) == "5, a tensor"
    assert buffer_comparison.describe((np.zeros([2, 3]), np.zeros([2]))) == "arrays [2, 3]"
    assert buffer_comparison.describe((tf.TensorSpec([3]), tf.TensorSpec([5]))) == "2 × TensorSpec"


def test_outcome_names_the_error():
    assert buffer_comparison.outcome(lambda: 1 / 0) == "ZeroDivisionError"
    assert buffer_comparison.outcome(lambda: np.ones([4])) == "arrays [4]"


def test_api_table_also_calls_the_alternative():
    called = []
    table = buffer_comparison.api_table(
        {"a": ([1, 2], {}), "b": (None, {"len": ("size", lambda: called.append(1))})},
        {"len": len},
    )
    assert table.loc["len"].to_dict() == {"a": "2, a number", "b": "TypeError → size: done"}
    assert called == [1]


def test_missing_reverb_prints_one_line(monkeypatch, capsys):
    assert buffer_comparison.reverb_here()
    assert capsys.readouterr().out == ""
    monkeypatch.setitem(sys.modules, "reverb", None)
    assert not buffer_comparison.reverb_here()
    assert capsys.readouterr().out == buffer_comparison.NO_REVERB + "\n"
