"""What must happen before TensorFlow loads, and where computation runs.

`prepare` is called when labkit is imported; nothing here imports TensorFlow before it is used.
"""

import contextlib
import io
import logging
import os
import sys
import tempfile
import warnings

from labkit import devices
from labkit.config import ParameterError


def prepare() -> None:
    """Sets what TensorFlow, gym and pygame read when they are imported; safe to repeat."""
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # TF-Agents 0.19 is written for Keras 2
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # NumPy evaluates one observation at a time: a second thread would only get in the way.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A product of 256 × 256 weights is too small to be shared out: on two cores, two threads
    # took about a tenth more CPU for the same iteration, and time from the physics beside it.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # CartPole draws without a display
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    with contextlib.suppress(ImportError):  # gym prints these when it is imported
        import gym_notices.notices

        gym_notices.notices.notices.clear()
    for name in ("absl", "tensorflow"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for module in ("gym", "pygame", "pkg_resources", "tensorflow_probability", "tf_agents"):
        warnings.filterwarnings("ignore", module=rf"{module}(\.|$)")
    warnings.filterwarnings("ignore", message=r".*(Box bound precision|pkg_resources).*")
    warnings.filterwarnings("ignore", message="Encoding a StructuredValue")


@contextlib.contextmanager
def quiet():
    """Hides what Python and native code print meanwhile, unless an exception leaves the block.

    Reverb, PyBullet and CUDA write to file descriptors 1 and 2, past Python's redirection.
    """
    with tempfile.TemporaryFile() as hidden, contextlib.ExitStack() as restore:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, ValueError):
                stream.flush()
        for descriptor in (1, 2):
            kept = os.dup(descriptor)
            restore.callback(os.close, kept)
            restore.callback(os.dup2, kept, descriptor)
            os.dup2(hidden.fileno(), descriptor)
        text = io.StringIO()
        try:
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
                yield
        except ParameterError:
            raise
        except BaseException:
            restore.close()
            hidden.seek(0)
            sys.stderr.write(text.getvalue() + hidden.read().decode(errors="replace"))
            raise


def seed_everything(seed: int) -> None:
    """Seeds Python, NumPy, TensorFlow and Keras initialisers; Reverb's selectors cannot be."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(seed)


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
        return _shared(devices.tpu(), name, batch_size)
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        with contextlib.suppress(RuntimeError):  # already started: growth is as it is
            tf.config.experimental.set_memory_growth(gpu, True)
    if name == "multi_worker":
        return _shared(devices.multi_worker(), name, batch_size)
    kind, _, count = name.partition(":")
    if kind in ("gpu", "mirrored") and not count and not gpus:
        raise ParameterError(
            f"strategy = {name!r} is refused: no GPU is visible to TensorFlow; "
            "allowed here is 'auto', 'cpu' or 'mirrored:N' (N logical CPU devices)"
        )
    if kind == "cpu" or (kind == "auto" and not gpus):
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    if kind == "gpu" or (kind == "auto" and len(gpus) == 1):
        return tf.distribute.OneDeviceStrategy("/gpu:0")
    replicas = int(count) if count else len(gpus)
    _check_share(name, batch_size, replicas)
    return tf.distribute.MirroredStrategy(_mirrored_devices(name, replicas, gpus))


def _check_share(name: str, batch_size: int, replicas: int) -> None:
    if batch_size % replicas:
        raise ParameterError(
            f"batch_size = {batch_size} is refused: strategy = {name!r} shares the batch among "
            f"{replicas} replicas; allowed is a multiple of {replicas}"
        )


def _shared(strategy, name: str, batch_size: int):
    _check_share(name, batch_size, strategy.num_replicas_in_sync)
    return strategy


def _mirrored_devices(name: str, replicas: int, gpus: list) -> list[str]:
    import tensorflow as tf

    if gpus:
        if replicas > len(gpus):
            raise ParameterError(
                f"strategy = {name!r} is refused: {len(gpus)} GPUs are visible to TensorFlow"
            )
        return [f"/gpu:{i}" for i in range(replicas)]
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        logical = [tf.config.LogicalDeviceConfiguration()] * replicas
        tf.config.set_logical_device_configuration(cpu, logical)
    except RuntimeError:
        # Not even fewer than there are: one process can exchange among one number of devices only.
        there = len(tf.config.list_logical_devices("CPU"))
        if there != replicas:
            raise ParameterError(
                f"strategy = {name!r} is refused: TensorFlow has already started with logical CPU "
                f"devices: {there}; restart the kernel and make the strategy first"
            ) from None
    return [f"/cpu:{i}" for i in range(replicas)]
