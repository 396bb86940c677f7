"""labkit's local executor, `labkit.train`, on the networks that the others train, too."""

import contextlib
import tempfile
from collections.abc import Callable

import attrs

import labkit
from benchmarks.stopwatch import Stopwatch, worker
from labkit.training import components as labkit_parts
from labkit.training import run_directory


class EnoughError(Exception):
    """Enough iterations were timed."""


@attrs.define
class TimedRun(run_directory.Run):
    """A run that looks at the clock with each row of metrics and ends when that is enough."""

    stopwatch: Stopwatch | None = None

    def log(self, **values: float) -> None:
        """Writes the row, as ever; then ticks."""
        super().log(**values)
        if self.stopwatch.tick(int(values["gradient_step"])):
            raise EnoughError


def configure(
    warmup: int, iterations: int, initial: int, layer_norm: bool = False
) -> labkit.SACConfig:
    """Notebook 03's defaults with plain critics, which is what the other contenders train.

    A row of metrics at the end of the warm-up and of the timed iterations.
    """
    return labkit.SACConfig(
        num_iterations=warmup + iterations + 1,
        initial_collect_steps=initial,
        log_interval=warmup,
        eval_interval=0,
        interim_eval_episodes=1,
        policy_save_interval=0,
        critic_layer_norm=layer_norm,
    )


def time_training(
    parts, warmup: int, iterations: int, at_start: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """Trains on ready parts until enough was timed; the evaluation before is not.

    Args:
        parts: with a filled table; they are left open and may be used again.
        warmup: iterations that are not counted.
        iterations: a multiple of `warmup`.
        at_start: called when the counting starts.
    """
    config = configure(warmup, iterations, initial=1)
    with tempfile.TemporaryDirectory() as folder:
        base = run_directory.open_run(folder, config)
        stopwatch = Stopwatch(warmup, iterations, at_start)
        run = TimedRun(path=base.path, config=config, stopwatch=stopwatch)
        with contextlib.suppress(EnoughError):
            labkit.train(config, run=run, parts=parts)
    return stopwatch.result()


def main(options) -> dict[str, float]:
    """Times the loop."""
    config = configure(options.warmup, options.iterations, options.initial, options.layer_norm)
    parts = labkit_parts.build(config)
    labkit_parts.warm_up(config, parts)
    try:
        return time_training(parts, options.warmup, options.iterations)
    finally:
        parts.close()


if __name__ == "__main__":
    worker(main)
