"""TF-Agents' three replay buffers side by side: data that shows, calls that answer, windows drawn.

Reverb is imported where it is used: on macOS and Windows it has no wheels, and the other two
buffers work all the same.
"""

import importlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import numpy as np
import pandas as pd
import tensorflow as tf
from tf_agents.replay_buffers import (
    py_uniform_replay_buffer,
    reverb_replay_buffer,
    reverb_utils,
    tf_uniform_replay_buffer,
)
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import trajectory
from tf_agents.trajectories.time_step import StepType

from labkit.runtime import quiet
from labkit.teaching.memory import resident_bytes

NO_REVERB = "Reverb cannot be imported here (it has wheels for Linux on x86-64 only): skipped"
TABLE, QUEUE = "uniform", "queue"


def reverb_here() -> bool:
    """Whether Reverb can be imported; where it cannot, one line says that a part is skipped."""
    try:
        with quiet():
            importlib.import_module("reverb")
    except Exception:  # a wheel for another system fails in more ways than ImportError
        print(NO_REVERB)
        return False
    return True


def counted_spec() -> trajectory.Trajectory:
    """The spec of `counted_steps`: an int64 counter as observation, and the step types."""
    step_type = tf.TensorSpec([], tf.int32, "step_type")
    counter = tf.TensorSpec([], tf.int64, "counter")
    next_step_type = tf.TensorSpec([], tf.int32, "next_step_type")
    return trajectory.Trajectory(step_type, counter, (), (), next_step_type, (), ())


def counted_steps(count: int, episode: int = 4, start: int = 0) -> list[trajectory.Trajectory]:
    """A driver's view of episodes of `episode` entries, counted from `start`; int64 [] each.

    The last entry of an episode is its boundary: step type LAST, next step type FIRST.
    """
    types = [StepType.FIRST] + [StepType.MID] * (episode - 2) + [StepType.LAST]
    return [
        trajectory.Trajectory(
            types[i % episode], np.int64(start + i), (), (), types[(i + 1) % episode], (), ()
        )
        for i in range(count)
    ]


def batched(*items: Any) -> Any:
    """Stacks items of one structure along a new first axis, as NumPy arrays [len(items), …]."""
    return tf.nest.map_structure(lambda *leaves: np.stack(leaves), *items)


def reverb_buffer(data_spec: Any, capacity: int, sequence_length: int = 2, sampler: Any = None):
    """A `ReverbReplayBuffer` with a server of its own, and the observer that writes to it.

    Args:
        data_spec: spec of one step.
        capacity: items; the oldest goes first.
        sequence_length: steps in an item.
        sampler: a `reverb.selectors` object; None draws uniformly.
    """
    reverb = importlib.import_module("reverb")
    with quiet():
        table = reverb.Table(
            TABLE,
            sampler=sampler or reverb.selectors.Uniform(),
            remover=reverb.selectors.Fifo(),
            max_size=capacity,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            signature=tensor_spec.add_outer_dim(data_spec),
        )
        server = reverb.Server([table])
        buffer = reverb_replay_buffer.ReverbReplayBuffer(
            data_spec, TABLE, sequence_length, local_server=server
        )
    return buffer, reverb_utils.ReverbAddTrajectoryObserver(
        buffer.py_client, TABLE, sequence_length
    )


def data_of(element: Any) -> Any:
    """The items of a dataset's element: Py buffers give them bare, the others with an info."""
    with_info = isinstance(element, tuple) and len(element) == 2 and hasattr(element[1], "_fields")
    return element[0] if with_info else element


def draw_windows(dataset: tf.data.Dataset, draws: int) -> Counter:
    """Counts the counters seen in `draws` windows: `{(3, 4): 120, …}`.

    Args:
        dataset: batches of counted windows, observation `[batch, time] int64`.
        draws: windows to count; the last batch is cut.
    """
    windows: list[tuple[int, ...]] = []
    with quiet():  # Reverb's sampler says hello
        for element in dataset:
            windows += map(tuple, data_of(element).observation.numpy().tolist())
            if len(windows) >= draws:
                break
    return Counter(windows[:draws])


def largest_deviation(counts: Iterable[int]) -> float:
    """How far the count furthest from its mean lies from it, in standard deviations.

    Of n draws among m windows each count is binomial, mean n/m, variance n/m · (1 − 1/m). With
    n/m ≥ 500 and m ≤ 20, uniform draws give 6 or more less than once in a million times.
    """
    observed = np.array(list(counts), float)
    mean = observed.mean()
    return float(np.abs(observed - mean).max() / np.sqrt(mean * (1 - 1 / len(observed))))


def describe(result: Any) -> str:
    """What a call gave, in a few words: shapes `[4, 2, 3]` of the first tensor, or the value."""
    if result is None:
        return "done"
    info = data_of(result) is not result
    leaves = tf.nest.flatten(data_of(result))
    first = leaves[0]
    if isinstance(first, tf.TypeSpec) or type(first).__name__.endswith("ArraySpec"):
        return f"{len(leaves)} × {type(first).__name__.removeprefix('Bounded')}"
    if np.ndim(first) == 0 and len(leaves) == 1:
        return f"{int(first)}, a {'tensor' if tf.is_tensor(first) else 'number'}"
    kind = "tensors" if tf.is_tensor(first) else "arrays"
    shape = list(np.shape(first))
    return f"{kind} {shape}{', info' if info else ''}"


def outcome(call: Callable[[], Any]) -> str:
    """Makes a call and says what came of it: `describe` of the result, or the error's name."""
    try:
        with quiet():
            return describe(call())
    except Exception as error:
        return type(error).__name__


def api_table(
    buffers: dict[str, tuple[Any, dict[str, Any]]], calls: dict[str, Callable[[Any, Any], Any]]
) -> pd.DataFrame:
    """Makes every call on every buffer and tabulates what each did.

    Args:
        buffers: name → (buffer, stand-ins); a stand-in, call → (text, function of no arguments),
            is what the buffer offers in place of a call that it refuses, and is called too.
        calls: text → function of the buffer.

    Returns:
        One row a call, one column a buffer; a refusal is the error's name, and `→` what to use.
    """
    rows: dict[str, dict[str, str]] = {}
    for call, function in calls.items():
        rows[call] = {}
        for name, (buffer, instead) in buffers.items():
            said = outcome(lambda f=function, b=buffer: f(b))  # type: ignore[misc]
            if call in instead:
                text, other = instead[call]
                said += f" → {text}: {outcome(other)}"
            rows[call][name] = said
    return pd.DataFrame.from_dict(rows, orient="index")


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
    batch = batched(step)
    if kind == "Reverb":
        buffer, observer = reverb_buffer(data_spec, capacity)
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
