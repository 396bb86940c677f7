"""A peer's own training loop on the same environment; runs in .venv-peers, which has no labkit."""

import argparse

from benchmarks import peer
from benchmarks.stopwatch import Stopwatch, worker


def main(options: argparse.Namespace) -> dict[str, float]:
    """Times the loop."""
    peer.use_threads(options.threads)
    stopwatch = Stopwatch(options.warmup, options.iterations)
    with peer.hidden_output():
        model = peer.make(
            options.algorithm, peer.minitaur(), learning_starts=options.initial, device="cpu"
        )
        model.learn(10**9, callback=peer.Ticking(stopwatch, options.initial))
    return stopwatch.result()


if __name__ == "__main__":
    worker(main)
