"""Times a training loop; needs the standard library only, so that it runs in .venv-peers, too."""

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Stopwatch:
    """Measures wall time, CPU time of all threads, and peak memory of a number of iterations.

    Args:
        warmup: iterations before the timed ones; they include tracing and compilation.
        iterations: timed iterations.
        at_start: called when the timing starts.
    """

    def __init__(self, warmup: int, iterations: int, at_start: Callable[[], None] = lambda: None):
        self.warmup, self.iterations, self._at_start = warmup, iterations, at_start
        self._start: tuple[float, float, int] | None = None
        self._stop: tuple[float, float, int] | None = None

    def tick(self, done: int) -> bool:
        """Returns whether all iterations were timed.

        Args:
            done: iterations so far, the warm-up included.
        """
        if self._stop is None:
            if self._start is None and done >= self.warmup:
                self._at_start()
            now = (time.perf_counter(), time.process_time(), done)
            if self._start is None and done >= self.warmup:
                self._start = now
            if done >= self.warmup + self.iterations:
                self._stop = now
        return self._stop is not None

    def result(self) -> dict[str, float]:
        """Returns rate (iterations per second), wall_ms and cpu_ms of one iteration, peak_mib.

        Raises:
            RuntimeError: fewer iterations were run.
        """
        if self._start is None or self._stop is None:
            raise RuntimeError(f"fewer than {self.warmup} + {self.iterations} iterations were run")
        wall, cpu, count = (b - a for a, b in zip(self._start, self._stop, strict=True))
        return {
            "rate": count / wall,
            "wall_ms": 1e3 * wall / count,
            "cpu_ms": 1e3 * cpu / count,
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }


def per_call_ms(call: Callable[[], object], calls: int, rounds: int = 5) -> float:
    """Wall milliseconds of one call: the median over `rounds` of `calls` calls each."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - start) / calls)
    return 1e3 * statistics.median(times)


def worker(main: Callable[[argparse.Namespace], dict[str, Any]]) -> None:
    """Runs `main(options)` and writes its result to the JSON file `--out`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--warmup", type=int, default=200, help="iterations before the timed")
    parser.add_argument("--iterations", type=int, default=1000, help="timed iterations")
    parser.add_argument("--initial", type=int, default=1000, help="env steps with random actions")
    parser.add_argument("--threads", type=int, default=0, help="the peer's; 0 leaves its default")
    parser.add_argument("--algorithm", default="sb3_sac", help="the peer's: see peer.make")
    parser.add_argument(
        "--actor-update-period", type=int, default=1, help="critic steps for each of the actor"
    )
    parser.add_argument(
        "--same-work", action="store_true", help="labkit with the same work as the peers"
    )
    options = parser.parse_args()
    options.out.write_text(json.dumps(main(options)))
