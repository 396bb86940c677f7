"""Runs that are kept in a repository: their small files; none replaces another silently."""

import itertools
import shutil
from pathlib import Path

from labkit.training import metrics
from labkit.training.run_directory import RAY_SUMMARY


def copy_records(source: Path, target: Path) -> None:
    """Copies the small files of a run: configuration, metrics, Ray's summary."""
    target.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", metrics.FILE, RAY_SUMMARY):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)


def is_same_run(one: Path, other: Path) -> bool:
    """Whether two directories hold the same run, of which one may be longer.

    Its first row identifies a run, because the row contains wall time in milliseconds.
    """
    first, second = ((path / metrics.FILE).read_text().splitlines()[:2] for path in (one, other))
    return first == second


def keep_replaced(source: Path, target: Path) -> Path | None:
    """Renames `target` to `<target>-replaced-1`, or the next number, if it holds another run.

    It also does so if `target` has rows of the same run that `source` lacks: `source` was resumed
    from a checkpoint, and later rows were cut.

    Returns:
        The new path, or None if `target` holds no run, or no row that `source` lacks.
    """
    if not (target / metrics.FILE).exists():
        return None
    rows, kept = ((path / metrics.FILE).read_bytes() for path in (source, target))
    if kept and rows.startswith(kept):  # the same run, which has gone on
        return None
    numbered = (target.with_name(f"{target.name}-replaced-{n}") for n in itertools.count(1))
    free = next(path for path in numbered if not path.exists())
    return target.rename(free)
