"""Speed and memory of labkit's loop as the table grows: 10 000, 100 000, 1 000 000 transitions.

The table is labkit's own, filled through its own writer with made-up rows (random numbers, which
Reverb cannot compress). Memory is read while one table grows through all sizes. For the speed,
tables of each size stand side by side and training takes turns on them, so that a machine that
slows down meanwhile does not look like a table that does.
"""

import statistics

import attrs
import numpy as np

from benchmarks.contender_labkit import configure, time_training
from benchmarks.stopwatch import resident_mib, worker
from labkit.replay import reverb_replay
from labkit.training import components as labkit_parts

SIZES = (10_000, 100_000, 1_000_000)
ROUNDS = 3


class Table(reverb_replay.ReverbReplay):
    """A table that fills itself."""

    held = 0

    def grow(self, size: int) -> None:
        """Writes made-up transitions until the table holds `size`."""
        observations, actions = self.layout.observation, self.layout.action
        generator = np.random.default_rng(self.held)
        while self.held < size:
            count = min(10_000, size - self.held)
            seen = generator.normal(size=(count + 1, observations)).astype(np.float32)
            done = np.tanh(generator.normal(size=(count, actions)).astype(np.float32))
            for t in range(count):
                self.write(seen[t], done[t], 0.01, 1.0, seen[t + 1])
            self.held += count
        self.flush()


def main(options) -> dict:
    """Per size: the iterations per second of each round, their median, resident MiB."""
    sizes = sorted(options.sizes or SIZES)
    parts = labkit_parts.build(configure(options.warmup, options.iterations, initial=1))
    parts.close()  # its own table is not needed
    largest = Table(parts.layout, 2 * sizes[-1])  # room for what training adds
    memory = {}
    for size in sizes:
        largest.grow(size)
        if size == sizes[0]:  # TensorFlow's and Reverb's own memory first
            _rate(parts, largest, options)
        memory[size] = resident_mib()
    others = [Table(parts.layout, 2 * size) for size in sizes[:-1]]
    for table, size in zip(others, sizes[:-1], strict=True):
        table.grow(size)
    tables = [*others, largest]
    rates = [[_rate(parts, table, options) for table in tables] for _ in range(ROUNDS)]
    for table in tables:
        table.close()
    return summary(sizes, memory, list(zip(*rates, strict=True)), 4 * parts.layout.width)


def _rate(parts, table: Table, options) -> float:
    placed = attrs.evolve(parts, replay=table)
    return time_training(placed, options.warmup, options.iterations)["rate"]


def summary(sizes, memory: dict[int, float], rates, raw_bytes: int) -> dict:
    """The result: sizes in rising order, bytes per transition from the first to the last."""
    grown = (memory[sizes[-1]] - memory[sizes[0]]) * 2**20 / (sizes[-1] - sizes[0])
    return {
        "sizes": list(sizes),
        "rates": [list(r) for r in rates],
        "rate": [statistics.median(r) for r in rates],
        "resident_mib": [memory[size] for size in sizes],
        "bytes_per_transition": grown,
        "raw_bytes": raw_bytes,
    }


if __name__ == "__main__":
    worker(main)
