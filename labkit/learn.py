"""One gradient step, compiled, on whatever devices the strategy names."""

import tensorflow as tf

from labkit import devices, replay
from labkit.agent import SeededSacAgent


def make_update(agent: SeededSacAgent, layout: replay.Layout, strategy):
    """Compiles one gradient step: rows `[batch, width] float32` → losses and actor weights.

    Every replica takes its share of the one global batch, so that N replicas train on what one
    would (TF-Agents' `Learner` hands each replica a whole batch instead). With several hosts,
    each calls the update with the rows it drew itself, `batch` / hosts of them.

    Returns:
        A function of rows that returns `([critic, actor, alpha loss, log α] float32, weights)`,
        weights being all of the actor's parameters in one flat float32 vector. The losses are
        means over the global batch, as one device would show them.
    """
    here = strategy.num_replicas_in_sync // devices.hosts(strategy)[1]

    def share(rows):
        local = devices.replica_slice(rows, here)
        extra = agent.train(replay.unpack(local, layout)).extra
        return tf.stack([extra.critic_loss, extra.actor_loss, extra.alpha_loss])

    @tf.function(autograph=False)
    def update(rows):
        # TF-Agents divides each replica's sum by the global batch: the mean is their sum.
        losses = strategy.reduce(
            tf.distribute.ReduceOp.SUM, strategy.run(share, (rows,)), axis=None
        )
        return tf.concat([losses, [agent._log_alpha.read_value()]], 0), flat_weights(agent)

    return update


def flat_weights(agent) -> tf.Tensor:
    """All parameters of the actor as one flat float32 vector, kernels and biases in layer order."""
    return tf.concat([tf.reshape(v, [-1]) for v in agent._actor_network.variables], axis=0)
