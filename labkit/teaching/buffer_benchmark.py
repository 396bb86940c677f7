"""Speed and memory of TF-Agents' replay buffers: steps written and windows read per second."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import tensorflow as tf
from tf_agents.replay_buffers import replay_buffer
from tf_agents.replay_buffers.py_uniform_replay_buffer import PyUniformReplayBuffer
from tf_agents.replay_buffers.tf_uniform_replay_buffer import TFUniformReplayBuffer
from tf_agents.specs import tensor_spec
from tf_agents.typing import types

from labkit.runtime import quiet
from labkit.teaching.buffer_comparison import batched, reverb_buffer
from labkit.teaching.memory import resident_bytes

KINDS = ("TFUniform", "TFUniform in a graph", "PyUniform", "Reverb")
BATCH = 64  # windows
GRAPH_STEPS, GRAPH_BATCHES = 100, 10  # written and read by one call of a compiled function
FLUSH_EVERY = 200  # steps; without it the queue to Reverb's server grows


@attrs.frozen
class Measurement:
    """The figures of one buffer; a sample is one window of two steps."""

    inserts_per_second: float  # steps written, one at a time
    samples_per_second: float  # windows read, in batches of 64
    bytes_per_step: float  # storage of one step; for Reverb the growth of this process
    startup_seconds: float  # time to make the buffer and to read the first batch


@attrs.frozen
class _Subject:
    """A buffer under measurement, and functions that write to it and end the writing."""

    buffer: replay_buffer.ReplayBuffer
    write: Callable[[], Any]
    steps_per_write: int = 1
    close: Callable[[], None] = lambda: None


def measure(
    kind: str, data_spec: types.NestedTensorSpec, seconds: float, capacity: int = 100_000
) -> Measurement:
    """Writes to a buffer, one of `KINDS`, for `seconds`, then reads from it for `seconds`.

    The `data_spec` is that of one step, for example an agent's `collect_data_spec`. The capacity is
    in steps; further steps overwrite the oldest.
    """
    step = random_step(data_spec)
    start = time.perf_counter()
    subject = _make(kind, data_spec, step, capacity)
    startup = time.perf_counter() - start
    for _ in range(2):  # the first call compiles, and a window needs two steps
        subject.write()
    memory = resident_bytes()
    with quiet():
        writes, write_seconds = _repeat(subject.write, seconds)
    subject.close()
    if kind == "Reverb":
        bytes_per_step = max(resident_bytes() - memory, 0) / min(writes, capacity)
    else:
        bytes_per_step = storage_bytes(subject.buffer) / capacity
    start = time.perf_counter()
    with quiet():
        read = _reader(kind, subject.buffer)
        windows = read()
    startup += time.perf_counter() - start
    reads, read_seconds = _repeat(read, seconds)
    if kind == "Reverb":
        with quiet():
            subject.buffer.local_server.stop()
    inserts_per_second = writes * subject.steps_per_write / write_seconds
    return Measurement(inserts_per_second, reads * windows / read_seconds, bytes_per_step, startup)


def random_step(data_spec: types.NestedTensorSpec) -> types.NestedArray:
    """One step within the spec, arrays without a batch axis: floats are random, integers are 1."""
    rng = np.random.default_rng(0)

    def draw(spec: tf.TensorSpec) -> np.ndarray:
        if spec.dtype.is_floating:
            return rng.normal(size=spec.shape).astype(spec.dtype.as_numpy_dtype)
        # 1 is the step type MID, and a valid action of CartPole.
        return np.ones(spec.shape, spec.dtype.as_numpy_dtype)

    return tf.nest.map_structure(draw, data_spec)


def storage_bytes(buffer: replay_buffer.ReplayBuffer) -> int:
    """Bytes of the variables or arrays in which a TFUniform or PyUniform buffer keeps its steps."""
    if hasattr(buffer, "_data_table"):
        variables = [*buffer._data_table.variables(), *buffer._id_table.variables()]
        return sum(int(np.prod(v.shape)) * v.dtype.size for v in variables)
    return sum(array.nbytes for array in tf.nest.flatten(buffer._storage.get(slice(None))))


def _make(
    kind: str, data_spec: types.NestedTensorSpec, step: types.NestedArray, capacity: int
) -> _Subject:
    if kind == "Reverb":
        return _make_reverb(data_spec, step, capacity)
    batch = batched(step)
    if kind == "PyUniform":
        py_buffer = PyUniformReplayBuffer(tensor_spec.to_nest_array_spec(data_spec), capacity)
        return _Subject(py_buffer, lambda: py_buffer.add_batch(batch))
    buffer = TFUniformReplayBuffer(data_spec, batch_size=1, max_length=capacity)
    tensors = tf.nest.map_structure(tf.constant, batch)
    if kind == "TFUniform":
        return _Subject(buffer, lambda: buffer.add_batch(tensors))

    @tf.function(autograph=False)
    def add_many() -> tf.Tensor:
        def body(i: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([buffer.add_batch(tensors)]):
                return i + 1

        zero = [tf.constant(0)]
        return tf.while_loop(lambda i: i < GRAPH_STEPS, body, zero, parallel_iterations=1)

    return _Subject(buffer, add_many, GRAPH_STEPS)


def _make_reverb(
    data_spec: types.NestedTensorSpec, step: types.NestedArray, capacity: int
) -> _Subject:
    buffer, observer = reverb_buffer(data_spec, capacity)
    counter = itertools.count(1)

    def write() -> None:
        observer(step)
        if next(counter) % FLUSH_EVERY == 0:
            observer.flush()

    return _Subject(buffer, write, close=observer.close)


def _reader(kind: str, buffer: replay_buffer.ReplayBuffer) -> Callable[[], int]:
    """A function that reads and returns the number of windows it read."""
    batches = iter(buffer.as_dataset(sample_batch_size=BATCH, num_steps=2))

    def read() -> int:
        next(batches)
        return BATCH

    @tf.function
    def read_many() -> tf.Tensor:
        total = 0
        for _ in tf.range(GRAPH_BATCHES):
            steps, _ = next(batches)
            total += tf.shape(steps.reward)[0]
        return total

    return (lambda: int(read_many())) if kind == "TFUniform in a graph" else read


def _repeat(call: Callable[[], Any], seconds: float) -> tuple[int, float]:
    """Repeats a call for `seconds`, at least once; returns the calls and the seconds they took."""
    start, calls = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < seconds or not calls:
        call()
        calls += 1
    return calls, spent
