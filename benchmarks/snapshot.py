"""Times labkit's checkpoint, which pauses training, and Reverb's snapshot alone.

    python -m benchmarks.snapshot

`client.checkpoint()` and `checkpoint.save` write the same table of packed Minitaur transitions in
alternation. `checkpoint.save` also writes the agent, moves the snapshot into its folder, and waits
until everything is on disk. Writes benchmarks/results/snapshot.json.
"""

import json
import statistics
import tempfile
import time
from pathlib import Path

import click
import numpy as np

import labkit
from benchmarks.growth import Table
from benchmarks.throughput import machine
from labkit.replay.transitions import Layout
from labkit.sac.agent import state_variables
from labkit.sac.update import make_update
from labkit.training import checkpoint
from labkit.training.components import build

RESULTS = Path(__file__).resolve().parent / "results"
AIM = 1.3


@click.command()
@click.option(
    "--transitions",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="Rows in the table.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Measurements of each.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=RESULTS / "snapshot.json",
    help="Of the result.",
)
def main(transitions: int, repeats: int, out: Path) -> None:
    """Measures, prints, and writes snapshot.json."""
    before = machine()
    parts = build(labkit.SACConfig(initial_collect_steps=1, replay_buffer_capacity=1_000))
    parts.close()
    make_update(parts.agent, parts.layout, parts.strategy).get_concrete_function(
        np.zeros((256, parts.layout.width), np.float32)
    )
    arrays = [variable.numpy() for variable in state_variables(parts.agent)]
    bare, full = [], []
    with tempfile.TemporaryDirectory(dir=".") as folder:
        table = Table(Layout(28, 8), 2 * transitions, Path(folder) / "reverb")
        table.grow(transitions)
        for step in range(1, repeats + 1):
            begin = time.perf_counter()
            with labkit.quiet():
                table._client.checkpoint()
            bare.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            checkpoint.save(Path(folder) / "checkpoints", step, arrays, {}, table)
            full.append(time.perf_counter() - begin)
        kept = Path(folder) / "checkpoints"
        size = checkpoint.size_bytes(kept) / len(checkpoint.steps(kept))
        table.close()
    result = {
        "machine": before,
        "transitions": transitions,
        "bare_seconds": [round(s, 3) for s in bare],
        "labkit_seconds": [round(s, 3) for s in full],
        "ratio": round(statistics.median(full) / statistics.median(bare), 3),
        "megabytes": round(size / 1e6, 1),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"{transitions} transitions: Reverb's snapshot alone {statistics.median(bare):.2f} s, "
        f"checkpoint {statistics.median(full):.2f} s, {result['ratio']:.2f} × (aim {AIM}); "
        f"{result['megabytes']} MB on disk"
    )


if __name__ == "__main__":
    main()
