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
def test_every_buffer_is_measured(kind, capfd):
    measured = buffer_benchmark.measure(kind, cartpole_spec(), seconds=0.1, capacity=2_000)
    speeds = (measured.inserts_per_second, measured.samples_per_second, measured.startup_seconds)
    assert min(speeds) > 0
    assert max(speeds) < float("inf")
    if kind.startswith("TF"):
        assert measured.bytes_per_step == 4 + 16 + 8 + 4 + 4 + 4 + 8  # the last 8 are the step's id
    if kind == "PyUniform":
        assert measured.bytes_per_step == 40
    assert capfd.readouterr().err == ""
