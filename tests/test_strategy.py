"""Strategies by name: an unavailable device is rejected in one line. GPUs are mocked."""

import subprocess
import sys

import pytest
import tensorflow as tf

from labkit.config import SACConfig
from labkit.errors import ParameterError
from labkit.strategy import learner_gpus, make_strategy


def refusal(name, batch_size=256):
    with pytest.raises(ParameterError) as caught:
        make_strategy(name, batch_size)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def gpus(monkeypatch):
    """`gpus(n)`: as if this host had n GPUs; returns those whose memory may grow."""
    growing = []

    def pretend(count):
        fakes = [f"gpu {i}" for i in range(count)]
        real = tf.config.list_physical_devices
        devices = {"GPU": fakes, "CPU": real("CPU")}
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: devices[kind])
        monkeypatch.setattr(
            tf.config.experimental, "set_memory_growth", lambda gpu, on: growing.append((gpu, on))
        )
        for name in ("MirroredStrategy", "OneDeviceStrategy"):
            monkeypatch.setattr(tf.distribute, name, lambda devices: devices)
        return growing

    return pretend


def test_a_batch_that_does_not_divide_names_both(gpus):
    gpus(0)
    message = refusal("mirrored:3")
    assert message.startswith("`batch_size` must be a multiple of 3")
    assert message.endswith("`strategy` = 'mirrored:3', got 256")
    gpus(3)
    assert "multiple of 3" in refusal("mirrored")


@pytest.mark.parametrize("name", ["gpu", "mirrored"])
def test_without_a_gpu(gpus, name):
    gpus(0)
    message = refusal(name)
    assert message.startswith("`strategy` must be 'auto', 'cpu' or 'mirrored:N'")
    assert message.endswith(f"on a host without a GPU, got {name!r}")
    assert make_strategy("auto", 256) == "/cpu:0"


def test_with_gpus(gpus):
    growing = gpus(2)
    assert make_strategy("auto", 256) == ["/gpu:0", "/gpu:1"]
    assert growing == [("gpu 0", True), ("gpu 1", True)]
    assert make_strategy("mirrored", 256) == ["/gpu:0", "/gpu:1"]
    assert make_strategy("mirrored:1", 255) == ["/gpu:0"]
    assert make_strategy("gpu", 255) == "/gpu:0"
    assert make_strategy("cpu", 255) == "/cpu:0"
    assert "at most 'mirrored:2'" in refusal("mirrored:4")
    gpus(1)
    assert make_strategy("auto", 255) == "/gpu:0"


@pytest.mark.parametrize(("count", "batch", "used"), [(3, 256, 2), (3, 255, 3), (7, 256, 4)])
def test_all_gpus_that_divide_the_batch_are_used(gpus, count, batch, used):
    gpus(count)
    assert make_strategy("auto", batch) == [f"/gpu:{i}" for i in range(used)]
    if batch % count:
        assert f"multiple of {count}" in refusal("mirrored", batch)


@pytest.mark.parametrize(("count", "logical"), [(0, 2), (1, 2), (2, 2)])
def test_two_logical_cpu_devices_are_there_with_any_number_of_gpus(
    gpus, monkeypatch, count, logical
):
    """Notebook 03 shows a step on two replicas, on a host with one GPU, too."""
    gpus(count)
    asked = []
    monkeypatch.setattr(
        tf.config, "set_logical_device_configuration", lambda cpu, devices: asked.extend(devices)
    )
    make_strategy("auto", 256)
    assert len(asked) == logical


def test_with_a_gpu_products_have_the_precision_of_the_actors(gpus):
    tf.config.experimental.enable_tensor_float_32_execution(True)
    gpus(0)
    make_strategy("auto", 256)
    assert tf.config.experimental.tensor_float_32_execution_enabled()
    gpus(1)
    make_strategy("auto", 256)
    assert not tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(True)


@pytest.mark.parametrize(
    ("name", "without", "with_two"),
    [
        *(("auto", 0, 2), ("cpu", 0, 0), ("gpu", 0, 1)),
        *(("mirrored", 0, 2), ("mirrored:1", 0, 1), ("mirrored:4", 0, 2)),
    ],
)
def test_ray_reserves_the_gpus_that_the_learner_uses(gpus, name, without, with_two):
    gpus(0)
    assert learner_gpus(name) == without
    gpus(2)
    assert learner_gpus(name) == with_two


def test_after_tensorflow_has_started():
    """With the two devices that every CPU has; a strategy of fewer works, one of more cannot."""
    script = """
import labkit, tensorflow as tf
from labkit.strategy import make_strategy, mirrored
make_strategy("cpu", 256)
tf.zeros(1)
make_strategy("mirrored:1", 256)
print(mirrored(["/cpu:0", "/cpu:1"]).num_replicas_in_sync)
make_strategy("mirrored:4", 256)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.stdout.split() == ["2"]
    last = done.stderr.strip().splitlines()[-1]
    assert "restart the kernel and make the strategy first" in last
    assert last.endswith("got 'mirrored:4'")


@pytest.mark.parametrize("name", ["mirrored", "mirrored:64"])
def test_names_that_are_taken(name):
    assert SACConfig(strategy=name).strategy == name


@pytest.mark.parametrize("name", ["mirrored:65", "mirrored:", "multi_worker", "GPU"])
def test_names_that_are_not(name):
    with pytest.raises(ParameterError, match=r"must be 'auto', 'cpu', 'gpu', 'mirrored'.*, got"):
        SACConfig(strategy=name)
