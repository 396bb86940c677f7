"""The whole of `make run`, by phase: how long a user waits, and for what."""

import argparse
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import nbformat

from benchmarks.stopwatch import worker
from labkit.training.records import read_metrics

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "03_sac_minitaur.ipynb"
STEPS = "env and gradient steps"
TRAINS = "labkit.train(config"  # the cell that trains


def main(options: argparse.Namespace) -> dict[str, float]:
    """Seconds of each phase of a run with the defaults."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.time()
        command = [sys.executable, "-m", "labkit.cli.main", "run", str(NOTEBOOK)]
        subprocess.run([*command, "-p", "run_dir", folder], check=True)
        ended = time.time()
        notebook = nbformat.read(Path(folder) / NOTEBOOK.name, as_version=4)
        (cell,) = [c for c in notebook.cells if c.cell_type == "code" and TRAINS in c.source]
        metrics = read_metrics(Path(folder))
    start, end = (
        datetime.fromisoformat(cell.metadata.papermill[name]).timestamp()
        for name in ("start_time", "end_time")
    )
    between = metrics.wall_seconds.diff().fillna(metrics.wall_seconds)
    steps = float(between[metrics.eval_return.isna()].sum())
    evaluations = float(between[metrics.eval_return.notna()].sum())
    return {
        "before the training": start - began,
        STEPS: steps,
        "evaluations": evaluations,
        "set-up, warm-up, checkpoints": end - start - steps - evaluations,
        "after the training": ended - end,
    }


if __name__ == "__main__":
    worker(main)
