"""A peer's own training loop on the same environment; runs in .venv-peers, which has no labkit."""

import argparse

from benchmarks import peer
from benchmarks.stopwatch import Stopwatch, worker


def main(options: argparse.Namespace) -> dict[str, float]:
    """Times the loop."""
    peer.use_threads(options.threads)
    stopwatch = Stopwatch(options.warmup, options.iterations)
    settings = {"learning_starts": options.initial, "device": "cpu"}
    if options.actor_update_period > 1:  # SBX has it, Stable-Baselines3 has not
        settings["policy_delay"] = options.actor_update_period
    with peer.hidden_output():
        model = peer.make(options.algorithm, peer.minitaur(), **settings)
        model.learn(10**9, callback=peer.Ticking(stopwatch, options.initial))
    return stopwatch.result()


if __name__ == "__main__":
    worker(main)
