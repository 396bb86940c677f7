"""Gradient steps, compiled, on whatever devices the strategy names."""

from collections.abc import Callable, Iterator

import tensorflow as tf

from labkit.replay.transitions import Layout, unpack
from labkit.sac.agent import SeededSacAgent
from labkit.strategy import hosts, replica_slice


def make_update(agent: SeededSacAgent, layout: Layout, strategy):
    """Compiles one gradient step: rows `[batch, width] float32` → losses and actor weights.

    Every replica takes its share of the one global batch, so that N replicas train on what one
    would (TF-Agents' `Learner` hands each replica a whole batch instead). With several hosts,
    each calls the update with the rows it drew itself, `batch` / hosts of them.

    Returns:
        A function of rows that returns `([critic, actor, alpha loss, log α] float32, weights)`,
        weights being all of the actor's parameters in one flat float32 vector. The losses are
        means over the global batch, as one device would show them.
    """
    here = strategy.num_replicas_in_sync // hosts(strategy)[1]

    def share(rows):
        local = replica_slice(rows, here)
        extra = agent.train(unpack(local, layout)).extra
        return tf.stack([extra.critic_loss, extra.actor_loss, extra.alpha_loss])

    @tf.function(autograph=False)
    def update(rows):
        # TF-Agents divides each replica's sum by the global batch: the mean is their sum.
        losses = strategy.reduce(
            tf.distribute.ReduceOp.SUM, strategy.run(share, (rows,)), axis=None
        )
        return tf.concat([losses, [agent._log_alpha.read_value()]], 0), flat_weights(agent)

    return update


def make_steps(
    agent, update: Callable, batches: Iterator[tf.Tensor]
) -> tuple[Callable, tf.Variable]:
    """Compiles several gradient steps into one call, each on the next batch.

    Entering TensorFlow and leaving it costs about a fifth of a step of the Minitaur's networks.

    Args:
        agent: the agent that `update` trains.
        update: from `make_update`, compiled before: a loop cannot make the optimizers' variables.
        batches: an iterator over a `tf.data.Dataset` of rows `[batch, width] float32`.

    Returns:
        A function of a number of steps (int32) that returns the sum of their losses, with the last
        log α, and the newest weights; both as `update` gives them. And a variable that counts
        the steps that a call began, for one that fails.
    """
    begun = tf.Variable(0, trainable=False)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.int32)])
    def steps(count):
        def step(done, summed, log_alpha, weights):
            with tf.control_dependencies([begun.assign(done + 1)]):
                losses, weights = update(next(batches))
            return done + 1, summed + losses[:3], losses[3], weights

        begin = (0, tf.zeros([3]), tf.zeros([]), flat_weights(agent))
        _, summed, log_alpha, weights = tf.while_loop(
            lambda done, *_: done < count, step, begin, parallel_iterations=1
        )
        return tf.concat([summed, [log_alpha]], 0), weights

    return steps, begun


def flat_weights(agent) -> tf.Tensor:
    """All parameters of the actor as one flat float32 vector, kernels and biases in layer order."""
    return tf.concat([tf.reshape(v, [-1]) for v in agent._actor_network.variables], axis=0)
