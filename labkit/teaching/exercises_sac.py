"""Exercises of notebook 03 about the equations of SAC, on small fixed arrays.

No check needs a run. Most checks know what the usual mistakes return, also two at a time.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from scipy import stats

from labkit.teaching import exercises_rows
from labkit.teaching.exercises import Exercise, WrongAnswer, call, mistakes, number_of
from labkit.teaching.exercises_replay import target_parts


def squashed_log_prob(answer: Callable) -> None:
    """03.3: log π of an action that tanh squashed into a range."""
    u, mean, deviation = np.array([0.8, -0.4]), np.array([0.5, 0.1]), np.array([0.6, 0.9])
    half_range = np.array([2.0, 3.0])
    given = _one_number(call(answer, u, mean, deviation, half_range), u)
    normals = {
        "": np.sum(stats.norm.logpdf(u, mean, deviation)),
        "`std` is a standard deviation: do not square it.": np.sum(
            stats.norm.logpdf(u, mean, deviation**2)
        ),
        "`std` is a standard deviation: do not take its root.": np.sum(
            stats.norm.logpdf(u, mean, np.sqrt(deviation))
        ),
    }
    slope = np.sum(_log_slope(u))
    slopes = {
        "": -slope,
        "You forgot the log-determinant: subtract log(1 − tanh² u) of each dimension.": 0.0,
        "The log-determinant has the wrong sign: where tanh is flat, π is higher.": slope,
    }
    ranges = {
        "": -np.sum(np.log(half_range)),
        "You forgot the action range: a range twice as wide halves the density.": 0.0,
        "The range has the wrong sign: a wider range lowers the density.": np.log(half_range).sum(),
    }
    true = normals[""] + slopes[""] + ranges[""]
    if not np.isclose(given, true, rtol=1e-4):
        hint = mistakes(given, lambda a, b, c: a + b + c, normals, slopes, ranges)
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
        raise WrongAnswer(f"An action has {len(u)} dimensions: sum the logarithms over them.")
    return number_of(given)


def row_target(answer: Callable) -> None:
    """03.4: the critics' target of a row over several env steps, with SAC's soft value."""
    lower, higher = 10.0, 12.0
    for q1, q2, discounts in (
        (higher, lower, [1.0, 1.0, 1.0, 1.0, 1.0]),
        (lower, higher, [1.0, 1.0, 1.0, 1.0, 1.0]),
        (higher, lower, [1.0, 1.0, 1.0, 1.0, 0.0]),
        (higher, lower, [1.0, 1.0, 1.0]),  # a shorter row: the episode was truncated
        (higher, lower, [1.0, 0.5, 1.0, 1.0]),  # each discount counts, not the last one alone
    ):
        _compare_target(answer, np.array(discounts), q1, q2)


def _compare_target(answer: Callable, discounts: np.ndarray, q1: float, q2: float) -> None:
    n, log_pi, alpha, gamma = len(discounts), 3.0, 0.5, 0.9
    rewards = np.arange(1.0, n + 1)  # [n] float64
    sums, factors, ends = target_parts(rewards, discounts, gamma)
    (lower, higher), bonus = sorted([q1, q2]), -alpha * log_pi
    values = {
        "": lower + bonus,
        "You forgot the entropy term: V = min Q − α log π.": lower,
        "The entropy term has the wrong sign: V = min Q − α log π.": lower - bonus,
        "The entropy term is part of the value: discount it, too.": lower + bonus / gamma**n,
        "You take the higher critic: SAC takes the lower.": higher + bonus,
        "You take the mean of the critics: SAC takes the lower.": (lower + higher) / 2 + bonus,
    }
    given = number_of(call(answer, rewards, discounts, q1, q2, log_pi, alpha, gamma))
    true = sums[""] + factors[""] * values[""] * ends[""]
    if np.isclose(given, true, rtol=1e-4):
        return
    found = f"Discounts {discounts.tolist()}: {true:.2f} is right, yours is {given:.2f}. "
    hint = mistakes(given, lambda a, b, c, d: a + b * c * d, sums, factors, ends, values)
    raise WrongAnswer(
        f"{found}{hint or 'r₁ + γ d₁ r₂ + γ² d₁ d₂ r₃ + …, and then the soft value.'}"
    )


def policy_loss(answer: Callable) -> None:
    """03.5: the actor's loss, and its gradient through the sampled action."""
    rng = np.random.default_rng(0)
    mean, noise = (tf.constant(rng.normal(size=(6, 2))) for _ in range(2))  # [6, 2] float64
    deviation, alpha = tf.constant(rng.uniform(0.3, 0.8, size=(6, 2))), 0.2
    policy = [mean, deviation]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(policy)
        given = call(answer, mean, deviation, noise, _critics, _log_prob, alpha)
        u = mean + deviation * noise
        log_pi = _log_prob(u, mean, deviation)
        true = tf.reduce_mean(alpha * log_pi - tf.minimum(*_critics(tf.tanh(u))))
    if np.size(given) != 1:
        raise WrongAnswer(f"The loss is one number, yours has shape {np.shape(given)}: average.")
    value = number_of(given)
    if not np.isclose(value, true):
        raise WrongAnswer(
            f"For α = {alpha} the loss is {float(true):.4f}, yours is {value:.4f}. "
            f"{_actor_mistakes(value, u, log_pi, alpha) or 'mean(α log π − min Q).'}"
        )
    if not tf.is_tensor(given) or None in (gradients := tape.gradient(given, policy)):
        raise WrongAnswer(
            "The value is right, but no gradient reaches `mean` and `std`: compute in TensorFlow "
            "from mean + std · noise, without .numpy() and tf.stop_gradient."
        )
    if not all(map(np.allclose, gradients, tape.gradient(true, policy))):
        raise WrongAnswer(
            "The value is right, and its gradient is not: a part of the loss is computed without "
            "TensorFlow, or behind tf.stop_gradient. Q and log π both depend on the policy."
        )


