"""Gradient steps, compiled, on the devices of any strategy."""

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from labkit.replay.transitions import Layout, split
from labkit.sac.agent import SeededSacAgent, create_moments
from labkit.strategy import replica_slice
from labkit.symmetry import Reflection

if TYPE_CHECKING:
    from tensorflow.types.experimental import GenericFunction as TensorFlowFunction

Metrics = dict[str, tf.Tensor]  # scalars by name


def make_update(
    agent: SeededSacAgent,
    layout: Layout,
    strategy: tf.distribute.Strategy,
    reflection: Reflection | None = None,
) -> "TensorFlowFunction":
    """Compiles one gradient step on a batch of rows.

    Every replica takes its share of the one global batch, so that N replicas train on what one
    device would (TF-Agents' `Learner` gives each replica a whole batch instead). With a
    `reflection`, every second row is reflected before the step.

    Returns:
        A function of rows `[batch, width] float32` that returns the metrics by name: losses and
        entropy as means over the global batch, and α after the step. In a step that is not one of
        the actor's (`agent.actor_update_period`), what belongs to the actor is NaN.
    """
    replicas = strategy.num_replicas_in_sync
    create_moments(agent, strategy)

    def on_replicas(rows: tf.Tensor, train_actor: bool) -> Metrics:
        def train_share(rows: tf.Tensor) -> Metrics:
            return agent.gradient_step(split(replica_slice(rows, replicas), layout), train_actor)

        shares = strategy.run(train_share, (rows,))
        summed = tf.distribute.ReduceOp.SUM
        return {name: strategy.reduce(summed, share, axis=None) for name, share in shares.items()}

    @tf.function(autograph=False)
    def update(rows: tf.Tensor) -> Metrics:
        rows = tf.debugging.check_numerics(rows, "batch")
        if reflection:
            rows = every_second_reflected(rows, reflection)
        if agent.actor_update_period == 1:
            metrics = on_replicas(rows, True)
        else:
            due = tf.equal(agent.train_step_counter % agent.actor_update_period, 0)
            metrics = tf.cond(
                due, lambda: on_replicas(rows, True), lambda: on_replicas(rows, False)
            )
        return {**metrics, "alpha": tf.exp(agent._log_alpha.read_value())}

    return update


def every_second_reflected(rows: tf.Tensor, reflection: Reflection) -> tf.Tensor:
    """The rows `[batch, width] float32`; rows 1, 3, 5 and so on are reflected."""
    order, signs = reflection.of_row
    odd = tf.range(tf.shape(rows)[0]) % 2 == 1
    return tf.where(odd[:, None], tf.gather(rows, order, axis=1) * signs, rows)


def make_steps(
    agent: SeededSacAgent, update: "TensorFlowFunction", batches: Any
) -> tuple["TensorFlowFunction", tf.Variable]:
    """Compiles several gradient steps into one call, each on the next batch.

    Entering and leaving TensorFlow takes about a fifth of a step of the Minitaur's networks.

    Args:
        agent: that of `update`.
        update: from `make_update`.
        batches: an iterator over a `tf.data.Dataset` of rows `[batch, width] float32` and `info`.

    Returns:
        A function of a number of steps (int32) that returns, for each metric, its sum and how many
        steps had it (not NaN) `[2] float32`; and the newest weights, see `flat_weights`. And a
        variable that counts the steps that a call has started, for a call that fails.
    """
    started = tf.Variable(0, trainable=False)
    names = update.get_concrete_function(batches.element_spec[0]).structured_outputs

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.int32)])
    def steps(count: tf.Tensor) -> tuple[Metrics, tf.Tensor]:
        def step(done: tf.Tensor, totals: Metrics) -> tuple[tf.Tensor, Metrics]:
            with tf.control_dependencies([started.assign(done + 1)]):
                rows, _ = next(batches)
                metrics = update(rows)
            return done + 1, {name: totals[name] + _counted(metrics[name]) for name in totals}

        begin = (0, {name: tf.zeros([2]) for name in names})
        _, totals = tf.while_loop(lambda done, _: done < count, step, begin, parallel_iterations=1)
        with tf.control_dependencies(list(totals.values())):
            return totals, flat_weights(agent)

    return steps, started


def _counted(value: tf.Tensor) -> tf.Tensor:
    """A metric and 1, or 0 and 0 where the step did not have it."""
    missing = tf.math.is_nan(value)
    return tf.where(missing, tf.zeros([2]), tf.stack([value, 1.0]))


def flat_weights(agent: SeededSacAgent) -> tf.Tensor:
    """All parameters of the actor as one flat float32 vector, kernels and biases in layer order."""
    return tf.concat([tf.reshape(v, [-1]) for v in agent._actor_network.variables], axis=0)
