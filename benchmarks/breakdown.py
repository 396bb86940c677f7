"""Time of each component of labkit's iteration, in the training loop and alone.

This runs in a separate process, because its probes slow the loop down a little. `probe` wraps
functions that `labkit.training.local` calls. If one of them moves, `probe` must follow; `main`
raises an error that names every probe that was never called.
"""

import argparse
import concurrent.futures
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

import labkit
from benchmarks.run_labkit import configure, time_training
from benchmarks.stopwatch import per_call_ms, worker
from labkit.environments.make import raw_env
from labkit.replay.transitions import Transition
from labkit.sac.actor import ActorPolicy
from labkit.sac.update import make_update
from labkit.training import components, learner

ENGINE, ENVIRONMENT, WRAPPERS = "physics engine", "environment's Python", "wrappers"
POLICY, WRITING, WAITING = "policy", "writing", "waiting for the gradient step"
SAMPLING, GRADIENT = "sampling", "gradient step"  # in the loop, a gradient step includes sampling
ACTS = (POLICY, ENGINE, ENVIRONMENT, WRAPPERS, WRITING, WAITING)  # in the acting thread


class Probes:
    """Adds up the wall time spent in wrapped functions, by name."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: defaultdict[str, int] = defaultdict(int)

    def clear(self) -> None:
        """Resets all sums; called after the warm-up, which includes compilation."""
        self.seconds.clear()
        self.calls.clear()

    def wrap(self, name: str, function: Callable) -> Callable:
        """Returns the function with its calls timed under `name`."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[name] += time.perf_counter() - start
                self.calls[name] += 1

        return timed


def probe(parts: components.TrainingComponents, probes: Probes) -> None:
    """Wraps the functions that one iteration calls; `split` subtracts nested times."""
    env, inner = parts.collect_env, raw_env(parts.collect_env)
    client = inner._pybullet_client
    client.stepSimulation = probes.wrap(ENGINE, client.stepSimulation)
    inner.step, inner.reset = (probes.wrap("raw", f) for f in (inner.step, inner.reset))
    env.step, env.reset = (probes.wrap("env", f) for f in (env.step, env.reset))
    parts.replay.write = probes.wrap(WRITING, parts.replay.write)
    ActorPolicy.__call__ = probes.wrap(POLICY, ActorPolicy.__call__)
    result = concurrent.futures.Future.result
    concurrent.futures.Future.result = probes.wrap(WAITING, result)
    make_steps = learner.make_steps

    def timed_steps(*args: Any) -> tuple[Callable, Any]:
        steps, begun = make_steps(*args)
        return probes.wrap(GRADIENT, steps), begun

    learner.make_steps = timed_steps


def split(probes: Probes, iterations: int, wall_ms: float) -> dict[str, float]:
    """Milliseconds of one iteration by component; the rest of the acting thread comes last."""
    ms = {name: 1e3 * seconds / iterations for name, seconds in probes.seconds.items()}
    ms |= {ENVIRONMENT: ms["raw"] - ms[ENGINE], WRAPPERS: ms["env"] - ms["raw"]}
    found = {name: ms[name] for name in (*ACTS, GRADIENT)}
    return {**found, "the rest": wall_ms - sum(found[name] for name in ACTS)}


def calls_of(
    parts: components.TrainingComponents, config: labkit.SACConfig
) -> dict[str, tuple[Callable[[], object], int]]:
    """One call of each component, compiled and with full buffers; and how many calls to time."""
    env, policy = parts.collect_env, ActorPolicy(parts.agent, seed=0)
    step = env.reset()
    observation, action = step.observation, policy(step.observation)
    transition = Transition(observation, action, 0.0, 1.0, observation)
    actions = np.random.default_rng(0).uniform(-1, 1, (10**5, len(action))).astype(np.float32)
    choose = iter(actions)
    batches = iter(parts.replay.dataset(config.rows_drawn))
    update = make_update(parts.agent, parts.layout, parts.strategy, config.reflection)
    rows, _ = next(batches)
    for _ in range(20):  # compiles the update and consumes the prefetched batches
        update(rows), next(batches)
    return {
        POLICY: (lambda: policy(observation), 200),
        "environment": (lambda: env.step(next(choose)), 100),
        WRITING: (lambda: parts.replay.write(transition), 200),
        SAMPLING: (lambda: next(batches), 50),
        GRADIENT: (lambda: update(rows), 50),
    }


def main(options: argparse.Namespace) -> dict[str, Any]:
    """Measures the components alone and in the loop, and the loop's speed with probes.

    Raises:
        RuntimeError: a probe was never called.
    """
    config = configure(options.warmup, options.iterations, options.initial)
    parts = components.build(config)
    components.warm_up(config, parts)
    with labkit.quiet():
        calls = calls_of(parts, config)
        alone = {part: per_call_ms(call, count) for part, (call, count) in calls.items()}
    probes = Probes()
    probe(parts, probes)
    timed = time_training(parts, options.warmup, options.iterations, probes.clear)
    parts.replay.close()
    uncalled = [name for name in (ENGINE, POLICY, WRITING, GRADIENT) if not probes.calls[name]]
    if uncalled:
        raise RuntimeError(f"labkit.training.local no longer calls: {', '.join(uncalled)}")
    in_loop = split(probes, options.iterations, timed["wall_ms"])
    return {"alone": alone, "in_loop": in_loop, **timed}


if __name__ == "__main__":
    worker(main)
