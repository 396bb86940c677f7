"""A lower bound for the time of one iteration on this machine.

One iteration is one env step and one gradient step. The bound counts two costs: the physics engine
(PyBullet's computation in one env step, without Python) and the matrix products of an update with
labkit's defaults (operations from the layer sizes, at the measured rate of one core for matrices of
the hidden layers' size). It assumes that the cores share this work perfectly, except that one
robot's physics runs on one core:

    floor = max(physics, (physics + arithmetic) / cores)

Python, TensorFlow's dispatch, activations, Adam, sampling and copying count as free. No program
reaches the bound; the distance to it is the most that optimisation could gain.
"""

import argparse
import itertools
import os
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.stopwatch import worker
from labkit.config import SACConfig

OBSERVATION, ACTION, BATCH, HIDDEN = 28, 8, 256, (256, 256)


def update_flops(
    batch: int,
    observation: int,
    action: int,
    actor: Sequence[int],
    critic: Sequence[int],
    actor_update_period: int = 1,
) -> int:
    """Counts the floating-point operations of the matrix products in one SAC update, on average.

    A product `[batch, m] × [m, n]` takes 2·batch·m·n operations. Forward passes and gradients with
    respect to weights (`w`) and inputs (`x`) count. First layers need no `x`, with one exception:
    the actor loss differentiates the critics with respect to the actions. There are two critics:

        critic loss   actor, 2 targets, 2 critics forward; 2 critics w and x
        actor loss    actor, 2 critics forward; 2 critics x; actor w and x
        α loss        actor forward

    Args:
        batch: transitions in a batch.
        observation: values in an observation.
        action: values in an action.
        actor: hidden units of the actor, layer by layer.
        critic: hidden units of a critic, layer by layer.
        actor_update_period: updates of the critics for each of actor and α.
    """
    actor_sizes = [observation, *actor, 2 * action]
    critic_sizes = [observation + action, *critic, 1]
    pi, q = _products(actor_sizes), _products(critic_sizes)
    pi_x = pi - actor_sizes[0] * actor_sizes[1]
    q_x = q - critic_sizes[0] * critic_sizes[1]
    critic_loss = pi + 2 * q + 2 * q + 2 * (q + q_x)
    actor_loss = pi + 2 * q + 2 * (q_x + action * critic_sizes[1]) + pi + pi_x
    return 2 * batch * (critic_loss + (actor_loss + pi) // actor_update_period)


def _products(sizes: Sequence[int]) -> int:
    """Multiplications in the forward pass of one sample."""
    return sum(m * n for m, n in itertools.pairwise(sizes))


def floor_ms(physics_ms: float, flops: int, rate: float, cores: int) -> float:
    """Returns the floor in ms; `rate` is floating-point operations per second of one core."""
    arithmetic_ms = 1e3 * flops / rate
    return max(physics_ms, (physics_ms + arithmetic_ms) / cores)


def matrix_rate(rounds: int = 30, chain: int = 50) -> float:
    """Operations per second of one core on `[256, 256] × [256, 256]` float32: the best round.

    Args:
        rounds: timed calls.
        chain: matrix products in one call.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    size = HIDDEN[0]
    weights = np.linalg.qr(np.random.default_rng(0).normal(size=(size, size)))[0]

    @tf.function
    def products(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
        for _ in range(chain):  # unrolled, so that the cost of dispatch is spread over all
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
    """Median milliseconds of PyBullet's computation in one Minitaur env step."""
    import labkit
    from labkit.environments.make import raw_env

    env = labkit.make_environment("MinitaurBulletEnv-v0", seed=0)
    inner = raw_env(env)
    client, spent = inner._pybullet_client, []
    simulate = client.stepSimulation

    def timed() -> None:
        start = time.perf_counter()
        simulate()
        spent.append(time.perf_counter() - start)

    client.stepSimulation = timed
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, ACTION)).astype(np.float32)
    # Resets simulate, too, but a few hundred of their calls hardly change the median.
    env.reset()
    for action in actions:
        env.step(action)  # resets itself after a termination
    return 1e3 * float(np.median(spent)) * inner._action_repeat


def main(options: argparse.Namespace) -> dict[str, float]:
    """Measures physics and arithmetic, and computes the floor."""
    physics = physics_ms()
    rate = matrix_rate()
    period = SACConfig().actor_update_period
    flops = update_flops(BATCH, OBSERVATION, ACTION, HIDDEN, HIDDEN, period)
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
