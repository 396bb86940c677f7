"""Speed and memory of labkit's loop as the table grows: 10 000, 100 000, 1 000 000 transitions.

The benchmark fills labkit's Reverb table through labkit's writer with random numbers, which Reverb
cannot compress. It measures memory while one table grows through all sizes. It measures speed on
one table of each size in alternation, so that a machine that slows down during the benchmark does
not look like a table that slows down with its size.
"""

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from benchmarks.run_labkit import configure, time_training
from benchmarks.stopwatch import resident_mib, worker
from labkit.replay import reverb_replay
from labkit.replay.transitions import Transition
from labkit.training import components

SIZES = (10_000, 100_000, 1_000_000)


class Table(reverb_replay.ReverbReplay):
    """A replay table that fills itself with random transitions."""

    filled = 0

    def grow(self, size: int) -> None:
        """Writes random transitions until the table holds `size`."""
        layout = self.layout
        generator = np.random.default_rng(self.filled)
        while self.filled < size:
            count = min(10_000, size - self.filled)
            observations = generator.normal(size=(count + 1, layout.observation)).astype(np.float32)
            actions = np.tanh(generator.normal(size=(count, layout.action)).astype(np.float32))
            for t in range(count):
                step = (observations[t], actions[t], 0.01, 1.0, observations[t + 1])
                self.write(Transition(*step))
            self.filled += count
        self.flush()


def main(options: argparse.Namespace) -> dict[str, Any]:
    """Measures the speed of each round and the memory at every size; see `summary`."""
    sizes = sorted(options.sizes or SIZES)
    config = configure(options.warmup, options.iterations, initial=1)
    recent = config.recent_transitions  # a second table of the newest, as in training
    parts = components.build(config)
    parts.close()  # only its agent and environments are used
    # Twice the size: room for the transitions of training.
    largest = Table(parts.layout, 2 * sizes[-1], recent=recent)
    memory = {}
    for size in sizes:
        largest.grow(size)
        if size == sizes[0]:  # let TensorFlow and Reverb allocate their memory first
            _rate(parts, largest, options)
        memory[size] = resident_mib()
    others = [Table(parts.layout, 2 * size, recent=recent) for size in sizes[:-1]]
    for table, size in zip(others, sizes[:-1], strict=True):
        table.grow(size)
    tables = [*others, largest]
    rates = [[_rate(parts, table, options) for table in tables] for _ in range(options.rounds)]
    for table in tables:
        table.close()
    return summary(sizes, memory, list(zip(*rates, strict=True)), 4 * parts.layout.width)


def _rate(parts: components.TrainingComponents, table: Table, options: argparse.Namespace) -> float:
    with_table = attrs.evolve(parts, replay=table)
    return time_training(with_table, options.warmup, options.iterations)["rate"]


def summary(
    sizes: Sequence[int],
    memory: dict[int, float],
    rates: Sequence[Sequence[float]],
    raw_bytes: int,
) -> dict[str, Any]:
    """Returns the benchmark's result.

    Args:
        sizes: stored transitions, in rising order.
        memory: resident MiB by size.
        rates: iterations per second of every round, for each size.
        raw_bytes: bytes of the numbers of one transition.
    """
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
