"""Notebook 02: TF-Agents' buffers side by side, numbered steps, the checks of the exercises."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
from tf_agents.replay_buffers.py_uniform_replay_buffer import PyUniformReplayBuffer
from tf_agents.replay_buffers.replay_buffer import ReplayBuffer
from tf_agents.replay_buffers.tf_uniform_replay_buffer import TFUniformReplayBuffer
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import StepType, trajectory
from tf_agents.utils import nest_utils

from labkit.lessons.exercises import Exercise, WrongAnswer, call, mistakes, number_of
from labkit.parameters import echo
from labkit.runtime import quiet

EPISODE = 4  # entries of an episode of numbered steps, the last of which is the boundary entry
TYPE, NUMBER, REWARD = (tf.TensorSpec([], dtype) for dtype in (tf.int32, tf.int64, tf.float32))
# Step type, observation, action, policy info, next step type, reward, discount.
NUMBERED_SPEC = trajectory.Trajectory(TYPE, NUMBER, (), (), TYPE, REWARD, ())


def numbered_steps(count: int) -> list[trajectory.Trajectory]:
    """Steps as a driver passes them to an observer, in episodes of 4; observation k is step k."""
    types = [StepType.FIRST, StepType.MID, StepType.MID, StepType.LAST]
    steps = []
    for k in range(count):
        this, following = types[k % EPISODE], types[(k + 1) % EPISODE]
        reward = np.float32([1, 0, -1, 0][k % EPISODE])  # no filter by reward is right
        steps.append(trajectory.Trajectory(this, np.int64(k), (), (), following, reward, ()))
    return steps


def drawn_windows(dataset: Iterable, draws: int = 2_000) -> list[tuple[int, ...]]:
    """The different windows of numbered steps among so many draws, sorted."""
    found: list[tuple[int, ...]] = []
    with quiet():  # Reverb's sampler logs when it starts
        for element in dataset:
            steps = element if isinstance(element, trajectory.Trajectory) else element[0]
            found += map(tuple, steps.observation.numpy().tolist())
            if len(found) >= draws:
                break
    return sorted(set(found))


def api_table(
    buffers: Mapping[str, ReplayBuffer], lines: Sequence[str], names: Mapping[str, Any]
) -> pd.DataFrame:
    """Runs each line on each buffer `b` and tabulates the results, or the errors' names."""

    def result(line: str, buffer: ReplayBuffer) -> str:
        try:
            with quiet():
                return describe(eval(line, {**names, "b": buffer}))
        except Exception as error:
            return type(error).__name__

    columns = {name: [result(line, b) for line in lines] for name, b in buffers.items()}
    return pd.DataFrame(columns, index=lines).replace(" ", "\xa0", regex=True)  # in one line


def describe(result: Any) -> str:
    """A result in a few words: the shape of its first array, or its value."""
    if result is None:
        return "done"
    first, *_ = leaves = tf.nest.flatten(result)
    if isinstance(first, tf.TypeSpec) or type(first).__name__.endswith("ArraySpec"):
        return f"{len(leaves)} × {type(first).__name__}"
    return f"{int(first)}" if np.ndim(first) == 0 else f"action {list(np.shape(first))}"


def ring_index(answer: Callable) -> None:
    """02.1: the index of row k in a ring after `added` rows, or -1."""
    for capacity, added in ((8, 13), (8, 8), (8, 5), (3, 300)):
        for k in range(max(0, added - 2 * capacity), added + 2):
            given, held = int(number_of(call(answer, k, added, capacity))), added - capacity <= k
            true = k % capacity if held and k < added else -1
            if given == true:
                continue
            hint = "After the last index comes index 0."
            if k >= added:
                hint = f"Rows count from 0: after {added} rows, the newest is row {added - 1}."
            elif not held:
                hint = f"Row {k + capacity} has overwritten it."
            elif given == k - max(0, added - capacity):
                hint = "That is its place in the order of time: rows do not move."
            found = f"Row {k} of {added} in a ring of {capacity}: {true}, not {given}."
            raise WrongAnswer(f"{found} {hint}")


