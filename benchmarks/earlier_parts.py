"""CPU time of each component of labkit 0.1's iteration, alone; runs in that commit's checkout.

The names below are that commit's: see `implementations.make_earlier_checkout`.
"""

import argparse
import time
from collections.abc import Callable

import labkit
from benchmarks import breakdown
from benchmarks.stopwatch import worker


def cpu_per_call_ms(call: Callable[[], object], calls: int) -> float:
    """CPU milliseconds of one call, all threads: the mean over 4 × `calls`, as in breakdown."""
    before = time.process_time()
    for _ in range(4 * calls):
        call()
    return 1e3 * (time.process_time() - before) / (4 * calls)


def main(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Measures every component."""
    breakdown.per_call_ms = cpu_per_call_ms
    config = breakdown.configure(options.warmup, options.iterations, options.initial)
    parts = breakdown.labkit_parts.build(config)
    breakdown.labkit_parts.collect_initially(config, parts)
    with labkit.quiet():
        measured = breakdown.alone(parts, config)
    parts.close()
    return {"cpu_alone": measured}


if __name__ == "__main__":
    worker(main)
