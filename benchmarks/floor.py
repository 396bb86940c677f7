"""The time that one iteration cannot go below on this machine, from three measurements.

One iteration is one env step and one gradient step. Counted are the physics engine (what PyBullet
computes in one env step, without any Python around it) and the arithmetic of the update's matrix
products (counted from the layer sizes) at the rate at which one core multiplies matrices of the
hidden layers' size. Nothing else costs anything, the cores share the work perfectly, and only one
robot's physics cannot be shared:

    floor = max(physics, (physics + arithmetic) / cores)

Python, TensorFlow's dispatch, activations, Adam, sampling and copying are free in it. No program
reaches it; it says how much of an iteration is there to be won at all.
"""

import itertools
import os
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.stopwatch import worker

OBSERVATION, ACTION, BATCH, HIDDEN = 28, 8, 256, (256, 256)


def update_flops(
    batch: int, observation: int, action: int, actor: Sequence[int], critic: Sequence[int]
) -> int:
    """Floating-point operations in the matrix products of one SAC update, twin critics.

    A product `[batch, m] × [m, n]` costs 2·batch·m·n. Forward passes, gradients with respect to
    weights (`w`) and to inputs (`x`), which no first layer needs, except that the actor's loss
    goes through the critics into the actions:

        critic loss   actor, 2 targets, 2 critics forward; 2 critics w and x
        actor loss    actor, 2 critics forward; 2 critics x; actor w and x
        α loss        actor forward

    Args:
        batch: transitions in a batch.
        observation: values in an observation.
        action: values in an action.
        actor: hidden units of the actor, layer by layer.
        critic: hidden units of a critic, layer by layer.
    """
    actor_sizes = [observation, *actor, 2 * action]
    critic_sizes = [observation + action, *critic, 1]
    pi, q = _products(actor_sizes), _products(critic_sizes)
    pi_x = pi - actor_sizes[0] * actor_sizes[1]
    q_x = q - critic_sizes[0] * critic_sizes[1]
    critic_loss = pi + 2 * q + 2 * q + 2 * (q + q_x)
    actor_loss = pi + 2 * q + 2 * (q_x + action * critic_sizes[1]) + pi + pi_x
    return 2 * batch * (critic_loss + actor_loss + pi)


def _products(sizes: Sequence[int]) -> int:
    """Multiplications of one sample's forward pass."""
    return sum(m * n for m, n in itertools.pairwise(sizes))


def floor_ms(physics_ms: float, flops: int, rate: float, cores: int) -> float:
    """The floor; `rate` in floating-point operations per second of one core."""
    arithmetic_ms = 1e3 * flops / rate
    return max(physics_ms, (physics_ms + arithmetic_ms) / cores)


def matrix_rate(rounds: int = 30, chain: int = 50) -> float:
    """Operations per second of one core on `[256, 256] × [256, 256]` float32: the best round."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    size = HIDDEN[0]
    weights = np.linalg.qr(np.random.default_rng(0).normal(size=(size, size)))[0]

    @tf.function
    def products(x, w):
        for _ in range(chain):  # unrolled: one call's dispatch is spread over all of them
            x = tf.matmul(x, w)
        return x

    x, w = tf.ones([BATCH, size]), tf.constant(weights, tf.float32)
    products(x, w)
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        products(x, w)
        best = min(best, time.perf_counter() - start)
    return 2 * BATCH * size * size * chain / best


def physics_ms(steps: int = 400) -> float:
    """Milliseconds that PyBullet computes in one Minitaur env step, by the median."""
    import labkit
    from labkit.environments.seeding import raw_env

    env = labkit.make_environment("MinitaurBulletEnv-v0", seed=0)
    inner = raw_env(env)
    client, spent = inner._pybullet_client, []
    simulate = client.stepSimulation

    def timed():
        start = time.perf_counter()
        simulate()
        spent.append(time.perf_counter() - start)

    client.stepSimulation = timed
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, ACTION)).astype(np.float32)
    # Resets simulate, too: the median does not notice their few hundred calls.
    env.reset()
    for action in actions:
        env.step(action)  # begins a new episode by itself after a fall
    return 1e3 * float(np.median(spent)) * inner._action_repeat


def main(options) -> dict[str, float]:
    """Measures what the floor is made of."""
    physics = physics_ms()
    rate = matrix_rate()
    flops = update_flops(BATCH, OBSERVATION, ACTION, HIDDEN, HIDDEN)
    cores = len(os.sched_getaffinity(0))
    return {
        "physics_ms": physics,
        "flops": flops,
        "flops_per_second": rate,
        "arithmetic_ms": 1e3 * flops / rate,
        "cores": cores,
        "floor_ms": floor_ms(physics, flops, rate, cores),
    }


if __name__ == "__main__":
    worker(main)
