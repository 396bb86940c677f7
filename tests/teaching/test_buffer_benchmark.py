"""Speed and memory of the replay buffers that notebook 02 compares."""

import pytest
import tensorflow as tf
from tf_agents.trajectories import trajectory

from labkit.teaching import buffer_benchmark


def cartpole_spec():
    step_type = tf.TensorSpec([], tf.int32, "step_type")
    number = tf.TensorSpec([], tf.float32)
    observation, action = tf.TensorSpec([4], tf.float32), tf.TensorSpec([], tf.int64)
    return trajectory.Trajectory(step_type, observation, action, (), step_type, number, number)


@pytest.mark.parametrize("kind", buffer_benchmark.KINDS)
def test_measurements_are_plausible(kind, capfd):
    measured = buffer_benchmark.measure(kind, cartpole_spec(), seconds=0.1, capacity=2_000)
    assert 10 < measured.inserts_per_second < 1e7
    assert 10 < measured.samples_per_second < 1e8
    assert 0 < measured.startup_seconds < 60
    if kind.startswith("TF"):
        assert measured.bytes_per_step == 4 + 16 + 8 + 4 + 4 + 4 + 8  # the last 8 are the step's id
    if kind == "PyUniform":
        assert measured.bytes_per_step == 40
    assert capfd.readouterr().err == ""