def _critics(actions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Two estimates `[batch] float64` of actions `[batch, 2] float64`; neither is always lower."""
    return 2 * actions[:, 0] - actions[:, 1] ** 2, 2 * actions[:, 1] - actions[:, 0] ** 2


def _log_prob(u: tf.Tensor, mean: tf.Tensor, deviation: tf.Tensor) -> tf.Tensor:
    """Log π `[batch] float64` of the action tanh u, for actions between −1 and 1."""
    log_normal = -0.5 * ((u - mean) / deviation) ** 2 - tf.math.log(deviation)
    log_slope = 2 * (np.log(2) - u - tf.math.softplus(-2 * u))
    return tf.reduce_sum(log_normal - 0.5 * np.log(2 * np.pi) - log_slope, axis=1)


def _actor_mistakes(value: float, u: tf.Tensor, log_pi: tf.Tensor, alpha: float) -> str:
    """The usual mistakes that give this loss."""
    q1, q2 = _critics(tf.tanh(u))
    estimates = {
        "": np.minimum(q1, q2),
        "Q needs the action: tanh of u.": np.minimum(*_critics(u)),
        "You take the higher critic: SAC takes the lower.": np.maximum(q1, q2),
        "You take the mean of the critics: SAC takes the lower.": (q1 + q2) / 2,
        "You take the first critic: SAC takes the lower.": q1,
    }
    signs = {"": -1, "Q has the wrong sign: a loss is minimised, and Q must grow.": 1}
    weights = {
        "": alpha,
        "You forgot the entropy term α log π.": 0.0,
        "The entropy term has the wrong sign: the actor must lower log π.": -alpha,
        "You forgot α.": 1.0,
    }
    means = {"": 1, "You sum over the batch: the loss is a mean.": len(log_pi)}

    def loss(q: np.ndarray, sign: int, weight: float, rows: int) -> float:
        return float(rows * np.mean(weight * log_pi + sign * q))

    return mistakes(value, loss, estimates, signs, weights, means)


def next_log_alpha(answer: Callable) -> None:
    """03.6: log α after one step of gradient descent on the temperature loss."""
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
        hint = mistakes(given, lambda a, b: log_alpha + a * b, directions, excesses)
        if np.isclose(given, log_alpha * (entropy - target)):
            hint = "That is the loss: return log α after the step."
        raise WrongAnswer(
            f"Entropy {entropy:g}, target {target:g}: log α goes from {log_alpha:g} to {true:.2f}, "
            f"yours to {given:.2f}. {hint or 'log α − rate · mean(−log π − H̄).'}"
        )


def follow(answer: Callable) -> None:
    """03.7: Polyak averaging, in place."""
    for tau in (0.25, 0.005):
        critic = [tf.Variable([4.0, 0.0]), tf.Variable([[8.0]])]
        target = [tf.Variable([0.0, 4.0]), tf.Variable([[2.0]])]
        w, old = _flat(critic), _flat(target)
        lists = list(critic), list(target)
        answer(*lists, tau)
        if any(a is not b for a, b in zip(lists[1], target, strict=False)):
            raise WrongAnswer(
                "You replaced elements of the list, and the variables of the network did not "
                "change: use `t.assign(…)`."
            )
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
    """03.10: a replica's part of the loss, such that the parts add up to the mean."""
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


EXERCISES = {
    **exercises_rows.EXERCISES,
    "03.3": Exercise(
        squashed_log_prob, "All three losses of SAC contain log π, so a mistake in it is in each."
    ),
    "03.4": Exercise(
        row_target, "A wrong target raises no error, and critics and actor learn from it."
    ),
    "03.5": Exercise(
        policy_loss, "A loss with the right value learns nothing if its gradient is cut off."
    ),
    "03.6": Exercise(
        next_log_alpha, "With a reversed sign α grows without bound, or falls to nothing."
    ),
    "03.7": Exercise(
        follow, "If targets copy the critics at once, an error in Q feeds back into its own target."
    ),
    "03.10": Exercise(
        replica_loss, "Adam hides a factor in the gradient, so look at the gradient, not the curve."
    ),
}
