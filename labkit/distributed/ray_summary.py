"""`ray.json`: what a run on Ray has measured, over all its starts.

    seconds                  wall time of all starts, start-up included
    inserts, samples         of the replay table, up to the last gradient step
    samples_per_insert       of these, without the warm-up
    staleness_median, _max   env steps; see `ParameterServer.status`
    cpu_seconds              of each actor, in all starts
    faults                   each failure: the actor, the address of its machine, what it cost, and
                             `dropped` if the run continued without it

A value that no start has measured is null.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labkit.errors import storage
from labkit.training.run import RAY_SUMMARY, Run, write_atomically

STALENESS = ("staleness_median", "staleness_max")
TABLE = ("inserts", "samples", "samples_per_insert")


def read(folder: Path) -> dict[str, Any]:
    """The summary that earlier starts of the run have written; empty if it cannot be read."""
    try:
        content = json.loads((folder / RAY_SUMMARY).read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write(run: Run, summary: Mapping[str, Any]) -> None:
    """Replaces the summary.

    Raises:
        StorageError: the disk is full or gone.
    """
    file = run.path / RAY_SUMMARY
    with storage(file):
        write_atomically(file, json.dumps(summary, indent=2) + "\n")


def with_start(
    earlier: Mapping[str, Any],
    seconds: float,
    cpu_seconds: Mapping[str, float],
    measured: Mapping[str, Any],
) -> dict[str, Any]:
    """The summary of earlier starts and one more; what was not measured in it stays as it was.

    Args:
        earlier: from `read`; in it, too, a value may be missing or null.
        seconds: wall time of this start.
        cpu_seconds: of its actors.
        measured: values for the whole run, by their keys; None for those that are not known.
    """
    before = earlier.get("cpu_seconds") or {}
    names = [*before, *(name for name in cpu_seconds if name not in before)]
    return {
        **dict.fromkeys((*TABLE, *STALENESS)),
        **earlier,
        **{name: value for name, value in measured.items() if value is not None},
        "seconds": round((earlier.get("seconds") or 0.0) + seconds, 1),
        "cpu_seconds": {
            name: round(before.get(name, 0.0) + cpu_seconds.get(name, 0.0), 2) for name in names
        },
    }