def n_step_target(answer: Callable) -> None:
    """02.2: a target over n env steps."""
    gamma, value = 0.9, 100.0
    cases: list[list[float]] = [[1, 1, 1, 1, 1], [1, 1, 1], [1, 0.5, 1, 1], [1, 1, 1, 1, 0]]
    for case in cases:
        rewards, discounts, n = np.arange(1.0, len(case) + 1), np.array(case, float), len(case)
        given = number_of(call(answer, rewards, discounts, value, gamma))
        before = np.cumprod([1.0, *(gamma * discounts)])  # [n + 1] float64
        true, powers = before[:-1] @ rewards + before[-1] * value, gamma ** np.arange(n)
        usual = {
            "A discount multiplies all that comes after it.": powers @ rewards + gamma**n * value,
            f"The value comes {n} steps later: γ^{n}, not γ.": powers @ rewards + gamma * value,
            "Later rewards are discounted, too: r₁ + γ r₂ + …": rewards.sum() + gamma**n * value,
        }
        if not np.isclose(given, true):
            found = f"Rewards {rewards.tolist()}, discounts {case}, γ = {gamma}: {true:.2f}, not"
            hint = mistakes(given, lambda wrong: wrong, usual) or "Work from the end."
            raise WrongAnswer(f"{found} {given:.2f}. {hint}")


def filled(kind: str, steps: Iterable[trajectory.Trajectory]) -> ReplayBuffer:
    """A buffer with eight slots, TFUniform or PyUniform, after these numbered steps."""
    if kind == "TFUniform":
        buffer: ReplayBuffer = TFUniformReplayBuffer(NUMBERED_SPEC, batch_size=1, max_length=8)
    else:
        buffer = PyUniformReplayBuffer(tensor_spec.to_nest_array_spec(NUMBERED_SPEC), capacity=8)
    for step in steps:
        buffer.add_batch(nest_utils.batch_nested_array(step))
    return buffer


def ready(answer: Callable) -> None:
    """02.3: whether a buffer holds enough steps for a window."""
    for kind in ("TFUniform", "PyUniform"):
        for held in range(4):
            for num_steps in (1, 2):
                buffer = filled(kind, numbered_steps(held))
                try:
                    given = bool(call(answer, buffer, num_steps))
                except (NotImplementedError, AttributeError):
                    missing = "num_frames()" if kind == "PyUniform" else "size"
                    raise WrongAnswer(f"{kind}ReplayBuffer has no {missing}.") from None
                if given != (held >= num_steps):
                    why = "One step is not a window of two." if held else "It is empty."
                    found = f"{kind} holds {held}, a window has {num_steps}; you say {given}."
                    raise WrongAnswer(f"{found} {why if given else 'That is enough.'}")


def within_episodes(answer: Callable) -> None:
    """02.4: only the windows that do not cross an episode boundary."""
    buffer = filled("TFUniform", numbered_steps(13))
    windows, _ = next(iter(buffer.as_dataset(sample_batch_size=200, num_steps=2)))
    kept = call(answer, windows)
    if not isinstance(kept, trajectory.Trajectory):
        raise WrongAnswer(f"The answer must return a Trajectory, but it is {echo(kept)}.")
    first = np.asarray(kept.observation)[:, 0]
    if len(crossing := first[first % EPISODE == EPISODE - 1]):
        text = f"The window {crossing[0]} → {crossing[0] + 1} crosses an episode boundary."
        raise WrongAnswer(text)
    real = ~windows.is_boundary()[:, 0].numpy()
    if lost := sorted(set(windows.observation.numpy()[real, 0]) - set(first)):
        raise WrongAnswer(f"You drop {lost[0]} → {lost[0] + 1}, to which an action did lead.")
    for name in ("step_type", "observation", "next_step_type", "reward"):
        if not np.array_equal(getattr(kept, name), getattr(windows, name).numpy()[real]):
            raise WrongAnswer(f"`{name}` has other rows: apply one mask to every tensor.")


EXERCISES = {
    "02.1": Exercise(ring_index, "The old index of an overwritten row belongs to a newer row."),
    "02.2": Exercise(n_step_target, "A wrong power of γ trains without an error, to wrong values."),
    "02.3": Exercise(ready, "A training that reads too early from PyUniform learns from noise."),
    "02.4": Exercise(within_episodes, "DQN's loss masks such windows; SAC needs this filter."),
}
