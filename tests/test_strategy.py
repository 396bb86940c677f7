"""Strategies by name: an unavailable device is rejected in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from labkit.config import SACConfig
from labkit.errors import ParameterError
from labkit.strategy import learner_gpus, make_strategy

HERE = Path(__file__).parent


def start(what, out, **environ):
    """Starts `replicas.py` in a fresh process."""
    # What this process was told about devices is no business of the other.
    clean = {k: v for k, v in os.environ.items() if k not in ("TF_CONFIG", "TPU_NAME")}
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [sys.executable, str(HERE / "replicas.py"), what, str(out)],
        env={**clean, **paths, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*processes):
    """Waits for their ends and returns what the first printed; none is left behind."""
    try:
        texts = [process.communicate(timeout=900) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, texts, strict=True):
        assert process.returncode == 0, errors[-3000:]
    return texts[0][0]


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
        devices = {"GPU": fakes, "TPU": [], "CPU": real("CPU")}
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
        *(("auto", 0, 2), ("cpu", 0, 0), ("gpu", 0, 1), ("tpu", 0, 0)),
        *(("mirrored", 0, 2), ("mirrored:1", 0, 1), ("mirrored:4", 0, 2)),
    ],
)
def test_ray_reserves_the_gpus_that_the_learner_uses(gpus, name, without, with_two):
    gpus(0)
    assert learner_gpus(name) == without
    gpus(2)
    assert learner_gpus(name) == with_two


def test_without_a_tpu(gpus, monkeypatch):
    gpus(0)
    monkeypatch.delenv("TPU_NAME", raising=False)
    assert "TensorFlow sees no TPU" in refusal("tpu")


def test_a_tpu_that_does_not_answer(gpus, monkeypatch):
    gpus(0)

    def resolver(name):
        raise ValueError("no such TPU\nand more")

    monkeypatch.setenv("TPU_NAME", "far-away")
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", resolver)
    assert refusal("tpu").endswith("the TPU does not answer (no such TPU), got 'tpu'")


def test_after_tensorflow_has_started(tmp_path):
    """With the two devices that every CPU has; a strategy of fewer works, one of more cannot."""
    (line,) = finish(start("too_late", tmp_path)).splitlines()
    assert line.endswith(", got 'mirrored:4'")
    assert "restart the kernel and make the strategy first" in line


def test_with_one_device_nothing_waits_for_a_second_one(tmp_path):
    lines = finish(start("one_device", tmp_path)).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("`logical CPU devices` must be at least 2 here: restart the kernel")
    assert lines[1].startswith("`strategy` must be at most 'mirrored:1'")


@pytest.mark.parametrize("name", ["tpu", "mirrored", "mirrored:64"])
def test_names_that_are_taken(name):
    assert SACConfig(strategy=name).strategy == name


@pytest.mark.parametrize("name", ["mirrored:65", "mirrored:", "tpu:2", "multi_worker", "TPU"])
def test_names_that_are_not(name):
    with pytest.raises(ParameterError, match=r"must be 'auto', 'cpu', 'gpu', 'tpu'.*, got"):
        SACConfig(strategy=name)
