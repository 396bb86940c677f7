"""TF-Agents' three replay buffers side by side: data that shows, calls that answer, windows drawn.

Reverb is imported where it is used: on macOS and Windows it has no wheels, and the other two
buffers work all the same.
"""

import importlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
from tf_agents.replay_buffers import reverb_replay_buffer, reverb_utils
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import trajectory
from tf_agents.trajectories.time_step import StepType

from labkit.runtime import quiet

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
