"""Gradient steps, compiled, on the devices of any strategy."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import tensorflow as tf

from labkit.replay.transitions import Layout, unpack
from labkit.sac.agent import SeededSacAgent, create_moments
from labkit.strategy import replica_slice
from labkit.symmetry import Reflection

if TYPE_CHECKING:
    from tensorflow.types.experimental import GenericFunction as TensorFlowFunction
    from tf_agents.trajectories import trajectory


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

    In a step that is not one of the actor's (`agent.actor_update_period`), the actor loss and the
    alpha loss are not computed, and 0 is returned for them.

    Returns:
        A function of rows `[batch, width] float32` that returns `[critic loss, actor loss,
        alpha loss, log α] float32` and all of the actor's parameters in one flat float32 vector.
        The losses are means over the global batch, as one device would report them.
    """
    replicas = strategy.num_replicas_in_sync
    create_moments(agent, strategy)

    def train_all(batch: "trajectory.Transition") -> tf.Tensor:
        extra = agent.train(batch).extra
        return tf.stack([extra.critic_loss, extra.actor_loss, extra.alpha_loss])

    def train_critics(batch: "trajectory.Transition") -> tf.Tensor:
        return tf.stack([agent.train_critics(batch), 0.0, 0.0])

    def on_replicas(train: Callable[..., tf.Tensor], rows: tf.Tensor) -> tf.Tensor:
        def train_share(rows: tf.Tensor) -> tf.Tensor:
            return train(unpack(replica_slice(rows, replicas), layout))

        # TF-Agents divides each replica's sum by the global batch: their sum is the mean.
        shares = strategy.run(train_share, (rows,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, shares, axis=None)

    @tf.function(autograph=False)
    def update(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if reflection:
            rows = every_second_reflected(rows, reflection)
        if agent.actor_update_period == 1:
            losses = on_replicas(train_all, rows)
        else:
            due = tf.equal(agent.train_step_counter % agent.actor_update_period, 0)
            losses = tf.cond(
                due, lambda: on_replicas(train_all, rows), lambda: on_replicas(train_critics, rows)
            )
        return tf.concat([losses, [agent._log_alpha.read_value()]], 0), flat_weights(agent)

    return update


def every_second_reflected(rows: tf.Tensor, reflection: Reflection) -> tf.Tensor:
    """The rows `[batch, width] float32`; rows 1, 3, 5 and so on are reflected."""
    order, signs = reflection.of_row
    odd = tf.range(tf.shape(rows)[0]) % 2 == 1
    return tf.where(odd[:, None], tf.gather(rows, order, axis=1) * signs, rows)


def make_steps(
    agent: SeededSacAgent, update: "TensorFlowFunction", batches: Iterator[tf.Tensor]
) -> tuple[Callable[[int], tuple[tf.Tensor, tf.Tensor]], tf.Variable]:
    """Compiles several gradient steps into one call, each on the next batch.

    Entering and leaving TensorFlow takes about a fifth of a step of the Minitaur's networks.
    `update` is from `make_update`.
    `batches` iterates over a `tf.data.Dataset` of rows `[batch, width] float32`.

    Returns:
        A function of a number of steps (int32) that returns the sum of their losses with the last
        log α, and the newest weights, both in the form that `update` returns them; and a variable
        that counts the steps that a call has started, for a call that fails.
    """
    started = tf.Variable(0, trainable=False)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.int32)])
    def steps(count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def step(
            done: tf.Tensor, summed: tf.Tensor, log_alpha: tf.Tensor, weights: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            with tf.control_dependencies([started.assign(done + 1)]):
                losses, weights = update(next(batches))
            return done + 1, summed + losses[:3], losses[3], weights

        begin = (0, tf.zeros([3]), tf.zeros([]), flat_weights(agent))
        _, summed, log_alpha, weights = tf.while_loop(
            lambda done, *_: done < count, step, begin, parallel_iterations=1
        )
        return tf.concat([summed, [log_alpha]], 0), weights

    return steps, started


def flat_weights(agent: SeededSacAgent) -> tf.Tensor:
    """All parameters of the actor as one flat float32 vector, kernels and biases in layer order."""
    return tf.concat([tf.reshape(v, [-1]) for v in agent._actor_network.variables], axis=0)
