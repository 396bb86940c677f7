"""How fast and how large the three replay buffers are, measured where the notebook runs."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
import tensorflow as tf
from tf_agents.replay_buffers import py_uniform_replay_buffer, tf_uniform_replay_buffer
from tf_agents.specs import tensor_spec

from labkit import buffers
from labkit.memory import resident_bytes
from labkit.runtime import quiet

KINDS = ("TFUniform", "TFUniform in a graph", "PyUniform", "Reverb")
BATCH, CHUNK = 64, 100  # windows in a batch; steps written by one call of the compiled insert
FLUSH_EVERY = 200  # steps, for Reverb


@attrs.frozen
class Measurement:
    """One buffer's figures; a sample is one window of two steps.

    Attributes:
        inserts_per_second: steps written, one at a time.
        samples_per_second: windows read, in batches of 64.
        bytes_per_step: what the storage holds a step in; for Reverb the growth of this process.
        startup_seconds: making the buffer, and the first batch read.
    """

    inserts_per_second: float
    samples_per_second: float
    bytes_per_step: float
    startup_seconds: float


def measure(kind: str, data_spec: Any, seconds: float, capacity: int = 100_000) -> Measurement:
    """Writes for `seconds`, then reads for `seconds`.

    Args:
        kind: one of `KINDS`.
        data_spec: spec of one step, an agent's `collect_data_spec`.
        seconds: time of each of the two measurements.
        capacity: steps; what is written beyond it overwrites.
    """
    step = random_step(data_spec)
    began = time.perf_counter()
    buffer, write, per_call, close = _make(kind, data_spec, step, capacity)
    made = time.perf_counter() - began
    write()  # compiles; and a window needs two steps
    write()
    memory = resident_bytes()
    with quiet():
        calls, spent = _timed(write, seconds)
    if kind == "Reverb":
        close()
        bytes_per_step = max(resident_bytes() - memory, 0) / calls
    else:
        bytes_per_step = storage_bytes(buffer) / capacity
    began = time.perf_counter()
    with quiet():
        read = _reader(kind, buffer)
        windows = read()
    startup = made + time.perf_counter() - began
    batches, reading = _timed(read, seconds)
    if kind == "Reverb":
        with quiet():
            buffer.local_server.stop()
    return Measurement(
        calls * per_call / spent, batches * windows / reading, bytes_per_step, startup
    )


def random_step(data_spec: Any) -> Any:
    """One step of random content within the spec, NumPy arrays without a batch axis."""
    rng = np.random.default_rng(0)

    def draw(spec):
        if spec.dtype.is_floating:
            return rng.normal(size=spec.shape).astype(spec.dtype.as_numpy_dtype)
        # 1 is MID for the step types, an action that CartPole has, and a counter like any other.
        return np.ones(spec.shape, spec.dtype.as_numpy_dtype)

    return tf.nest.map_structure(draw, data_spec)


def storage_bytes(buffer: Any) -> int:
    """Bytes of the variables or arrays that hold a uniform buffer's steps."""
    if hasattr(buffer, "_data_table"):
        leaves = [*buffer._data_table.variables(), *buffer._id_table.variables()]
        return sum(int(np.prod(v.shape)) * v.dtype.size for v in leaves)
    return sum(array.nbytes for array in tf.nest.flatten(buffer._storage.get(slice(None))))


def _make(kind: str, data_spec: Any, step: Any, capacity: int):
    """The buffer, a function that writes, steps per call of it, and what ends the writing."""
    batch = buffers.batched(step)
    if kind == "Reverb":
        buffer, observer = buffers.reverb_buffer(data_spec, capacity)
        written = iter(range(2**62))

        def write():
            observer(step)
            if next(written) % FLUSH_EVERY == FLUSH_EVERY - 1:  # or the queue to the server grows
                observer.flush()

        return buffer, write, 1, observer.close
    if kind == "PyUniform":
        buffer = py_uniform_replay_buffer.PyUniformReplayBuffer(
            tensor_spec.to_nest_array_spec(data_spec), capacity
        )
        return buffer, lambda: buffer.add_batch(batch), 1, None
    buffer = tf_uniform_replay_buffer.TFUniformReplayBuffer(
        data_spec, batch_size=1, max_length=capacity
    )
    tensors = tf.nest.map_structure(tf.constant, batch)
    if kind == "TFUniform":
        return buffer, lambda: buffer.add_batch(tensors), 1, None

    @tf.function(autograph=False)
    def add_many():
        def body(i):
            with tf.control_dependencies([buffer.add_batch(tensors)]):
                return i + 1

        return tf.while_loop(lambda i: i < CHUNK, body, [tf.constant(0)], parallel_iterations=1)

    return buffer, add_many, CHUNK, None


def _reader(kind: str, buffer: Any) -> Callable[[], int]:
    """A function that reads once, and says how many windows that were."""
    batches: Iterator = iter(buffer.as_dataset(sample_batch_size=BATCH, num_steps=2))
    if kind != "TFUniform in a graph":

        def read() -> int:
            next(batches)
            return BATCH

        return read

    @tf.function
    def read_many():
        total = 0
        for _ in tf.range(10):
            steps, _ = next(batches)
            total += tf.shape(steps.reward)[0]
        return total

    return lambda: int(read_many())


def _timed(call: Callable[[], Any], seconds: float) -> tuple[int, float]:
    """Calls for `seconds`: how often, and the time it really took."""
    began, calls = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds or not calls:
        call()
        calls += 1
    return calls, spent
