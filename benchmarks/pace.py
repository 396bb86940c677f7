"""Measures speed and memory of a running training from another process; writes results/pace.csv.

    papermill notebooks/03_sac_minitaur.ipynb out.ipynb -p num_iterations 1e6 -p run_dir runs/long &
    python -m benchmarks.pace runs/long --until 300000

Wall time depends on what else the machine runs; CPU time of the run's process does not.
"""

import itertools
import os
import sys
import time
from pathlib import Path

import click
import pandas as pd

RESULTS = Path(__file__).resolve().parent / "results"
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
SECONDS_BETWEEN_LOOKS = 5.0
SECONDS_TO_BEGIN = 300.0


def owner(run_dir: Path) -> int | None:
    """Returns the id of the process that has the run's lock file open, or None."""
    lock = str((run_dir / "lock").resolve())
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            if any(os.readlink(file) == lock for file in folder.iterdir()):
                return int(folder.parent.name)
        except OSError:  # the process has ended, or belongs to another user
            continue
    return None


def look(pid: int, run_dir: Path) -> dict[str, float] | None:
    """Reads the run's progress and its process's CPU time and memory.

    Returns:
        The gradient step (-1 before the first row of metrics), wall_seconds, cpu_seconds and
        resident_mib; None once the process has ended.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    if fields[0] == "Z":  # a zombie: ended, but its parent has not waited for it
        return None
    step, seconds = -1, 0.0
    if (metrics := run_dir / "metrics.csv").exists():  # the lock exists a moment earlier
        table = pd.read_csv(metrics, usecols=["gradient_step", "wall_seconds"])
        step, seconds = table.iloc[-1] if len(table) else (step, seconds)
    return {
        "gradient_step": int(step),
        "wall_seconds": float(seconds),
        "cpu_seconds": (int(fields[11]) + int(fields[12])) / TICKS,
        "resident_mib": int(fields[21]) * PAGE / 2**20,
    }


def follow(run_dir: Path, until: int) -> pd.DataFrame:
    """Records a row for each new row of the run's metrics.

    Args:
        run_dir: the run directory.
        until: gradient step at which to stop; the end of the process stops it earlier.

    Returns:
        A table with the columns of `look`.
    """
    pid, begin = owner(run_dir), time.monotonic()
    if pid is None:
        limit = f"{SECONDS_TO_BEGIN:.0f} s at most"
        print(f"waiting for a process that trains {run_dir}, {limit}", file=sys.stderr)
    while pid is None:
        if time.monotonic() - begin > SECONDS_TO_BEGIN:
            sys.exit(f"no process opened the run {run_dir} within {SECONDS_TO_BEGIN:.0f} s")
        time.sleep(SECONDS_BETWEEN_LOOKS)
        pid = owner(run_dir)
    rows: list[dict[str, float]] = []
    while (row := look(pid, run_dir)) and row["gradient_step"] <= until:
        if row["gradient_step"] > (rows[-1]["gradient_step"] if rows else -1):
            rows.append(row)
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return pd.DataFrame(rows)


def tenths(table: pd.DataFrame) -> pd.DataFrame:
    """Iterations per second, CPU ms per iteration, and memory, for each tenth of the run."""
    rows = []
    first, last = table.gradient_step.iloc[0], table.gradient_step.iloc[-1]
    edges = [first + (last - first) * i / 10 for i in range(11)]
    marks = [(table.gradient_step - edge).abs().idxmin() for edge in edges]
    for a, b in itertools.pairwise(marks):
        begin, end = table.loc[a], table.loc[b]
        steps = max(1, end.gradient_step - begin.gradient_step)
        rows.append(
            {
                "to step": int(end.gradient_step),
                "it/s": steps / max(1e-9, end.wall_seconds - begin.wall_seconds),
                "CPU ms/it": 1000 * (end.cpu_seconds - begin.cpu_seconds) / steps,
                "resident MiB": end.resident_mib,
            }
        )
    return pd.DataFrame(rows)


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option(
    "--until",
    type=click.IntRange(min=1),
    default=300_000,
    show_default=True,
    help="Gradient steps.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=RESULTS / "pace.csv", help="Of the result."
)
def main(run_dir: Path, until: int, out: Path) -> None:
    """Follows RUN_DIR, prints a row for each tenth, writes OUT."""
    table = follow(run_dir, until)
    if len(table) < 11:
        sys.exit(f"{run_dir} ended after {len(table)} rows of metrics; at least 11 are needed")
    table.round(2).to_csv(out, index=False)
    print(tenths(table).round(1).to_string(index=False))


if __name__ == "__main__":
    main()
