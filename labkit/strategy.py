"""Strategies beyond one host's CPU and GPUs, and what share a replica has in a batch.

Nothing here imports TensorFlow before it is used.
"""

import contextlib
import json
import os

from labkit.errors import ParameterError
from labkit.parameters import invalid


def make_strategy(name: str, batch_size: int):
    """The `tf.distribute.Strategy` that trains, as `SACConfig.strategy` names it.

    Args:
        name: 'auto' (all GPUs when there are several, else one GPU, else the CPU), 'cpu',
            'gpu', 'mirrored' (all GPUs), 'mirrored:N' (N GPUs; on a host without a GPU, N
            logical CPU devices, so that the same code path runs anywhere), or 'tpu'. No name
            of a configuration, but for a loop of one's own around `learn.make_update`:
            'multi_worker', all GPUs of the hosts that TF_CONFIG names.
        batch_size: the global batch, which the replicas share.

    Raises:
        ParameterError: a device that is not there, a batch that does not divide, or
            devices asked for after TensorFlow has started.
    """
    import tensorflow as tf

    if name == "tpu":
        return _shared(tpu(), name, batch_size)
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        with contextlib.suppress(RuntimeError):  # already started: growth is as it is
            tf.config.experimental.set_memory_growth(gpu, True)
    if name == "multi_worker":
        return _shared(multi_worker(), name, batch_size)
    kind, _, count = name.partition(":")
    if kind in ("gpu", "mirrored") and not count and not gpus:
        allowed = "'auto', 'cpu' or 'mirrored:N' (N logical CPU devices) on a host without a GPU"
        raise invalid("strategy", name, allowed)
    if kind == "cpu" or (kind == "auto" and not gpus):
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    if kind == "gpu" or (kind == "auto" and len(gpus) == 1):
        return tf.distribute.OneDeviceStrategy("/gpu:0")
    replicas = int(count) if count else len(gpus)
    _check_share(name, batch_size, replicas)
    return tf.distribute.MirroredStrategy(_mirrored_devices(name, replicas, gpus))


def _check_share(name: str, batch_size: int, replicas: int) -> None:
    if batch_size % replicas:
        allowed = f"a multiple of {replicas}, the number of replicas of `strategy` = {name!r}"
        raise invalid("batch_size", batch_size, allowed)


def _shared(strategy, name: str, batch_size: int):
    _check_share(name, batch_size, strategy.num_replicas_in_sync)
    return strategy


def _mirrored_devices(name: str, replicas: int, gpus: list) -> list[str]:
    import tensorflow as tf

    if gpus:
        if replicas > len(gpus):
            allowed = f"at most 'mirrored:{len(gpus)}', one replica for each visible GPU"
            raise invalid("strategy", name, allowed)
        return [f"/gpu:{i}" for i in range(replicas)]
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        logical = [tf.config.LogicalDeviceConfiguration()] * replicas
        tf.config.set_logical_device_configuration(cpu, logical)
    except RuntimeError:
        # Not even fewer than there are: one process can exchange among one number of devices only.
        there = len(tf.config.list_logical_devices("CPU"))
        if there != replicas:
            allowed = (
                f"'mirrored:{there}' in this process, where TensorFlow has already started; for "
                "another number restart the kernel and make the strategy first"
            )
            raise invalid("strategy", name, allowed) from None
    return [f"/cpu:{i}" for i in range(replicas)]


def tpu():
    """All cores of the TPU of this machine, or of the one that TPU_NAME names.

    Raises:
        ParameterError: there is none, or it does not answer.
    """
    import tensorflow as tf

    local = bool(tf.config.list_physical_devices("TPU"))
    # Without either, the resolver would ask a cloud's metadata server, and wait for it.
    if not local and not os.environ.get("TPU_NAME"):
        allowed = (
            "'auto', 'cpu', 'gpu' or 'mirrored:N' on a host where TensorFlow sees no TPU and "
            "TPU_NAME is not set"
        )
        raise invalid("strategy", "tpu", allowed)
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local" if local else None)
        if not local:
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, OSError, tf.errors.OpError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        allowed = f"'auto', 'cpu', 'gpu' or 'mirrored:N': the TPU does not answer ({reason})"
        raise invalid("strategy", "tpu", allowed) from None
    return tf.distribute.TPUStrategy(resolver)


def multi_worker():
    """One process on each host, all of them running the same program; waits for the others.

    Raises:
        ParameterError: TF_CONFIG names no such hosts, or TensorFlow has already started.
    """
    import tensorflow as tf

    refused = "strategy = 'multi_worker' is refused: "
    try:
        told = json.loads(os.environ.get("TF_CONFIG", ""))
        workers, index = told["cluster"]["worker"], int(told["task"]["index"])
        sound = set(told["cluster"]) == {"worker"} and told["task"]["type"] == "worker"
    except (ValueError, KeyError, TypeError):
        workers, index, sound = [], 0, False
    if not sound or not 0 <= index < len(workers):
        raise ParameterError(
            refused + "allowed is an environment variable TF_CONFIG such as "
            '{"cluster": {"worker": ["host1:7000", "host2:7000"]}, '
            '"task": {"type": "worker", "index": 0}}'
        )
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        if "startup" not in str(error):
            raise
        raise ParameterError(
            refused + "TensorFlow has already started; restart the kernel and make the "
            "strategy first"
        ) from None


def hosts(strategy) -> tuple[int, int]:
    """Which of the strategy's hosts this process is, and how many there are: (0, 1) for one."""
    import tensorflow as tf

    # A TPU has several hosts too, but one process drives them all.
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 0, 1
    resolver = strategy.cluster_resolver
    return resolver.task_id, len(resolver.cluster_spec().as_dict()["worker"])


def replica_slice(values, parts: int):
    """This replica's rows `[batch / parts, …]` of `values [batch, …]`.

    Args:
        values: equal in every replica of a host.
        parts: among how many replicas the rows are shared; with several hosts each of which
            holds rows of its own, the replicas of one host.
    """
    import tensorflow as tf

    if parts == 1:
        return values
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    return tf.reshape(values, [parts, -1, *values.shape[1:]])[replica % parts]


def gpus(strategy: str) -> int:
    """How many GPUs Ray shall give the learner: all that its strategy would use."""
    import tensorflow as tf

    there = len(tf.config.list_physical_devices("GPU"))
    kind, _, count = strategy.partition(":")
    if kind == "gpu":
        return min(1, there)
    if kind == "mirrored" and count:
        return min(int(count), there)
    return there if kind in ("auto", "mirrored") else 0
