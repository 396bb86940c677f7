"""Exercises of notebook 02 whose checks run the answer on small buffers of TF-Agents."""

import os
import tempfile
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf
from tf_agents.replay_buffers.py_uniform_replay_buffer import PyUniformReplayBuffer
from tf_agents.replay_buffers.replay_buffer import ReplayBuffer
from tf_agents.replay_buffers.tf_uniform_replay_buffer import TFUniformReplayBuffer
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import trajectory

from labkit.parameters import echo
from labkit.teaching import buffer_comparison, exercises_replay
from labkit.teaching.exercises import Exercise, WrongAnswer, call, number_of

SLOTS = 8
EPISODE = 4  # entries, the last of which is the boundary entry
STEPS = buffer_comparison.counted_steps(13, EPISODE)  # the last eight stay in a buffer: 5 to 12


def empty_buffer(name: str) -> ReplayBuffer:
    """A buffer for counted steps, with eight slots: TFUniform or PyUniform."""
    spec = buffer_comparison.counted_spec()
    if name == "TFUniform":
        return TFUniformReplayBuffer(spec, batch_size=1, max_length=SLOTS)
    return PyUniformReplayBuffer(tensor_spec.to_nest_array_spec(spec), capacity=SLOTS)


def fill(buffer: ReplayBuffer, steps: Iterable[trajectory.Trajectory]) -> ReplayBuffer:
    """The buffer, after these steps were added one by one."""
    for step in steps:
        buffer.add_batch(buffer_comparison.batched(step))
    return buffer


def ready(answer: Callable) -> None:
    """02.4: whether a buffer holds enough steps for a window."""
    for name in ("TFUniform", "PyUniform"):
        for held in range(4):
            for num_steps in (1, 2):
                buffer = fill(empty_buffer(name), STEPS[:held])
                _compare_ready(answer, name, buffer, held, num_steps)


def _compare_ready(
    answer: Callable, name: str, buffer: ReplayBuffer, held: int, num_steps: int
) -> None:
    try:
        given = bool(call(answer, buffer, num_steps))
    except (NotImplementedError, AttributeError) as error:
        missing = "num_frames()" if name == "PyUniform" else "size"
        raise WrongAnswer(
            f"{name}ReplayBuffer has no {missing} ({type(error).__name__}): the two buffers tell "
            "in different ways how many steps they hold."
        ) from None
    if given == (held >= num_steps):
        return
    found = f"{name}, steps held: {held}, steps in a window: {num_steps}. You say {given}. "
    if given and not held:
        raise WrongAnswer(f"{found}Nothing was written, so whatever is read is not experience.")
    if given:
        raise WrongAnswer(f"{found}One step is not enough for a window of two.")
    raise WrongAnswer(f"{found}That is enough for one window.")


def every_window(answer: Callable) -> None:
    """02.5: each two-step window of a full ring once, in the order of time."""
    expected = [[k, k + 1] for k in range(len(STEPS) - SLOTS, len(STEPS) - 1)]
    given = [[int(k) for k in np.ravel(window)] for window in call(answer, STEPS)]
    if given == expected:
        return
    if given == expected[::2]:
        raise WrongAnswer(
            f"These are {len(given)} windows without overlap, {given}: a buffer with "
            "dataset_window_shift=1 moves on by one step."
        )
    if given[:-1] == expected:
        raise WrongAnswer(f"The last window is cut to one step, {given[-1]}: filter by length.")
    if sorted(given) != given or len({tuple(window) for window in given}) < len(given):
        raise WrongAnswer(
            "Your windows are not in the order of time, each once: single_deterministic_pass=True "
            "does not draw at random."
        )
    raise WrongAnswer(f"The windows are {expected}, and yours are {given}.")


