"""The exercises of notebook 03: SAC's equations, on small fixed arrays.

No check needs a run. Most checks know what the usual mistakes return, also two at a time.
"""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import tensorflow as tf
from scipy import stats

from labkit.replay.transitions import Layout
from labkit.teaching.exercises import Exercise, WrongAnswer, call, number_of


def row_target(answer: Callable) -> None:
    """03.1: the critics' target of a row over several env steps, with SAC's soft value."""
    rewards = np.array([1.0, 2.0, 3.0, 4.0, 5.0])  # [5] float64
    n, log_pi, alpha, gamma = len(rewards), 3.0, 0.5, 0.9
    powers = gamma ** np.arange(n)
    sums = {
        "": powers @ rewards,
        "Each reward is discounted by the steps before it.": rewards.sum(),
    }
    factors = {
        "": gamma**n,
        f"Your target uses γ once, but the row spans {n} steps.": gamma,
        f"The value comes one step after the last reward: γ^{n}.": powers[-1],
        "The value is discounted, too.": 1.0,
    }
    lower, higher, bonus = 10.0, 12.0, -alpha * log_pi
    values = {
        "": lower + bonus,
        "You forgot the entropy term: V = min Q − α log π.": lower,
        "The entropy term has the wrong sign: V = min Q − α log π.": lower - bonus,
        "You take the higher critic: SAC takes the lower.": higher + bonus,
        "You take the mean of the critics: SAC takes the lower.": (lower + higher) / 2 + bonus,
    }
    for q1, q2, last in ((higher, lower, 1.0), (lower, higher, 1.0), (higher, lower, 0.0)):
        discounts = np.array([1.0, 1.0, 1.0, 1.0, last])
        given = number_of(call(answer, rewards, discounts, q1, q2, log_pi, alpha, gamma))
        true = sums[""] + factors[""] * values[""] * last
        if np.isclose(given, true, rtol=1e-4):
            continue
        found = f"Discounts {discounts.tolist()}: {true:.2f} is right, yours is {given:.2f}. "
        if not last and given > true:
            raise WrongAnswer(
                f"{found}The episode terminated in this row: no value follows a discount of 0."
            )
        hint = _mistakes(given, lambda a, b, c, d=last: a + b * c * d, sums, factors, values)
        raise WrongAnswer(
            f"{found}{hint or 'r₁ + γ d₁ r₂ + γ² d₁ d₂ r₃ + …, and then the soft value.'}"
        )


def squashed_log_prob(answer: Callable) -> None:
    """03.2: log π of an action that tanh squashed into a range."""
    u, mean, deviation = np.array([0.8, -0.4]), np.array([0.5, 0.1]), np.array([0.6, 0.9])
    half_range = np.array([2.0, 2.0])
    given = _one_number(call(answer, u, mean, deviation, half_range), u)
    normal, slope = np.sum(stats.norm.logpdf(u, mean, deviation)), np.sum(_log_slope(u))
    slopes = {
        "": -slope,
        "You forgot the log-determinant: subtract log(1 − tanh² u) of each motor.": 0.0,
        "The log-determinant has the wrong sign: where tanh is flat, π is higher.": slope,
    }
    ranges = {
        "": -np.sum(np.log(half_range)),
        "You forgot the action range: a range twice as wide halves the density.": 0.0,
        "The range has the wrong sign: a wider range lowers the density.": np.log(half_range).sum(),
    }
    true = normal + slopes[""] + ranges[""]
    if not np.isclose(given, true, rtol=1e-4):
        hint = _mistakes(given, lambda a, b: normal + a + b, slopes, ranges)
        raise WrongAnswer(
            f"For u = {u.tolist()} and half ranges {half_range.tolist()} it is {true:.3f}, yours "
            f"is {given:.3f}. {hint or 'log N(u; μ, σ) − log(1 − tanh² u) − log(half range).'}"
        )
    u, mean = np.array([20.0, -0.4]), np.array([19.7, 0.1])
    with np.errstate(divide="ignore"):
        given = _one_number(call(answer, u, mean, deviation, half_range), u)
    true = np.sum(stats.norm.logpdf(u, mean, deviation) - _log_slope(u) - np.log(half_range))
    if not np.isclose(given, true, rtol=1e-4):
        raise WrongAnswer(
            f"For u = {u.tolist()} it is {true:.2f}, yours is {given:.2f}. Near the ends 1 − tanh² "
            "u rounds to 0: log(1 − tanh² u) = 2 (log 2 − u − log(1 + e^(−2u))) is exact."
        )


