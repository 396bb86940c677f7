"""Exercises of notebook 03: three lines of its training loop, and the loss of a replica.

Each check knows what the usual mistakes return, also two at a time.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from labkit.lessons.exercises import Exercise, WrongAnswer, call, mistakes, number_of


def log_slope(answer: Callable) -> None:
    """03.1: the logarithm of the slope of tanh, also where float32 rounds the slope to 0."""
    u = np.array([[0.5], [-1.0], [3.0]], np.float32)  # [3, 1] float32
    given, true = _array(call(answer, tf.constant(u))), _log_slope(u)
    if given.shape != u.shape:
        raise WrongAnswer(f"One logarithm for each u: {u.shape}, yours has shape {given.shape}.")
    if not np.allclose(given, true, rtol=1e-3):
        usual = {
            "That is the slope: take its logarithm.": np.exp(true),
            "That is the logarithm of tanh, not of its slope.": np.log(np.abs(np.tanh(u))),
            "The sign is reversed: a slope below 1 has a negative logarithm.": -true,
        }
        hints = [text for text, wrong in usual.items() if np.allclose(given, wrong, rtol=1e-3)]
        raise WrongAnswer(
            f"At u = 0.5 the slope is {np.exp(true[0, 0]):.3f}, its logarithm {true[0, 0]:.3f}; "
            f"yours is {given[0, 0]:.3f}. {(hints or [''])[0]}".strip()
        )
    far = np.array([[20.0], [-20.0]], np.float32)
    given = _array(call(answer, tf.constant(far)))
    if not np.allclose(given, _log_slope(far), rtol=1e-3):
        raise WrongAnswer(
            f"Right for small u. At u = {far[:, 0].tolist()} it is {_log_slope(far)[0, 0]:.2f}, "
            f"yours is {given[:, 0].tolist()}: float32 rounds tanh² to 1. Write the slope as "
            "4 / (eᵘ + e⁻ᵘ)², take the logarithm, and pull the large exponential out of the sum."
        )


def _log_slope(u: np.ndarray) -> np.ndarray:
    return 2 * (np.log(2) - np.logaddexp(u, -u))


def _array(given: Any) -> np.ndarray:
    try:
        return np.asarray(given, float)
    except (TypeError, ValueError):
        raise WrongAnswer("Return a tensor of the shape of `u`.") from None


def soft_target(answer: Callable) -> None:
    """03.2: the critics' target y, for a step, a truncation and a termination."""
    r, d = np.array([1.0, 2.0, 3.0], np.float32), np.array([1.0, 1.0, 0.0], np.float32)
    q1, q2 = np.array([10.0, 8.0, 9.0], np.float32), np.array([7.0, 12.0, 9.5], np.float32)
    log_pi, alpha, gamma = np.array([3.0, -1.0, 2.0], np.float32), 0.5, 0.9
    arguments = [tf.constant(x) for x in (r, d, q1, q2, log_pi)]
    given = _array(call(answer, *arguments, alpha, gamma))
    lower, bonus = np.minimum(q1, q2), -alpha * log_pi
    true = r + gamma * d * (lower + bonus)
    if given.shape != true.shape:
        raise WrongAnswer(f"One target for each row: shape {true.shape}, yours {given.shape}.")
    if np.allclose(given, true, rtol=1e-4):
        return
    row = int(np.argmax(~np.isclose(given, true, rtol=1e-4)))
    values = {
        "": lower + bonus,
        "You forgot the entropy term − α log π.": lower,
        "The entropy term has the wrong sign: a likely action gets a smaller bonus.": lower - bonus,
        "You take the higher critic: SAC takes the lower.": np.maximum(q1, q2) + bonus,
        "You take the mean of the critics: SAC takes the lower.": (q1 + q2) / 2 + bonus,
        "You take one critic: SAC takes the lower of two.": q1 + bonus,
    }
    factors = {
        "": gamma * d,
        "After a termination (d = 0) no reward follows: multiply the value by d.": gamma + 0 * d,
        "You forgot γ.": d,
    }
    hint = mistakes(float(given[row]), lambda v, f: float((r + f * v)[row]), values, factors)
    raise WrongAnswer(
        f"Row {row}, with d = {d[row]:g}: y is {true[row]:.2f}, yours is {given[row]:.2f}. "
        f"{hint or 'r + γ d V(s′), where V is the lower Q̄ minus α log π.'}"
    )


def alpha_loss(answer: Callable) -> None:
    """03.3: a loss that lowers α while the policy is more random than the target."""
    target = -1.0
    for log_pi in ([0.0, -2.0], [3.0, 5.0]):  # entropies of 1 and −4 nats
        log_alpha = tf.Variable(-1.5)
        with tf.GradientTape() as tape:
            loss = call(answer, log_alpha, tf.constant(log_pi), target)
        if not tf.is_tensor(loss) or (gradient := tape.gradient(loss, log_alpha)) is None:
            raise WrongAnswer("No gradient reaches `log_alpha`: compute with TensorFlow.")
        if np.size(gradient) != 1 or np.size(loss) != 1:
            raise WrongAnswer(f"The loss is one number, yours has shape {np.shape(loss)}: average.")
        given, entropy = float(gradient), -float(np.mean(log_pi))
        true = entropy - target
        if np.isclose(given, true, rtol=1e-4):
            continue
        signs = {"": 1.0, "Your α moves the wrong way.": -1.0}
        excesses = {
            "": entropy - target,
            "The target entropy has the wrong sign.": entropy + target,
            "You sum over the batch: the loss is a mean.": 2 * (entropy - target),
            "The direction is right; use log α in place of α, as the text asks.": (
                np.exp(-1.5) * (entropy - target)
            ),
        }
        hint = mistakes(given, lambda a, b: a * b, signs, excesses)
        way = "fall" if true > 0 else "rise"
        raise WrongAnswer(
            f"Entropy {entropy:g}, target {target:g}: α must {way}, so the gradient by log α is "
            f"{true:g}; yours is {given:.3g}. {hint or 'Its size is entropy minus target.'}"
        )


def replica_loss(answer: Callable) -> None:
    """03.4: a replica's part of the loss, such that the parts add up to the mean."""
    errors = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 8.0, 9.0], np.float32)  # [8]
    true = float(errors.mean())
    for replicas in (2, 4):
        parts = errors.reshape(replicas, -1)
        own = parts.shape[1]
        given = [call(answer, tf.constant(part), len(errors)) for part in parts]
        total = sum(map(number_of, given))
        if np.isclose(total, true, rtol=1e-4):
            continue
        usual = {
            replicas: f"You average over the replica's {own} rows, but the gradients are added.",
            len(errors): f"You sum without dividing by the global batch of {len(errors)}.",
            1 / own: "You divide twice: by the replica's rows and by the global batch.",
        }
        hints = [text for factor, text in usual.items() if np.isclose(total, factor * true)]
        raise WrongAnswer(
            f"The losses of {replicas} replicas add up to {total:.3f}, one device has {true:.3f}: "
            f"{total / true:.3g} times the gradient. {(hints or [''])[0]}".strip()
        )


EXERCISES = {
    "03.1": Exercise(
        log_slope, "All three losses contain log π, so a mistake in it is in each of them."
    ),
    "03.2": Exercise(
        soft_target, "A wrong target raises no error: critics and actor simply learn from it."
    ),
    "03.3": Exercise(
        alpha_loss, "With the sign reversed, α grows without bound or falls to nothing."
    ),
    "03.4": Exercise(
        replica_loss, "Adam hides a factor in the gradient, so look at the gradient itself."
    ),
}
