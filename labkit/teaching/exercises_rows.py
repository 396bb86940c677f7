"""Exercises of notebook 03 about the rows of a replay table: discounts, falls and bytes."""

from collections.abc import Callable

import numpy as np

from labkit.replay.transitions import Layout
from labkit.teaching.exercises import Exercise, WrongAnswer, call, mistakes, number_of


def stored_discount(answer: Callable) -> None:
    """03.1: the environment's discount after a step: 0 after a termination only."""
    cases = [
        (False, 400, "The episode goes on, so rewards follow."),
        (True, 400, "The robot fell: no reward follows (termination)."),
        (False, 999, "One more step follows before the limit."),
        (
            False,
            1000,
            "The time limit only interrupts the task (truncation): with 0 the critics learn that "
            "a robot that stands has fallen.",
        ),
        (True, 1000, "It fell in the last step before the limit: a fall is a termination."),
    ]
    for fell, step, reason in cases:
        given, true = number_of(call(answer, fell, step, 1000)), float(not fell)
        if given == true:
            continue
        if 0 < given < 1:
            reason = "γ is not part of it: the critics' target multiplies by γ itself."
        raise WrongAnswer(
            f"fell = {fell}, step {step} of 1000: the discount is {true:g}, yours is {given:g}. "
            f"{reason}"
        )


def horizon(answer: Callable) -> None:
    """03.2: after how many steps γ discounts a reward to a share."""
    for gamma, share in ((0.99, 0.05), (0.9, 0.5), (0.5, 0.25)):
        given = number_of(call(answer, gamma, share))
        exact = np.log(share) / np.log(gamma)
        true = int(np.ceil(exact))
        if given == true:
            continue
        usual = {
            1 / (1 - gamma): "1 / (1 − γ) is the sum of all powers of γ, whatever the share is.",
            true - 1: f"After {true - 1} steps the weight is still {gamma ** (true - 1):.5f}.",
            true + 1: f"After {true} steps the weight is already {gamma**true:.5f}.",
            exact: "A number of steps is whole: round up.",
            1 / exact: "The quotient is inverted: γ^n = share, so n = log(share) / log γ.",
        }
        hints = [text for wrong, text in usual.items() if np.isclose(given, wrong)]
        raise WrongAnswer(
            f"γ = {gamma}, share {share}: {true} steps, yours is {given:g}. "
            f"{hints[0] if hints else 'Solve γ^n = share for n.'}"
        )


def row_bytes(answer: Callable) -> None:
    """03.8: the size of a row of the replay table."""
    for layout in (Layout(28, 8), Layout(3, 1)):
        given, true = number_of(call(answer, layout.observation, layout.action)), 4 * layout.width
        if given == true:
            continue
        numbers = {
            "": layout.width,
            "A row has two observations, before and after the action.": (
                layout.width - layout.observation
            ),
            "You forgot reward and discount.": layout.width - 2,
            "Two observations, reward and discount belong to it.": (
                layout.width - layout.observation - 2
            ),
        }
        sizes = {
            "": 4,
            "That counts numbers: a float32 has 4 bytes.": 1,
            "float32, not float64.": 8,
        }
        hint = mistakes(given, lambda a, b: float(a * b), numbers, sizes)
        raise WrongAnswer(
            f"{layout.observation} and {layout.action} numbers: {true} bytes, yours is {given:g}. "
            f"{hint or 'obs_tm1, a_tm1, r_t, discount_t, obs_t.'}"
        )


def actions_per_fall(answer: Callable) -> None:
    """03.9: actions per fall, from the discounts of a random sample of a table's rows."""
    episodes = [(40, True), (60, True), (100, False)]  # actions, and whether the last is a fall
    rng = np.random.default_rng(0)
    for n in (5, 1, 5):
        discounts = rng.permutation(_discounts(episodes, n, gamma=0.99))[:162]
        zeros, rows = int(np.sum(discounts == 0)), len(discounts)
        given, true = number_of(call(answer, discounts.copy(), n)), n * rows / zeros
        if np.isclose(given, true, rtol=1e-4):
            continue
        below = float(np.mean(discounts < 1))
        usual: dict[float, str] = {
            true / n: f"Each fall is in {n} rows, so you count it {n} times.",
            1 / true: "That is falls per action: the other way round.",
            true / n**2: f"Each fall is in {n} rows: multiply by n, do not divide.",
            n / below: "A discount is below 1 without a fall, too: a fall has a discount of 0.",
            1 / below: "A discount is below 1 without a fall, too: a fall has a discount of 0.",
        }
        hints = [text for wrong, text in usual.items() if np.isclose(given, wrong)]
        raise WrongAnswer(
            f"{zeros} of {rows} sampled rows have a discount of 0, and a row spans {n} actions: "
            f"{true:.4g} actions per fall, yours is {given:.4g}. "
            f"{hints[0] if hints else 'n / (share of the rows with discount 0).'}"
        )


def _discounts(episodes: list[tuple[int, bool]], n: int, gamma: float) -> np.ndarray:
    """The discount column `[rows] float64` of a table; each row spans up to `n` actions."""
    column = []
    for length, fell in episodes:
        for left in range(length, 0, -1):  # actions to the end of the episode
            column.append(0.0 if fell and left <= n else gamma ** (min(n, left) - 1))
    return np.array(column)


EXERCISES = {
    "03.1": Exercise(
        stored_discount, "After a time limit the last state has a value; after a fall it has none."
    ),
    "03.2": Exercise(horizon, "The critics hardly see rewards beyond this horizon."),
    "03.8": Exercise(
        row_bytes, "The capacity of a table is a matter of memory: estimate it first."
    ),
    "03.9": Exercise(
        actions_per_fall, "Rows overlap, so a share of rows is not a share of actions."
    ),
}
