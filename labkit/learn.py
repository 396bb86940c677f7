"""One gradient step, compiled, on whatever devices the strategy names."""

import tensorflow as tf

from labkit import replay
from labkit.agent import SeededSacAgent


def make_update(agent: SeededSacAgent, layout: replay.Layout, strategy):
    """Compiles one gradient step: rows `[batch, width] float32` → losses and actor weights.

    Every replica takes its share of the one global batch, so that N replicas train on what one
    would (TF-Agents' `Learner` hands each replica a whole batch instead).

    Returns:
        A function of rows that returns `([critic, actor, alpha loss, log α] float32, weights)`,
        weights being all of the actor's parameters in one flat float32 vector.
    """
    replicas = strategy.num_replicas_in_sync

    def share(rows):
        index = tf.distribute.get_replica_context().replica_id_in_sync_group
        local = tf.split(rows, replicas)[index] if replicas > 1 else rows
        extra = agent.train(replay.unpack(local, layout)).extra
        return extra.critic_loss, extra.actor_loss, extra.alpha_loss

    @tf.function(autograph=False)
    def update(rows):
        losses = strategy.run(share, args=(rows,))
        totals = [strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None) for loss in losses]
        return tf.stack([*totals, agent._log_alpha.read_value()]), flat_weights(agent)

    return update


def flat_weights(agent) -> tf.Tensor:
    """All parameters of the actor as one flat float32 vector, kernels and biases in layer order."""
    return tf.concat([tf.reshape(v, [-1]) for v in agent._actor_network.variables], axis=0)