def _log_slope(u: np.ndarray) -> np.ndarray:
    """log(1 − tanh² u), stable for large |u|."""
    return 2 * (np.log(2) - u - np.logaddexp(0, -2 * u))


def _one_number(given: Any, u: np.ndarray) -> float:
    if np.shape(given) == u.shape:
        raise WrongAnswer(
            f"There are {len(u)} motors and one action: sum the logarithms over the motors."
        )
    return number_of(given)


def next_log_alpha(answer: Callable) -> None:
    """03.3: log α after one step of gradient descent on the temperature loss."""
    log_alpha, target, rate = -1.0, -4.0, 0.1
    for log_pi in (np.array([-7.0, -5.0]), np.array([5.0, 7.0])):
        given = number_of(call(answer, log_alpha, log_pi, target, rate))
        entropy = -log_pi.mean()
        true = log_alpha - rate * (entropy - target)
        if np.isclose(given, true, rtol=1e-4):
            continue
        more = "more" if entropy > target else "less"
        excesses = {
            "": entropy - target,
            "The target entropy has the wrong sign: −log π − H̄ is the excess.": entropy + target,
            "You sum over the batch: the loss is a mean.": len(log_pi) * (entropy - target),
            "The gradient by log α has no factor α: the loss is log α · (−log π − H̄).": (
                np.exp(log_alpha) * (entropy - target)
            ),
        }
        directions = {
            "": -rate,
            f"Your α moves the wrong way: the policy is {more} random than the target.": rate,
        }
        hint = _mistakes(given, lambda a, b: log_alpha + a * b, directions, excesses)
        if np.isclose(given, log_alpha * (entropy - target)):
            hint = "That is the loss: return log α after the step."
        raise WrongAnswer(
            f"Entropy {entropy:g}, target {target:g}: log α goes from {log_alpha:g} to {true:.2f}, "
            f"yours to {given:.2f}. {hint or 'log α − rate · mean(−log π − H̄).'}"
        )


def follow(answer: Callable) -> None:
    """03.4: Polyak averaging, in place."""
    for tau in (0.25, 0.005):
        critic = [tf.Variable([4.0, 0.0]), tf.Variable([[8.0]])]
        target = [tf.Variable([0.0, 4.0]), tf.Variable([[2.0]])]
        w, old = _flat(critic), _flat(target)
        answer(critic, target, tau)
        given, true = _flat(target), tau * w + (1 - tau) * old
        if not np.array_equal(_flat(critic), w):
            raise WrongAnswer("You averaged into the critic: only the target follows.")
        if np.allclose(given, true):
            continue
        usual = {
            "The target did not change: `t = …` only names a new tensor, use `t.assign(…)`.": old,
            "τ and 1 − τ are swapped: τ is the share of the new weights.": (
                (1 - tau) * w + tau * old
            ),
            "You copied the critic: with τ < 1 the target keeps most of its old value.": w,
            "You forgot the factor 1 − τ of the old weights.": tau * w + old,
        }
        hints = [text for text, wrong in usual.items() if np.allclose(given, wrong)]
        raise WrongAnswer(
            f"τ = {tau:g}, weights {w.tolist()}, target {old.tolist()}: it must become "
            f"{np.round(true, 3).tolist()}, yours is {np.round(given, 3).tolist()}. "
            f"{hints[0] if hints else 'τ θ + (1 − τ) θ̄, for every variable.'}"
        )


def _flat(variables: list[tf.Variable]) -> np.ndarray:
    return np.concatenate([np.ravel(v.numpy()) for v in variables])


def replica_loss(answer: Callable) -> None:
    """03.5: a replica's part of the loss, such that the parts add up to the mean."""
    errors = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 8.0, 9.0])  # [8] float64
    true = errors.mean()
    for replicas in (2, 4):
        parts = errors.reshape(replicas, -1)
        own = parts.shape[1]
        total = sum(number_of(call(answer, part, len(errors))) for part in parts)
        if np.isclose(total, true, rtol=1e-4):
            continue
        usual = {
            replicas: (
                f"You average over the replica's {own} rows, but the replicas' gradients are "
                f"added: divide by the global batch of {len(errors)}."
            ),
            len(errors): f"You sum without dividing by the global batch of {len(errors)}.",
            1 / own: "You divide twice: by the replica's rows and by the global batch.",
        }
        hints = [text for factor, text in usual.items() if np.isclose(total, factor * true)]
        raise WrongAnswer(
            f"The losses of {replicas} replicas add up to {total:.3f}, one device has {true:.3f}: "
            f"{total / true:.3g} times the gradient. {hints[0] if hints else 'sum / global batch.'}"
        )


