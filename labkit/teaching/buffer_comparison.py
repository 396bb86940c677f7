"""TF-Agents' three replay buffers compared: the calls they accept and the windows they draw.

Reverb is imported where it is used, because macOS and Windows have no wheels of it; the other two
buffers work there.
"""

import functools
import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
from tf_agents.replay_buffers.replay_buffer import ReplayBuffer
from tf_agents.replay_buffers.reverb_replay_buffer import ReverbReplayBuffer
from tf_agents.replay_buffers.reverb_utils import ReverbAddTrajectoryObserver
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import trajectory
from tf_agents.trajectories.time_step import StepType
from tf_agents.typing import types

from labkit.runtime import quiet

NO_REVERB = "Reverb cannot be imported here (it has wheels for Linux on x86-64 only): skipped"
Call = Callable[[], Any]


def reverb_here() -> bool:
    """Whether Reverb can be imported; if not, prints one line that the part is skipped."""
    try:
        with quiet():
            importlib.import_module("reverb")
    except Exception:  # a wheel for another system can raise more than ImportError
        print(NO_REVERB)
        return False
    return True


# --- steps whose observation is a counter


def counted_spec() -> trajectory.Trajectory:
    """The spec of one of the `counted_steps`: the observation is an int64 counter, shape []."""
    step_type = tf.TensorSpec([], tf.int32, "step_type")
    counter = tf.TensorSpec([], tf.int64, "counter")
    next_step_type = tf.TensorSpec([], tf.int32, "next_step_type")
    return trajectory.Trajectory(step_type, counter, (), (), next_step_type, (), ())


def counted_steps(count: int, episode: int = 4, start: int = 0) -> list[trajectory.Trajectory]:
    """Steps as a driver passes them to an observer, in episodes of `episode` entries.

    The last entry of an episode is its boundary: step type LAST, next step type FIRST. The first
    counter is `start`.
    """
    step_types = [StepType.FIRST] + [StepType.MID] * (episode - 2) + [StepType.LAST]
    steps = []
    for i in range(count):
        this, following = step_types[i % episode], step_types[(i + 1) % episode]
        steps.append(trajectory.Trajectory(this, np.int64(start + i), (), (), following, (), ()))
    return steps


def batched(*items: types.NestedArray) -> types.NestedArray:
    """Stacks items of the same structure along a new first axis: arrays [len(items), …]."""
    return tf.nest.map_structure(lambda *leaves: np.stack(leaves), *items)


# --- windows


def reverb_buffer(
    data_spec: types.NestedTensorSpec, capacity: int
) -> tuple[ReverbReplayBuffer, ReverbAddTrajectoryObserver]:
    """A `ReverbReplayBuffer` of two-step items with its own server, and the observer that writes.

    The `data_spec` is that of one step, the capacity is in items. The table draws uniformly and
    removes its oldest item when it is full.
    """
    reverb = importlib.import_module("reverb")
    name, length = "uniform", 2
    with quiet():
        signature = tensor_spec.add_outer_dim(data_spec)
        draw, remove = reverb.selectors.Uniform(), reverb.selectors.Fifo()
        limiter = reverb.rate_limiters.MinSize(1)
        table = reverb.Table(
            name,
            sampler=draw,
            remover=remove,
            max_size=capacity,
            rate_limiter=limiter,
            signature=signature,
        )
        server = reverb.Server([table])
        buffer = ReverbReplayBuffer(data_spec, name, length, local_server=server)
    return buffer, ReverbAddTrajectoryObserver(buffer.py_client, name, length)


def data_of(element: Any) -> Any:
    """The items in a dataset's element: PyUniform yields them alone, the others with an info."""
    with_info = isinstance(element, tuple) and len(element) == 2 and hasattr(element[1], "_fields")
    return element[0] if with_info else element


def draw_windows(dataset: tf.data.Dataset, draws: int) -> Counter[tuple[int, ...]]:
    """Counts how often each window is drawn: `{(3, 4): 120, …}`, a window by its counters.

    The dataset has batches of windows of `counted_steps`, observation `[batch, time] int64`. Of the
    last batch only the windows up to `draws` in total are counted.
    """
    windows: list[tuple[int, ...]] = []
    with quiet():  # Reverb's sampler logs when it starts
        for element in dataset:
            windows += map(tuple, data_of(element).observation.numpy().tolist())
            if len(windows) >= draws:
                break
    return Counter(windows[:draws])


def largest_deviation(counts: Iterable[int]) -> float:
    """The largest distance of a count from the mean count, in standard deviations.

    Of n uniform draws among m windows each count is binomial: mean n/m, variance n/m · (1 − 1/m).
    With n/m ≥ 500 and m ≤ 20, the result is 6 or more in fewer than one in a million runs.
    """
    observed = np.array(list(counts), float)
    mean = observed.mean()
    return float(np.abs(observed - mean).max() / np.sqrt(mean * (1 - 1 / len(observed))))


# --- calls


def describe(result: Any) -> str:
    """A call's result in a few words: the first tensor's shape (`tensors [4, 2, 3]`) or a value."""
    if result is None:
        return "done"
    data = data_of(result)
    info = ", info" if data is not result else ""
    leaves = tf.nest.flatten(data)
    first = leaves[0]
    if isinstance(first, tf.TypeSpec) or type(first).__name__.endswith("ArraySpec"):
        return f"{len(leaves)} × {type(first).__name__.removeprefix('Bounded')}"
    if np.ndim(first) == 0 and len(leaves) == 1:
        return f"{int(first)}, a {'tensor' if tf.is_tensor(first) else 'number'}"
    return f"{'tensors' if tf.is_tensor(first) else 'arrays'} {list(np.shape(first))}{info}"


def outcome(call: Call) -> str:
    """Makes a call; returns `describe` of its result, or the name of the error it raises."""
    try:
        with quiet():
            return describe(call())
    except Exception as error:
        return type(error).__name__


def api_table(
    buffers: Mapping[str, tuple[ReplayBuffer, Mapping[str, tuple[str, Call]]]],
    calls: Mapping[str, Callable[[ReplayBuffer], Any]],
) -> pd.DataFrame:
    """Makes every call on every buffer and tabulates the outcomes.

    Args:
        buffers: name → (buffer, alternatives). Alternatives: call → (text, function without
            arguments), which the buffer offers in place of a call that it does not support.
        calls: text → function of the buffer.

    Returns:
        A row for each call, a column for each buffer. A cell holds the `outcome`, and after `→`
        the alternative with its outcome.
    """
    rows: dict[str, dict[str, str]] = {}
    for call, function in calls.items():
        rows[call] = {}
        for name, (buffer, alternatives) in buffers.items():
            cell = outcome(functools.partial(function, buffer))
            if call in alternatives:
                text, alternative = alternatives[call]
                cell += f" → {text}: {outcome(alternative)}"
            rows[call][name] = cell
    return pd.DataFrame.from_dict(rows, orient="index")
