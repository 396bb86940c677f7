"""labkit's local executor, `labkit.train`: with its defaults, or with the work of the peers."""

import argparse
import contextlib
import tempfile
from collections.abc import Callable
from typing import Any

import labkit
from benchmarks.stopwatch import Stopwatch, worker
from labkit.training import components
from labkit.training.local import LocalTraining
from labkit.training.progress import StopRequest
from labkit.training.run import open_run


class EnoughError(Exception):
    """Enough iterations were timed."""


def configure(
    warmup: int, iterations: int, initial: int, same_work: bool = False
) -> labkit.SACConfig:
    """The defaults for the Minitaur, without evaluations.

    With `same_work` each iteration does what it does in the peers: plain critics, a gradient step
    of the actor too, and a batch drawn from all transitions alike, without reflections. The run
    writes a row of metrics at the end of the warm-up and of the timed iterations.
    """
    plain = {
        "critic_layer_norm": False,
        "actor_update_period": 1,
        "recent_transitions": 0,
        "symmetry_augmentation": False,
    }
    return labkit.SACConfig(
        num_iterations=warmup + iterations + 1,
        initial_collect_steps=initial,
        log_interval=warmup,
        eval_interval=0,
        interim_eval_episodes=1,
        policy_save_interval=0,
        collect_steps_per_iteration=1,
        **(plain if same_work else {}),
    )


def time_training(
    parts: components.TrainingComponents,
    warmup: int,
    iterations: int,
    at_start: Callable[[], None] = lambda: None,
    same_work: bool = False,
) -> dict[str, float]:
    """Trains until enough iterations were timed. The evaluation before them is not timed.

    Args:
        parts: training components with a filled table; they stay open and may be used again.
        warmup: iterations before the timed ones.
        iterations: timed iterations, a multiple of `warmup`.
        at_start: called when the timing starts.
        same_work: what `configure` got for these components.

    Returns:
        See `Stopwatch.result`.
    """
    config = configure(warmup, iterations, initial=1, same_work=same_work)
    stopwatch = Stopwatch(warmup, iterations, at_start)

    def tick(row: dict[str, Any]) -> None:
        if stopwatch.tick(int(row["gradient_step"])):
            raise EnoughError

    with tempfile.TemporaryDirectory() as folder:
        # Each timing is a new run.
        parts.agent.train_step_counter.assign(0)
        with contextlib.suppress(EnoughError):
            run = open_run(folder, config)
            run.on_metrics = tick
            LocalTraining(config, run, parts).execute(StopRequest())
    return stopwatch.result()


def main(options: argparse.Namespace) -> dict[str, float]:
    """Times the loop."""
    same = options.same_work
    config = configure(options.warmup, options.iterations, options.initial, same)
    parts = components.build(config)
    components.warm_up(config, parts)
    try:
        return time_training(parts, options.warmup, options.iterations, same_work=same)
    finally:
        parts.replay.close()


if __name__ == "__main__":
    worker(main)
