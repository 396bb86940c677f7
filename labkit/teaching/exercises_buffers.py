"""The exercises of notebook 02. Most checks run the answer on small buffers of TF-Agents."""

import os
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.replay_buffers.py_uniform_replay_buffer import PyUniformReplayBuffer
from tf_agents.replay_buffers.replay_buffer import ReplayBuffer
from tf_agents.replay_buffers.tf_uniform_replay_buffer import TFUniformReplayBuffer
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import trajectory

from labkit.parameters import echo
from labkit.replay.n_step import NStepWriter
from labkit.replay.transitions import Transition
from labkit.teaching import buffer_comparison
from labkit.teaching.exercises import Exercise, WrongAnswer, call, number_of
from labkit.teaching.replay_memories import RingBuffer

SLOTS = 8
EPISODE = 4  # entries, the last of which is the boundary entry
USUAL_N = 5  # env steps of a row in exercise 7
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
    """02.1: whether a buffer holds enough steps for a window."""
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
    """02.2: each two-step window of a full ring once, in the order of time."""
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
    """02.3: only the windows that do not cross an episode boundary."""
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
        a, b = lost[0]
        observed, reward = windows.observation.numpy(), windows.reward.numpy()[:, 0]
        for rewarded in (reward > 0, reward != 0):
            if pairs == {tuple(pair) for pair in observed[rewarded].tolist()}:
                raise WrongAnswer(
                    f"Your filter drops the window {a} → {b}, because its reward is "
                    f"{reward[observed[:, 0] == a][0]:g}. A real step may have any reward: look "
                    "for the boundary entry."
                )
        what = "leads to the end of an episode" if b % EPISODE == EPISODE - 1 else "is within one"
        raise WrongAnswer(
            f"Your filter drops the window {a} → {b}, which {what}: an action did lead from {a} "
            f"to {b}. Only windows that begin with a boundary entry never happened."
        )
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


def largest_deviation(answer: Callable) -> None:
    """02.4: how far the furthest count is from uniform, in standard deviations of a count."""
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
    """02.5: contents, order and write head of a buffer, saved to files and restored."""
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


def importance_weights(answer: Callable) -> None:
    """02.6: w = p^-β, scaled such that the largest is 1."""
    p = np.array([0.4, 0.3, 0.2, 0.1])  # [4] float64: how often each item is drawn
    values = np.array([1.0, 2.0, 3.0, 10.0])  # [4] float64: what is averaged
    for beta in (1.0, 0.5, 0.0):
        w = np.asarray(call(answer, p, beta), float)
        if w.shape != p.shape:
            raise WrongAnswer(
                f"There must be {len(p)} weights, one for each item; yours are {echo(w)}."
            )
        if np.allclose(w, p**-beta / np.max(p**-beta)):
            continue
        found = f"For p = {p.tolist()} and β = {beta:g} yours are {np.round(w, 3).tolist()}. "
        if beta and w[0] > w[-1]:
            raise WrongAnswer(f"{found}What is drawn more often must weigh less.")
        mean = np.sum(p * w * values) / np.sum(p * w)
        if beta == 1 and not np.isclose(mean, values.mean()):
            raise WrongAnswer(
                f"{found}With β = 1 the weighted mean of prioritised draws must be that of "
                f"uniform ones: {values.mean():g}, and yours gives {mean:.2f}."
            )
        if not np.isclose(w.max(), 1):
            raise WrongAnswer(f"{found}Divide by the largest: weights only make steps smaller.")
        raise WrongAnswer(f"{found}β sets how much of the bias is undone: none at 0, all at 1.")


