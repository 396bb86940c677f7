"""Gradient steps, compiled, on the devices of any strategy."""

from typing import Any

import tensorflow as tf
from tensorflow.types.experimental import GenericFunction as Compiled

from labkit.config import Reflection
from labkit.replay.transitions import Layout, split
from labkit.sac.agent import SeededSacAgent, trained_by
from labkit.strategy import replica_slice

Metrics = dict[str, tf.Tensor]  # scalars by name


def make_update(
    agent: SeededSacAgent,
    layout: Layout,
    strategy: tf.distribute.Strategy,
    reflection: Reflection | None = None,
) -> Compiled:
    """Compiles one gradient step on a batch of rows.

    Every replica takes its share of the one global batch, so that N replicas train on what one
    device would (TF-Agents' `Learner` gives each replica a whole batch instead). With a
    `reflection`, the batch is each row and its reflection.

    Returns a function of rows `[batch, width] float32` that returns the metrics by name: losses and
    entropy as means over the global batch, and α after the step. In a step without the actor (see
    `agent.actor_update_period`), what belongs to it is NaN.
    """
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():  # a function that creates variables, here Adam's, is compiled twice
        for optimizer, variables in trained_by(agent):
            optimizer._create_all_weights(variables)

    def train_share(rows: tf.Tensor, train_actor: bool) -> Metrics:
        return agent.gradient_step(split(replica_slice(rows, replicas), layout), train_actor)

    def distribute(rows: tf.Tensor, train_actor: bool) -> Metrics:
        shares = strategy.run(train_share, (rows, train_actor))
        summed = tf.distribute.ReduceOp.SUM
        return {name: strategy.reduce(summed, share, axis=None) for name, share in shares.items()}

    @tf.function(autograph=False)
    def update(rows: tf.Tensor) -> Metrics:
        rows = tf.debugging.check_numerics(rows, "batch")
        if reflection:
            order, signs = reflection.of_row
            rows = tf.concat([rows, tf.gather(rows, order, axis=1) * signs], axis=0)
        if agent.actor_update_period == 1:
            metrics = distribute(rows, True)
        else:
            due = tf.equal(agent.train_step_counter % agent.actor_update_period, 0)
            metrics = tf.cond(due, lambda: distribute(rows, True), lambda: distribute(rows, False))
        return {**metrics, "alpha": tf.exp(agent._log_alpha.read_value())}

    return update


def make_steps(
    agent: SeededSacAgent, update: Compiled, batches: Any
) -> tuple[Compiled, tf.Variable]:
    """Compiles several gradient steps into one call, each on the next batch.

    Entering and leaving TensorFlow takes about a fifth of a step of the Minitaur's networks.
    `update` is from `make_update`; `batches` is an iterator over a `tf.data.Dataset` of rows
    `[batch, width] float32` and `info`.

    Returns a function of a number of steps (int32) that returns, for each metric, its sum and how
    many steps had it (not NaN) `[2] float32`; and the newest weights, see `flat_weights`. And a
    variable that counts the steps that a call has started, for a call that fails.
    """
    started = tf.Variable(0, trainable=False)
    names = update.get_concrete_function(batches.element_spec[0]).structured_outputs

    def counted(value: tf.Tensor) -> tf.Tensor:  # [2]: its value and 1, or 0 and 0 without one
        return tf.where(tf.math.is_nan(value), tf.zeros([2]), tf.stack([value, 1.0]))

    def step(done: tf.Tensor, totals: Metrics) -> tuple[tf.Tensor, Metrics]:
        with tf.control_dependencies([started.assign(done + 1)]):
            rows, _ = next(batches)
            metrics = update(rows)
        return done + 1, {name: totals[name] + counted(metrics[name]) for name in totals}

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.int32)])
    def steps(count: tf.Tensor) -> tuple[Metrics, tf.Tensor]:
        begin = (0, {name: tf.zeros([2]) for name in names})
        _, totals = tf.while_loop(lambda done, _: done < count, step, begin, parallel_iterations=1)
        with tf.control_dependencies(list(totals.values())):
            return totals, flat_weights(agent)

    return steps, started


def flat_weights(agent: SeededSacAgent) -> tf.Tensor:
    """All parameters of the actor as one flat float32 vector, kernels and biases in layer order."""
    return tf.concat([tf.reshape(v, [-1]) for v in agent._actor_network.variables], axis=0)
