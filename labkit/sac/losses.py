"""The three losses of Soft Actor-Critic, as formulas.

Symbols::

    s, a, r, d, s'   observation, action, reward, discount, next observation
    Q₁, Q₂           the critics; Q̄₁, Q̄₂ their slow copies, the target critics
    π                the actor; log π(a | s) is the log density of an action
    α                the temperature, the weight of the entropy
    γ                the discount of one env step; d is 0 after a termination only

Sources: Haarnoja et al. 2018a (arXiv 1801.01290), 2018b (arXiv 1812.05905); two critics: Fujimoto
et al. 2018 (arXiv 1802.09477). Each loss is a mean over the global batch: the sums of all replicas
add up to it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from labkit.replay.transitions import Transition

Critic = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]  # s [batch, obs], a [batch, act] → Q [batch]
Sample = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]  # s → a [batch, act], log π [batch]


def sample_action(
    mean: tf.Tensor, stddev: tf.Tensor, noise: tf.Tensor, low: Any, high: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """An action a `[batch, act]` of the squashed normal policy, and log π(a | s) `[batch]`.

    2018b, equation 26. The mean μ(s) and the standard deviation σ(s), before the tanh, and the
    standard normal ε are `[batch, act] float32`; the bounds of the action are numbers or `[act]`.
    The gradient passes through μ and σ.
    """
    half_range, middle = (high - low) / 2.0, (high + low) / 2.0
    raw = mean + stddev * noise  # u [batch, act]
    log_normal = -0.5 * tf.square(noise) - tf.math.log(stddev) - 0.5 * np.log(2 * np.pi)
    log_slope = 2.0 * (np.log(2.0) - raw - tf.nn.softplus(-2.0 * raw))  # log(1 − tanh² u), stable
    log_pi = tf.reduce_sum(log_normal - log_slope - np.log(half_range), axis=-1)  # [batch]
    return middle + half_range * tf.tanh(raw), log_pi


def critic_target(
    batch: Transition,
    target_critics: Sequence[Critic],
    sample: Sample,
    alpha: tf.Tensor,
    gamma: float,
    reward_scale_factor: float,
) -> tf.Tensor:
    """The target y = c r + γ d (min(Q̄₁, Q̄₂)(s', a') − α log π(a' | s')), `[batch] float32`.

    2018b, equations 3 and 5. a' is a fresh action of the present policy in s', and c the reward
    scale. No gradient flows through y.
    """
    action, log_pi = sample(batch.next_observation)  # [batch, act], [batch]
    next_q = tf.minimum(*(q(batch.next_observation, action) for q in target_critics))  # [batch]
    value = next_q - alpha * log_pi  # V(s') [batch]
    target = reward_scale_factor * batch.reward + gamma * batch.discount * value
    return tf.stop_gradient(target)


def td_errors(batch: Transition, critics: Sequence[Critic], target: tf.Tensor) -> list[tf.Tensor]:
    """Q(s, a) − y of each critic, `[batch] float32`."""
    return [critic(batch.observation, batch.action) - target for critic in critics]


def critic_loss(errors: Sequence[tf.Tensor]) -> tf.Tensor:
    """J_Q = ½ E[Σᵢ (Qᵢ(s, a) − y)²], a scalar (2018b, equation 5)."""
    return 0.5 * global_mean(tf.add_n([tf.square(error) for error in errors]))


def actor_loss(
    observation: tf.Tensor, critics: Sequence[Critic], sample: Sample, alpha: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """J_π = E[α log π(a | s) − min(Q₁, Q₂)(s, a)], a scalar (2018b, equation 9).

    a is a fresh action of the policy in s `[batch, obs]`; its log π `[batch]` is returned, too,
    because the loss of the temperature needs it.
    """
    action, log_pi = sample(observation)  # [batch, act], [batch]
    q = tf.minimum(*(critic(observation, action) for critic in critics))  # [batch]
    return global_mean(alpha * log_pi - q), log_pi


def alpha_loss(log_alpha: tf.Tensor, log_pi: tf.Tensor, target_entropy: float) -> tf.Tensor:
    """J_α = E[−log α (log π(a | s) + H̄)], a scalar (2018b, equation 18, with log α for α).

    The entropy is the mean of −log π `[batch]`. Where it is below the target H̄, α rises.
    """
    return -log_alpha * global_mean(tf.stop_gradient(log_pi + target_entropy))


def global_mean(values: tf.Tensor) -> tf.Tensor:
    """This replica's part of the mean over the global batch: its `values [rows]`, over all rows."""
    return tf.reduce_mean(values) / replicas()


def replicas() -> int:
    """How many replicas share the global batch; inside one of them."""
    return tf.distribute.get_replica_context().num_replicas_in_sync
