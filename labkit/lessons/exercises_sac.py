"""Exercises of notebook 03; each check knows what usual mistakes return, also two at a time."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from labkit.lessons.exercises import Exercise, WrongAnswer, call, mistakes, number_of


def _array(given: Any, shape: tuple[int, ...]) -> np.ndarray:
    """An answer as an array of this shape."""
    try:
        array = np.asarray(given, float)
    except (TypeError, ValueError):
        raise WrongAnswer("Return a tensor.") from None
    if array.shape != shape:
        raise WrongAnswer(f"The answer must have the shape {shape}, yours has {array.shape}.")
    return array


def log_slope(answer: Callable) -> None:
    """03.1: the logarithm of the slope of tanh, also where float32 rounds the slope to 0."""
    u = np.array([[0.5], [-1.0], [3.0], [20.0], [-20.0]], np.float32)  # [5, 1] float32
    given = _array(call(answer, tf.constant(u)), u.shape)
    true = 2 * (np.log(2) - np.logaddexp(u, -u))
    right = np.isclose(given, true, rtol=1e-3)[:, 0]
    if not right[:3].all():
        usual = {
            "That is the slope: take its logarithm.": np.exp(true),
            "That is the logarithm of tanh, not of its slope.": np.log(np.abs(np.tanh(u))),
            "The sign is reversed: a slope below 1 has a negative logarithm.": -true,
        }
        hint = mistakes(given[:3], lambda wrong: wrong[:3], usual)
        found = f"At u = 0.5 the slope is {np.exp(true[0, 0]):.3f}, its logarithm {true[0, 0]:.3f}"
        raise WrongAnswer(f"{found}; yours is {given[0, 0]:.3f}. {hint}")
    if not right.all():
        raise WrongAnswer(
            f"Right for small u. At u = {u[3:, 0].tolist()} it is {true[3, 0]:.2f}, "
            f"yours is {given[3:, 0].tolist()}: float32 rounds tanh² to 1. Write the slope as "
            "4 / (eᵘ + e⁻ᵘ)², take the logarithm, and pull the large exponential out of the sum."
        )


def soft_target(answer: Callable) -> None:
    """03.2: the critics' target y, for a step, a truncation and a termination."""
    q1, q2 = np.array([10.0, 8.0, 9.0], np.float32), np.array([7.0, 12.0, 9.5], np.float32)
    r, d, log_pi = np.array([[1, 2, 3], [1, 1, 0], [3, -1, 2]], np.float32)
    alpha, gamma = 0.5, 0.9
    rows = map(tf.constant, (r, d, q1, q2, log_pi))
    given = _array(call(answer, *rows, alpha, gamma), r.shape)
    lower, bonus = np.minimum(q1, q2), -alpha * log_pi
    true = r + gamma * d * (lower + bonus)
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
    hint = mistakes(given[row], lambda v, f: (r + f * v)[row], values, factors)
    hint = hint or "r + γ d V(s′), where V is the lower Q̄ minus α log π."
    found = f"Row {row}, with d = {d[row]:g}: y is {true[row]:.2f}, yours is {given[row]:.2f}."
    raise WrongAnswer(f"{found} {hint}")


def alpha_loss(answer: Callable) -> None:
    """03.3: a loss that lowers α while the policy is more random than the target."""
    target = -1.0
    for log_pi in ([0.0, -2.0], [3.0, 5.0]):  # entropies of 1 and −4 nats
        log_alpha = tf.Variable(-1.5)
        with tf.GradientTape() as tape:
            loss = call(answer, log_alpha, tf.constant(log_pi), target)
        if not tf.is_tensor(loss) or (gradient := tape.gradient(loss, log_alpha)) is None:
            raise WrongAnswer("No gradient reaches `log_alpha`: compute with TensorFlow.")
        _array(loss, ())
        given, entropy = float(gradient), -float(np.mean(log_pi))
        true = entropy - target
        if np.isclose(given, true, rtol=1e-4):
            continue
        signs = {"": 1.0, "Your α moves the wrong way.": -1.0}
        excesses = {
            "": true,
            "The target entropy has the wrong sign.": entropy + target,
            "You sum over the batch: the loss is a mean.": 2 * true,
            "Right direction, but use log α in place of α, as the text asks.": np.exp(-1.5) * true,
        }
        hint = mistakes(given, lambda a, b: a * b, signs, excesses)
        way = "fall" if true > 0 else "rise"
        found = f"Entropy {entropy:g}, target {target:g}: α must {way}, so the gradient by log α is"
        found += f" {true:g}; yours is {given:.3g}."
        raise WrongAnswer(f"{found} {hint or 'Its size is entropy minus target.'}")


def replica_loss(answer: Callable) -> None:
    """03.4: a replica's part of the loss, such that the parts add up to the mean."""
    errors = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 8.0, 9.0], np.float32)  # [8]
    true = float(errors.mean())
    for replicas in (2, 4):
        own, parts = len(errors) // replicas, np.split(errors, replicas)
        total = sum(number_of(call(answer, tf.constant(p), len(errors))) for p in parts)
        usual = {
            f"You average over the replica's {own} rows, but the gradients are added.": replicas,
            f"You sum without dividing by the global batch of {len(errors)}.": len(errors),
            "You divide twice: by the replica's rows and by the global batch.": 1 / own,
        }
        if not np.isclose(total, true, rtol=1e-4):
            found = f"The losses of {replicas} replicas add up to {total:.3f}, one device has"
            found += f" {true:.3f}: {total / true:.3g} times the gradient."
            raise WrongAnswer(f"{found} {mistakes(total, lambda factor: factor * true, usual)}")


EXERCISES = {
    "03.1": Exercise(log_slope, "A mistake in log π is in each of the three losses."),
    "03.2": Exercise(soft_target, "A wrong target raises no error: the networks learn from it."),
    "03.3": Exercise(alpha_loss, "With the sign reversed, α grows without bound or falls to 0."),
    "03.4": Exercise(replica_loss, "Adam hides a factor, so look at the gradient itself."),
}
