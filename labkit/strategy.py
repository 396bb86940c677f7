"""Devices: the `tf.distribute.Strategy` that trains, and a replica's share of a batch."""

import contextlib
import itertools

import tensorflow as tf

from labkit.parameters import invalid

_KEYS = itertools.count(step=1_000)  # for groups of devices that exchange values
LEAST_LOGICAL_DEVICES = 2  # of a CPU, so that notebook 03 can show a step on two replicas


def make_strategy(name: str, batch_size: int) -> tf.distribute.Strategy:
    """The strategy that `SACConfig.strategy` names.

    It is 'auto' (of several GPUs the largest number that divides the global batch, else one GPU,
    else the CPU), 'cpu', 'gpu', 'mirrored' (all GPUs), or 'mirrored:N' (N GPUs; on a host without a
    GPU, N logical CPU devices, so that the same code runs anywhere). The CPU becomes at least two
    logical devices (for a lesson), which is possible only before TensorFlow's first operation.

    Raises:
        ParameterError: the device does not exist, the batch cannot be divided, or TensorFlow has
            already started with other devices.
    """
    gpus = tf.config.list_physical_devices("GPU")
    kind, _, count = name.partition(":")
    if kind in ("gpu", "mirrored") and not count and not gpus:
        allowed = "'auto', 'cpu' or 'mirrored:N' (N logical CPU devices) on a host without a GPU"
        raise invalid("strategy", name, allowed)
    with contextlib.suppress(RuntimeError):  # TensorFlow has already started
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        cpu, cpus = tf.config.list_physical_devices("CPU")[0], 1 if gpus else int(count or 1)
        logical = [tf.config.LogicalDeviceConfiguration()] * max(LEAST_LOGICAL_DEVICES, cpus)
        tf.config.set_logical_device_configuration(cpu, logical)
    if gpus:
        # Actors and evaluations compute the policy on the CPU with NumPy. TensorFloat-32 has 10
        # bits of mantissa, so the learner's policy would differ from theirs by about 1e-3.
        tf.config.experimental.enable_tensor_float_32_execution(False)
    if kind == "cpu" or (kind == "auto" and not gpus):
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    if kind == "gpu" or (kind == "auto" and len(gpus) == 1):
        return tf.distribute.OneDeviceStrategy("/gpu:0")
    replicas = int(count or len(gpus))
    if kind == "auto":
        replicas = max(n for n in range(1, len(gpus) + 1) if batch_size % n == 0)
    if batch_size % replicas:
        allowed = f"a multiple of {replicas}, the number of replicas of `strategy` = {name!r}"
        raise invalid("batch_size", batch_size, allowed)
    device = "GPU" if gpus else "CPU"
    # A process cannot change the number of its logical devices after TensorFlow has started.
    existing = len(gpus) or len(tf.config.list_logical_devices("CPU"))
    if existing < replicas:
        hint = "" if gpus else " (for more, restart the kernel and make the strategy first)"
        allowed = f"at most 'mirrored:{existing}', one replica for each {device} of this process"
        raise invalid("strategy", name, allowed + hint)
    return mirrored([f"/{device.lower()}:{i}" for i in range(replicas)])


def mirrored(devices: list[str]) -> tf.distribute.MirroredStrategy:
    """A `MirroredStrategy` over these devices, also if the process has made another one before.

    Each strategy numbers its exchanges between devices from the same start, and TensorFlow ends
    with a "shape mismatch" where two of them exchange arrays of other shapes under one number.
    """
    tf.distribute.MirroredStrategy._collective_key_base = next(_KEYS)
    return tf.distribute.MirroredStrategy(devices)


def replica_slice(values: tf.Tensor, replicas: int) -> tf.Tensor:
    """This replica's rows `[batch / replicas, …]` of the global batch `values [batch, …]`."""
    if replicas == 1:
        return values
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    return tf.reshape(values, [replicas, -1, *values.shape[1:]])[replica]


def learner_gpus(strategy: str) -> int:
    """How many GPUs Ray reserves for the learner: those that its strategy may use."""
    available = len(tf.config.list_physical_devices("GPU"))
    kind, _, count = strategy.partition(":")
    return min(available, {"cpu": 0, "gpu": 1}.get(kind, int(count or available)))