def episode_windows(draws: int = 200) -> trajectory.Trajectory:
    """Two-step windows `[draws, 2]` that a TFUniform buffer drew; observation k is step k.

    Episodes have four entries. Every second one terminates, the others are truncated. The rewards
    of an episode are 1, 0 and -1, so that no filter by reward is right.
    """
    steps = []
    for step in STEPS:
        number = int(step.observation)
        place, falls = number % EPISODE, (number // EPISODE) % 2 == 1
        reward = np.float32([1, 0, -1, 0][place])  # the boundary entry, the last, has none
        discount = np.float32(not (falls and place == EPISODE - 2))
        steps.append(step._replace(reward=reward, discount=discount))
    scalar = tf.TensorSpec([], tf.float32)
    spec = buffer_comparison.counted_spec()._replace(reward=scalar, discount=scalar)
    buffer = fill(TFUniformReplayBuffer(spec, batch_size=1, max_length=SLOTS), steps)
    windows, _ = next(iter(buffer.as_dataset(sample_batch_size=draws, num_steps=2)))
    return windows


def within_episodes(answer: Callable) -> None:
    """02.6: only the windows that do not cross an episode boundary."""
    windows = episode_windows()
    kept = call(answer, windows)
    if not isinstance(kept, trajectory.Trajectory):
        raise WrongAnswer(
            f"The answer must return a Trajectory of windows, but it is {echo(kept)}. Apply a mask "
            "to every tensor: tf.nest.map_structure(lambda t: t[mask], windows)."
        )
    drawn = {tuple(pair) for pair in windows.observation.numpy().tolist()}
    pairs = {tuple(pair) for pair in np.asarray(kept.observation).tolist()}
    crossing = sorted(pair for pair in pairs if pair[0] % EPISODE == EPISODE - 1)
    if crossing:
        a, b = crossing[0]
        raise WrongAnswer(
            f"The window {a} → {b} crosses an episode boundary: step {a} is the last observation "
            f"of its episode, step {b} the first of the next."
        )
    lost = sorted(pair for pair in drawn - pairs if pair[0] % EPISODE < EPISODE - 1)
    if lost:
        raise WrongAnswer(_dropped(lost[0], windows, pairs))
    real = ~windows.is_boundary()[:, 0].numpy()
    if len(np.asarray(kept.observation)) != real.sum():
        raise WrongAnswer(
            f"{real.sum()} of the windows begin with no boundary entry, yours are "
            f"{len(np.asarray(kept.observation))}: a window that was drawn twice stays twice."
        )
    for name, whole in windows._asdict().items():
        if tf.is_tensor(whole) and not np.array_equal(getattr(kept, name), whole.numpy()[real]):
            raise WrongAnswer(
                f"The observations are right, but `{name}` has other rows: apply one mask to every "
                "tensor."
            )


def _dropped(
    window: tuple[int, int], windows: trajectory.Trajectory, kept: set[tuple[int, int]]
) -> str:
    """What is wrong with a filter that drops this window; `windows` are [draws, 2]."""
    a, b = window
    observed, reward = windows.observation.numpy(), windows.reward.numpy()[:, 0]
    for rewarded in (reward > 0, reward != 0):
        if kept == {tuple(pair) for pair in observed[rewarded].tolist()}:
            return (
                f"Your filter drops the window {a} → {b}, because its reward is "
                f"{reward[observed[:, 0] == a][0]:g}. A real step may have any reward: look "
                "for the boundary entry."
            )
    what = "leads to the end of an episode" if b % EPISODE == EPISODE - 1 else "is within one"
    return (
        f"Your filter drops the window {a} → {b}, which {what}: an action did lead from {a} "
        f"to {b}. Only windows that begin with a boundary entry never happened."
    )


def largest_deviation(answer: Callable) -> None:
    """02.7: how far the furthest count is from uniform, in standard deviations of a count."""
    ring = fill(empty_buffer("TFUniform"), STEPS)
    drawn = buffer_comparison.draw_windows(ring.as_dataset(100, num_steps=2), 7_000)
    for counts in (np.array(list(drawn.values())), np.array([520] * 4 + [320])):
        given = number_of(call(answer, counts))
        true = buffer_comparison.largest_deviation(counts)
        distances, n, p = counts - counts.mean(), counts.sum(), 1 / len(counts)
        largest = np.abs(distances).max()
        if np.isclose(given, true):
            continue
        found = f"For the counts {counts.tolist()} it is {true:.2f}, yours is {given:.2f}. "
        if any(np.isclose(given, largest / counts.std(ddof=ddof)) for ddof in (0, 1)):
            raise WrongAnswer(
                f"{found}You divide by how much these counts scatter, which a biased count "
                "enlarges: divide by how much counts of uniform draws would scatter."
            )
        if np.isclose(given, largest / np.sqrt(n * p)):
            raise WrongAnswer(f"{found}The variance of a binomial count is n p (1 − p), not n p.")
        if np.isclose(given, distances.max() / np.sqrt(n * p * (1 - p))):
            raise WrongAnswer(f"{found}A count may be too low as well: take absolute distances.")
        if np.isclose(given, largest / np.sqrt(7_000 * (1 / 7) * (6 / 7))):
            raise WrongAnswer(
                f"{found}Your scale is that of 7000 draws from 7 windows: here n = {n} and "
                f"p = 1 / {len(counts)}, so take both from the counts."
            )
        raise WrongAnswer(
            f"{found}Each count is binomial: n = {n} draws, probability p = 1 / {len(counts)}."
        )


def restore(answer: Callable) -> None:
    """02.8: contents, order and write head of a buffer, saved to files and restored."""
    for name in ("TFUniform", "PyUniform"):
        buffer, fresh = fill(empty_buffer(name), STEPS), empty_buffer(name)
        with tempfile.TemporaryDirectory() as folder:
            answer(buffer, fresh, folder)
            files = os.listdir(folder)
        if not files:
            raise WrongAnswer("`folder` is empty: a copy in memory is lost with the process.")
        if _contents(name, fresh) == []:
            raise WrongAnswer(
                f"The fresh {name} buffer is empty. restore() goes by name and is silent where no "
                "name matches: use the same one twice, and call assert_consumed()."
            )
        _compare_contents(name, buffer, fresh, "its contents")
        fill(buffer, buffer_comparison.counted_steps(14)[-1:])
        fill(fresh, buffer_comparison.counted_steps(14)[-1:])
        _compare_contents(name, buffer, fresh, "after one more step")


def _compare_contents(name: str, buffer: ReplayBuffer, fresh: ReplayBuffer, when: str) -> None:
    true, given = _contents(name, buffer), _contents(name, fresh)
    if given != true:
        raise WrongAnswer(f"The restored {name} buffer, {when}: {given}; it must be {true}.")


def _contents(name: str, buffer: ReplayBuffer) -> list[int]:
    """The counters that a buffer holds; those of TFUniform in the order of time."""
    if name == "PyUniform":
        return buffer._storage.get(np.arange(int(buffer.size))).observation.tolist()
    if not int(buffer.num_frames()):
        return []
    return buffer.gather_all().observation.numpy()[0].tolist()


EXERCISES = {
    **exercises_replay.EXERCISES,
    "02.4": Exercise(
        ready,
        "A training that reads too early from a PyUniform buffer learns from noise, silently.",
    ),
    "02.5": Exercise(every_window, "An evaluation must see each window once; a training need not."),
    "02.6": Exercise(
        within_episodes, "DQN's loss masks such windows, SAC's does not and needs this filter."
    ),
    "02.7": Exercise(
        largest_deviation,
        "The scale must not depend on the counts: a biased count would enlarge it.",
    ),
    "02.8": Exercise(
        restore, "A training that resumes with an empty buffer forgets what it learned from."
    ),
}