def n_step_target(answer: Callable) -> None:
    """02.7: the target of a row over n env steps, compared with labkit's `NStepWriter`."""
    gamma, value = 0.9, 100.0
    for case in ([1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [1, 1, 1], [1, 0.5, 1]):
        discounts = np.array(case, float)  # [n] float64
        n = len(discounts)
        rewards = np.arange(1.0, n + 1)  # [n] float64
        found = f"Rewards {rewards.tolist()}, discounts {discounts.tolist()}, γ = {gamma}: "
        try:
            given = number_of(call(answer, rewards, discounts, value, gamma))
        except (IndexError, ValueError) as error:
            if n == USUAL_N:
                raise
            raise WrongAnswer(
                f"{found}your answer raised {type(error).__name__}. It works for {USUAL_N} steps, "
                f"but this row spans {n}: take n from len(rewards)."
            ) from None
        true = _target_of_a_row(rewards, discounts, value, gamma)
        if not np.isclose(given, true, rtol=1e-4):
            hint = _target_hint(given, rewards, discounts, value, gamma)
            raise WrongAnswer(f"{found}{true:.2f} is right, yours is {given:.2f}. {hint}")


def _target_hint(
    given: float, rewards: np.ndarray, discounts: np.ndarray, value: float, gamma: float
) -> str:
    """The usual mistake that gives this target; rewards and discounts [n] float64."""
    n, last = len(rewards), discounts[-1]
    powers = gamma ** np.arange(n)  # [n] float64
    undiscounted, after = powers @ rewards, gamma**n * value
    usual = [
        (
            rewards.sum() + gamma * value * last,
            f"Your target uses γ once, but the row spans {n} steps.",
        ),
        (
            undiscounted + gamma * value * last,
            f"The value comes {n} steps later: γ^{n}, not γ.",
        ),
        (
            undiscounted + powers[-1] * value * last,
            f"The value comes one step after the last reward: γ^{n}.",
        ),
        (
            gamma * undiscounted + after * last,
            "The first reward is not discounted: γ^0.",
        ),
        (
            rewards.sum() + after * last,
            "Each reward is discounted by the steps before it.",
        ),
        (
            undiscounted + gamma**USUAL_N * value * last,
            f"γ^{USUAL_N} is right for {USUAL_N} steps only: take n from len(rewards).",
        ),
        (
            powers @ (rewards * np.cumprod(discounts)) + after * discounts.prod(),
            "A discount multiplies the rewards after it, not the reward of its own step.",
        ),
    ]
    if not last:
        end = "The episode terminated in this row: a discount of 0 ends the sum."
        usual.append((undiscounted + after, end))
    elif discounts.prod() < 1:
        later = "A discount also multiplies all later rewards, not only the value."
        usual.append((undiscounted + after * discounts.prod(), later))
        earlier = "You use only the last discount: each one multiplies all that comes after it."
        usual.append((undiscounted + after * last, earlier))
    hints = [text for wrong, text in usual if np.isclose(given, wrong)]
    return hints[0] if hints else "r₁ + γ d₁ r₂ + γ² d₁ d₂ r₃ + …, and then the value."


def _target_of_a_row(rewards: Any, discounts: Any, value: float, gamma: float) -> float:
    rows: list[Transition] = []
    writer = NStepWriter(rows.append, len(rewards), gamma)
    nothing = np.zeros(1, np.float32)
    for reward, discount in zip(rewards, discounts, strict=True):
        writer.write(Transition(nothing, nothing, reward, discount, nothing))
    return float(rows[0].reward + gamma * rows[0].discount * value)


def ring_index(answer: Callable) -> None:
    """02.8: the index of row k in a ring after `added` rows, or -1, compared with `RingBuffer`."""
    for capacity, added in ((8, 13), (8, 8), (8, 5), (3, 300)):
        ring = RingBuffer(capacity, np.int64)
        for number in range(added):
            ring.add(number)
        held = {int(row): index for index, row in enumerate(ring.rows[: len(ring)])}
        for k in range(max(0, added - 2 * capacity), added + 2):
            given, true = int(number_of(call(answer, k, added, capacity))), held.get(k, -1)
            if given != true:
                found = f"Row {k} of {added} in a ring of {capacity}: {true}, yours is {given}. "
                raise WrongAnswer(found + _ring_hint(k, added, capacity, given))


def _ring_hint(k: int, added: int, capacity: int, given: int) -> str:
    if given == -1:
        return "The ring still holds this row."
    if k >= added:
        return f"Rows count from 0: after {added} rows, the newest is row {added - 1}."
    if k < added - capacity:
        return f"Row {k} was overwritten by row {k + capacity}, which has the same index."
    if given == k - max(0, added - capacity):
        return "That is its place in the order of time: rows do not move when others arrive."
    if given == (k + 1) % capacity:
        return "Rows count from 0, and row 0 goes to index 0."
    return "Each row goes to the index behind the last one, and after the last index to 0."


def probabilities(answer: Callable) -> None:
    """02.9: P(i) from TD errors, equation 1 of Schaul et al. 2016 with proportional priorities."""
    errors, epsilon = np.array([-4.0, 0.0, 1.0, 2.0]), 0.1
    for alpha in (1.0, 0.6, 0.0):
        given = np.asarray(call(answer, errors, alpha, epsilon), float)
        if given.shape != errors.shape:
            raise WrongAnswer(
                f"There must be {len(errors)} probabilities, one for each row; "
                f"yours are {echo(given)}."
            )
        priorities = np.abs(errors) + epsilon
        true = priorities**alpha / np.sum(priorities**alpha)
        if np.allclose(given, true):
            continue
        found = (
            f"For errors {errors.tolist()}, α = {alpha:g} and ε = {epsilon}: "
            f"{true.round(3).tolist()} is right, yours are {given.round(3).tolist()}. "
        )
        shares, bare = priorities / priorities.sum(), np.abs(errors) ** alpha
        usual = [
            (bare / bare.sum(), "ε is missing: a row with an error of 0 is never drawn again."),
            (shares**alpha, "They sum to {total:.2f}: apply α before you divide by the sum."),
            (shares, "α is missing: at α = 0 all rows must be equally likely."),
            (priorities**alpha, "These are priorities: divide by their sum."),
        ]
        for wrong, hint in usual:
            if np.allclose(given, wrong):
                raise WrongAnswer(found + hint.format(total=given.sum()))
        if not np.all(np.isfinite(given)) or given[0] < given[1]:
            raise WrongAnswer(f"{found}The sign of an error does not matter: take |δ|.")
        raise WrongAnswer(f"{found}p = |δ| + ε, then p^α, then divide by the sum.")


EXERCISES = {
    "02.1": Exercise(
        ready,
        "A training that reads too early from a PyUniform buffer learns from noise, silently.",
    ),
    "02.2": Exercise(every_window, "An evaluation must see each window once; a training need not."),
    "02.3": Exercise(
        within_episodes, "DQN's loss masks such windows, SAC's does not and needs this filter."
    ),
    "02.4": Exercise(
        largest_deviation,
        "The scale must not depend on the counts: a biased count would enlarge it.",
    ),
    "02.5": Exercise(
        restore, "A training that resumes with an empty buffer forgets what it learned from."
    ),
    "02.6": Exercise(
        importance_weights, "Without weights, priorities change which function is learned."
    ),
    "02.7": Exercise(
        n_step_target, "A wrong power of γ learns smoothly, and learns the wrong values."
    ),
    "02.8": Exercise(
        ring_index,
        "A priority or an index that outlives its row belongs to the row that came after.",
    ),
    "02.9": Exercise(probabilities, "Reverb's Prioritized selector draws by the same formula."),
}
