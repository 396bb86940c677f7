"""labkit's Ray executor with one rollout worker; see `run_labkit.configure`."""

import argparse
import contextlib
import json
import tempfile
import threading
import time
from pathlib import Path

import attrs
import psutil

import labkit
from benchmarks.run_labkit import configure
from benchmarks.stopwatch import worker
from labkit.training.run import open_run


def process_tree() -> dict[int, tuple[float, float]]:
    """CPU seconds and MiB of this process and of all its descendants, by process id.

    A page that n processes share counts 1/n in each (proportional set size), so that the sum is
    what the processes take together.
    """
    found = {}
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it has ended, or belongs to another user
            cpu, memory = process.cpu_times(), process.memory_full_info()
            found[process.pid] = (cpu.user + cpu.system, memory.pss / 2**20)
    return found


class UsageRecorder(threading.Thread):
    """Records `process_tree` when metrics.csv reaches certain gradient steps.

    The learner writes it in its own process, so `on_metrics` is not called in this one.
    """

    def __init__(self, file: Path, steps: tuple[int, ...]):
        super().__init__(daemon=True)
        self.file, self.steps = file, steps
        self.recorded: dict[int, dict[int, tuple[float, float]]] = {}

    def run(self) -> None:
        """Polls the file until every step was recorded."""
        while len(self.recorded) < len(self.steps):
            # Read as text: parsing a table twenty times a second would distort the measurement.
            rows = self.file.read_text().splitlines()[1:] if self.file.exists() else []
            reached = max((int(row.split(",")[1]) for row in rows if row.count(",") > 2), default=0)
            for step in self.steps:
                if step not in self.recorded and reached >= step:
                    self.recorded[step] = process_tree()
            time.sleep(0.05)


def main(options: argparse.Namespace) -> dict[str, float]:
    """Trains; computes the rate from the wall times of two rows of metrics."""
    config = attrs.evolve(
        configure(options.warmup, options.iterations, options.initial), num_eval_episodes=1
    )
    first, last = options.warmup, options.warmup + options.iterations
    with tempfile.TemporaryDirectory() as folder:
        run = open_run(folder, config)
        usage = UsageRecorder(run.path / "metrics.csv", (first, last))
        usage.start()
        labkit.train_on_ray(config, 1, run=run)
        usage.join(10)
        table = run.metrics()
        rows = table[table.critic_loss.notna()].set_index("gradient_step")
        summary = json.loads((run.path / "ray.json").read_text())
    seconds = rows.wall_seconds[last] - rows.wall_seconds[first]
    env_steps = rows.env_step[last] - rows.env_step[first]
    cpu = [sum(seconds for seconds, _ in usage.recorded[step].values()) for step in (first, last)]
    return {
        "rate": options.iterations / seconds,
        "wall_ms": 1e3 * seconds / options.iterations,
        "cpu_ms": 1e3 * (cpu[1] - cpu[0]) / options.iterations,
        "peak_mib": sum(mib for _, mib in usage.recorded[last].values()),
        "samples_per_insert": config.batch_size * options.iterations / float(env_steps),
        "staleness_median": summary["staleness_median"],
        "staleness_max": summary["staleness_max"],
    }


if __name__ == "__main__":
    worker(main)
