"""What is written is what is sampled, and no transition is made up between two episodes."""

import numpy as np
import pytest
import reverb
import tensorflow as tf
from tf_agents.trajectories import time_step, trajectory

from labkit import replay

LAYOUT = replay.Layout(observation=2, action=1)
FIRST, MID, LAST = (int(x) for x in (0, 1, 2))


@pytest.fixture
def server():
    server = replay.start_server([replay.packed_table(LAYOUT, 100)])
    yield server
    server.stop()


def stored(server, count):
    """Every row in the table: drawn until all `count` were seen."""
    seen = set()
    for _ in range(20):
        seen |= {tuple(row) for row in replay.sample_rows(server, 64).tolist()}
        if len(seen) == count:
            break
    return sorted(seen)


def test_what_is_written_is_sampled(server):
    writer = replay.TransitionWriter(server)
    expected = [[t, t, 10 + t, 0.5 * t, t % 2, t + 1, t + 1] for t in range(7)]
    for t in range(7):
        writer.write([t, t], [10 + t], 0.5 * t, t % 2, [t + 1, t + 1])
    writer.flush()
    assert stored(server, 7) == sorted(tuple(map(float, row)) for row in expected)
    writer.close()


def test_oldest_goes_first(server):
    writer = replay.TransitionWriter(server)
    for t in range(130):
        writer.write([t, 0], [0], 0, 1, [t, 1])
    writer.flush()
    assert {row[0] for row in stored(server, 100)} == set(map(float, range(30, 130)))
    writer.close()


def step(t, kind, following, discount=1.0):
    return trajectory.Trajectory(
        step_type=np.array(kind),
        observation=np.array([t, t], np.float32),
        action=np.array([10 + t], np.float32),
        policy_info=(),
        next_step_type=np.array(following),
        reward=np.float32(t / 2),
        discount=np.float32(discount),
    )


def test_observer_pairs_neighbours_and_skips_what_never_happened(server):
    writer = replay.TransitionWriter(server)
    for told in [
        step(0, FIRST, MID),
        step(1, MID, LAST, discount=0.0),
        step(2, LAST, FIRST),  # the boundary: its observation ends the episode
        step(3, FIRST, MID),
        step(4, MID, MID),  # this driver stops here …
        step(20, FIRST, MID),  # … and another one begins anew: 4 → 20 never happened
        step(21, MID, MID),
    ]:
        writer(told)
    writer.flush()
    pairs = [(row[0], row[-1], row[4]) for row in stored(server, 4)]  # from, to, discount
    assert pairs == [(0, 1, 1), (1, 2, 0), (3, 4, 1), (20, 21, 1)]
    writer.close()


def test_unpack_shapes_and_values():
    rows = np.arange(21, dtype=np.float32).reshape(3, 7)
    transition = replay.unpack(tf.constant(rows), LAYOUT)
    np.testing.assert_array_equal(transition.time_step.observation, rows[:, :2])
    np.testing.assert_array_equal(transition.action_step.action, rows[:, 2:3])
    np.testing.assert_array_equal(transition.next_time_step.reward, rows[:, 3])
    np.testing.assert_array_equal(transition.next_time_step.discount, rows[:, 4])
    np.testing.assert_array_equal(transition.next_time_step.observation, rows[:, 5:])
    assert np.all(transition.next_time_step.step_type == time_step.StepType.MID)


def test_closing_loses_nothing(server):
    for _ in range(5):
        writer = replay.TransitionWriter(server)
        for t in range(10):
            writer.write([t, 0], [0], 0, 1, [t, 1])
        writer.close()
    assert server_size(server) == 50


def server_size(server):
    client = reverb.Client(f"localhost:{server.port}")
    return client.server_info()[replay.TABLE].current_size


def test_an_empty_table_does_not_hang(server, monkeypatch):
    monkeypatch.setattr(replay, "SAMPLE_TIMEOUT_SECONDS", 1)
    with pytest.raises((tf.errors.DeadlineExceededError, ValueError)):
        replay.sample_rows(server, 4)