def stored_discount(answer: Callable) -> None:
    """03.6: the environment's discount after a step: 0 after a termination only."""
    cases = [
        (False, 400, "The episode goes on, so rewards follow."),
        (True, 400, "The robot fell: no reward follows (termination)."),
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
    """03.7: after how many steps γ discounts a reward to a share."""
    for gamma, share in ((0.99, 0.05), (0.9, 0.5), (0.5, 0.25)):
        given = number_of(call(answer, gamma, share))
        exact = np.log(share) / np.log(gamma)
        true = int(np.ceil(exact))
        if given == true:
            continue
        usual = {
            1 / (1 - gamma): "1 / (1 − γ) is the sum of all powers of γ, whatever the share is.",
            true - 1: f"After {true - 1} steps the weight is still {gamma ** (true - 1):.4f}.",
            true + 1: f"After {true} steps the weight is already {gamma**true:.4f}.",
            exact: "A number of steps is whole: round up.",
            1 / exact: "The quotient is inverted: γ^n = share, so n = log(share) / log γ.",
        }
        hints = [text for wrong, text in usual.items() if np.isclose(given, wrong)]
        raise WrongAnswer(
            f"γ = {gamma}, share {share}: {true} steps, yours is {given:g}. "
            f"{hints[0] if hints else 'Solve γ^n = share for n.'}"
        )


def actions_per_fall(answer: Callable) -> None:
    """03.8: actions per fall, from the discounts of the rows of a table."""
    episodes = [(40, True), (60, True), (100, False)]  # actions, and whether the last is a fall
    actions = sum(length for length, _ in episodes)
    falls = sum(fell for _, fell in episodes)
    for n in (5, 1):
        discounts = _discounts(episodes, n, gamma=0.99)
        given, true = number_of(call(answer, discounts, n)), actions / falls
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
            f"{falls} falls in {actions} actions, rows of {n}: {true:g} actions per fall, yours "
            f"is {given:.3g}. {hints[0] if hints else 'n / (share of the rows with discount 0).'}"
        )


def _discounts(episodes: list[tuple[int, bool]], n: int, gamma: float) -> np.ndarray:
    """The discount column `[rows] float64` of a table; each row spans up to `n` actions."""
    column = []
    for length, fell in episodes:
        for left in range(length, 0, -1):  # actions to the end of the episode
            column.append(0.0 if fell and left <= n else gamma ** (min(n, left) - 1))
    return np.array(column)


def row_bytes(answer: Callable) -> None:
    """03.9: the size of a row of the replay table."""
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
        hint = _mistakes(given, lambda a, b: float(a * b), numbers, sizes)
        raise WrongAnswer(
            f"{layout.observation} and {layout.action} numbers: {true} bytes, yours is {given:g}. "
            f"{hint or 'obs_tm1, a_tm1, r_t, discount_t, obs_t.'}"
        )


def _mistakes(given: float, result: Callable[..., float], *choices: Mapping[str, float]) -> str:
    """The mistakes that explain an answer, joined; empty where none do.

    Args:
        given: the answer.
        result: computes an answer from one value of each of `choices`.
        choices: for a part of the formula, its possible values by mistake; "" is the right one.
    """
    explained: list[list[str]] = []
    for combination in product(*(part.items() for part in choices)):
        if np.isclose(given, result(*(value for _, value in combination)), rtol=1e-4):
            explained.append([mistake for mistake, _ in combination if mistake])
    shortest = min(explained, key=len, default=[])
    return " ".join(shortest)


EXERCISES = {
    "03.1": Exercise(
        row_target, "A wrong target raises no error: the critics learn it, and the actor obeys."
    ),
    "03.2": Exercise(
        squashed_log_prob, "All three losses of SAC contain log π, so a mistake in it is in each."
    ),
    "03.3": Exercise(
        next_log_alpha, "With a reversed sign α grows without bound, or falls to nothing."
    ),
    "03.4": Exercise(follow, "A target that follows at once is no target: errors in Q feed back."),
    "03.5": Exercise(
        replica_loss, "Adam hides a factor in the gradient, so look at the gradient, not the curve."
    ),
    "03.6": Exercise(
        stored_discount, "A time limit ends the episode, but not what the state is worth."
    ),
    "03.7": Exercise(horizon, "The critics hardly see rewards beyond this horizon."),
    "03.8": Exercise(
        actions_per_fall, "Rows overlap, so a share of rows is not a share of actions."
    ),
    "03.9": Exercise(
        row_bytes, "The capacity of a table is a matter of memory: estimate it first."
    ),
}
