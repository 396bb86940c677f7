"""Exercises of notebook 02 about replay in numbers: priorities, n-step targets, a ring buffer."""

from collections.abc import Callable

import numpy as np

from labkit.parameters import echo
from labkit.replay.n_step import NStepWriter
from labkit.replay.transitions import Transition
from labkit.teaching.exercises import Exercise, WrongAnswer, call, mistakes, number_of
from labkit.teaching.replay_memories import RingBuffer

USUAL_N = 5  # env steps of a row in exercise 9


def ring_index(answer: Callable) -> None:
    """02.1: the index of row k in a ring after `added` rows, or -1, compared with `RingBuffer`."""
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
    """02.2: P(i) from TD errors, equation 1 of Schaul et al. 2016 with proportional priorities."""
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


def importance_weights(answer: Callable) -> None:
    """02.3: w = p^-β, scaled such that the largest is 1."""
    p = np.array([0.4, 0.1, 0.3, 0.2])  # [4] float64: how often each item is drawn
    values = np.array([1.0, 10.0, 2.0, 3.0])  # [4] float64: what is averaged
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
    """02.9: the target of a row over n env steps, compared with labkit's `NStepWriter`."""
    gamma, value = 0.9, 100.0
    for case in ([1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [1, 1, 1], [1, 0.5, 1, 1]):
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
            sums, factors, ends = target_parts(rewards, discounts, gamma)
            hint = mistakes(given, lambda a, b, c: a + b * c * value, sums, factors, ends)
            hint = hint or "r₁ + γ d₁ r₂ + γ² d₁ d₂ r₃ + …, and then the value."
            raise WrongAnswer(f"{found}{true:.2f} is right, yours is {given:.2f}. {hint}")


def target_parts(
    rewards: np.ndarray, discounts: np.ndarray, gamma: float
) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """What the usual mistakes make of a target's parts; see `mistakes`.

    The parts are the sum of the rewards, and the factors of the value by γ and by the discounts.
    """
    n, own = len(rewards), np.cumprod(discounts)  # [n] float64
    powers, before = gamma ** np.arange(n), np.append(1.0, discounts[:-1])  # both [n] float64
    sums = {
        "": powers @ (rewards * np.cumprod(before)),
        "Each reward is discounted by the steps before it.": rewards.sum(),
        "The first reward is not discounted: γ^0.": gamma * powers @ rewards,
        "A discount multiplies the rewards after it, not the reward of its own step.": (
            powers @ (rewards * own)
        ),
        "A discount multiplies all later rewards, not only the next one.": (
            powers @ (rewards * before)
        ),
        "A discount also multiplies all later rewards, not only the value.": powers @ rewards,
    }
    factors = {
        "": gamma**n,
        f"The value comes {n} steps later: γ^{n}, not γ.": gamma,
        f"The value comes one step after the last reward: γ^{n}.": powers[-1],
        "The value is discounted, too.": 1.0,
        f"γ^{USUAL_N} is right for {USUAL_N} steps only: take n from len(rewards).": gamma**USUAL_N,
    }
    ends = {
        "": own[-1],
        "You use only the last discount: each one multiplies all that comes after it.": (
            discounts[-1]
        ),
        "The episode terminated in this row: a discount of 0 ends the sum.": 1.0,
    }
    return sums, factors, ends


def _target_of_a_row(
    rewards: np.ndarray, discounts: np.ndarray, value: float, gamma: float
) -> float:
    """The target of the row that labkit's writer makes; rewards and discounts [n] float64."""
    rows: list[Transition] = []
    writer = NStepWriter(rows.append, len(rewards), gamma)
    nothing = np.zeros(1, np.float32)
    for reward, discount in zip(rewards, discounts, strict=True):
        writer.write(Transition(nothing, nothing, reward, discount, nothing))
    return float(rows[0].reward + gamma * rows[0].discount * value)


EXERCISES = {
    "02.1": Exercise(
        ring_index,
        "If a row was overwritten, its old index or priority now belongs to the newer row.",
    ),
    "02.2": Exercise(probabilities, "Reverb's Prioritized selector draws by the same formula."),
    "02.3": Exercise(
        importance_weights, "Without weights, priorities change which function is learned."
    ),
    "02.9": Exercise(
        n_step_target, "With a wrong power of γ, training looks normal but learns wrong values."
    ),
}
