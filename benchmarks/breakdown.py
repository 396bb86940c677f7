"""Where labkit's time goes: each part alone, and in the loop, where everything overlaps.

This is a process of its own: the probes cost a little, so the throughput is measured without them.
They wrap the functions of `labkit.training.local` that `probe` lists; if one is moved, this must
follow, and `main` names each that was never called.
"""

import concurrent.futures
import time
from collections import defaultdict
from collections.abc import Callable

import numpy as np

import labkit
from benchmarks.contender_labkit import configure, time_training
from benchmarks.stopwatch import per_call_ms, worker
from labkit.environments.seeding import raw_env
from labkit.sac.policies import ActorPolicy
from labkit.sac.update import make_steps, make_update
from labkit.training import components as labkit_parts

ENGINE, ENVIRONMENT, WRAPPERS = "physics engine", "environment's Python", "wrappers"
POLICY, WRITING, WAITING = "policy", "writing", "waiting for the gradient step"
SAMPLING, GRADIENT = "sampling", "gradient step"  # in the loop, the second waits for the first
ACTS = (POLICY, ENGINE, ENVIRONMENT, WRAPPERS, WRITING, WAITING)  # the thread that acts
LEARNS = (GRADIENT,)  # the thread that learns


class Probes:
    """Adds up the wall time that passes within wrapped functions, by name."""

    def __init__(self):
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: defaultdict[str, int] = defaultdict(int)

    def clear(self) -> None:
        """Forgets what was added up: the warm-up compiled."""
        self.seconds.clear()
        self.calls.clear()

    def wrap(self, name: str, function: Callable) -> Callable:
        """The same function, timed."""

        def timed(*args, **kwargs):
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[name] += time.perf_counter() - start
                self.calls[name] += 1

        return timed


def probe(parts, probes: Probes) -> None:
    """Wraps what one iteration passes through; nested parts are told apart in `split`."""
    env, inner = parts.collect_env, raw_env(parts.collect_env)
    client = inner._pybullet_client
    client.stepSimulation = probes.wrap(ENGINE, client.stepSimulation)
    inner.step, inner.reset = (probes.wrap("raw", f) for f in (inner.step, inner.reset))
    env.step, env.reset = (probes.wrap("env", f) for f in (env.step, env.reset))
    parts.replay.write = probes.wrap(WRITING, parts.replay.write)
    ActorPolicy.__call__ = probes.wrap(POLICY, ActorPolicy.__call__)
    result = concurrent.futures.Future.result
    concurrent.futures.Future.result = probes.wrap(WAITING, result)
    make_steps = make_steps

    def timed_steps(*args):
        steps, begun = make_steps(*args)
        return probes.wrap(GRADIENT, steps), begun

    make_steps = timed_steps


def split(probes: Probes, iterations: int, wall_ms: float) -> dict[str, float]:
    """Milliseconds of one iteration by part; the rest of the acting thread comes last."""
    ms = {name: 1e3 * seconds / iterations for name, seconds in probes.seconds.items()}
    parts = {
        **ms,
        ENVIRONMENT: ms["raw"] - ms[ENGINE],
        WRAPPERS: ms["env"] - ms["raw"],
    }
    parts = {name: parts[name] for name in (*ACTS, *LEARNS)}
    return {**parts, "the rest": wall_ms - sum(parts[name] for name in ACTS)}


def alone(parts, config) -> dict[str, float]:
    """Milliseconds of one call of each part while nothing else runs."""
    env, policy = parts.collect_env, ActorPolicy(parts.agent, seed=0)
    step = env.reset()
    observation, action = step.observation, policy(step.observation)
    actions = np.random.default_rng(0).uniform(-1, 1, (10**5, len(action))).astype(np.float32)
    choose = iter(actions)
    batches = iter(parts.replay.dataset(config.batch_size))
    update = make_update(parts.agent, parts.layout, parts.strategy)
    rows = next(batches)
    for _ in range(20):  # traced, and past the batches that were fetched ahead
        update(rows), next(batches)
    return {
        POLICY: per_call_ms(lambda: policy(observation), 200),
        "environment": per_call_ms(lambda: env.step(next(choose)), 100),
        WRITING: per_call_ms(
            lambda: parts.replay.write(observation, action, 0.0, 1.0, observation), 200
        ),
        SAMPLING: per_call_ms(lambda: next(batches), 50),
        GRADIENT: per_call_ms(lambda: update(rows), 50),
    }


def main(options) -> dict:
    """Both columns, and the iterations per second with the probes on."""
    config = configure(options.warmup, options.iterations, options.initial)
    parts = labkit_parts.build(config)
    labkit_parts.warm_up(config, parts)
    with labkit.quiet():
        one_by_one = alone(parts, config)
    probes = Probes()
    probe(parts, probes)
    timed = time_training(parts, options.warmup, options.iterations, probes.clear)
    parts.close()
    unseen = [name for name in (ENGINE, POLICY, WRITING, *LEARNS) if not probes.calls[name]]
    if unseen:
        raise RuntimeError(f"labkit.training.local no longer passes through: {', '.join(unseen)}")
    return {
        "alone": one_by_one,
        "in_loop": split(probes, options.iterations, timed["wall_ms"]),
        **timed,
    }


if __name__ == "__main__":
    worker(main)
