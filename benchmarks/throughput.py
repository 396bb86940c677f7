"""The throughput benchmark: labkit next to baselines, and its time by component.

make bench                    under an hour on two cores; writes benchmarks/results/
make bench ARGS=--quick       a minute: a smoke test, whose numbers mean little
make bench ARGS=--page        seconds: only writes the page and the figure from throughput.json
"""

import json
import os
import platform
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import click
import psutil

from benchmarks import implementations, report

RESULTS = implementations.ROOT / "benchmarks" / "results"
README = implementations.ROOT / "benchmarks" / "README.md"
FULL = ("--warmup", "200", "--iterations", "1000", "--initial", "1000")
QUICK = ("--warmup", "20", "--iterations", "40", "--initial", "300")
LOAD_SECONDS = 5
MARKS = ("<!-- written by make bench: begin -->\n", "<!-- written by make bench: end -->\n")


@click.command()
@click.option("--quick", is_flag=True, help="A smoke run, without the peers.")
@click.option("--without-peers", is_flag=True, help="Leave SB3 and SBX out.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Rounds.")
@click.option("--page", "only_page", is_flag=True, help="Do not measure; use throughput.json.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Output folder.")
def main(quick: bool, without_peers: bool, repeats: int, only_page: bool, out: Path | None) -> None:
    """Measures, prints, and writes throughput.json and throughput.png."""
    out = out or (RESULTS / "quick" if quick else RESULTS)
    if only_page:
        results = json.loads((out / "throughput.json").read_text())
    else:
        started = time.monotonic()
        results = measure(quick, not (quick or without_peers), 1 if quick else repeats)
        results["minutes"] = round((time.monotonic() - started) / 60, 1)
    page = f"{describe(results)}\n\n{report.text(results)}"
    out.mkdir(parents=True, exist_ok=True)
    (out / "throughput.json").write_text(json.dumps(results, indent=1) + "\n")
    report.figure(results).savefig(out / "throughput.png", dpi=110)
    if out == RESULTS:
        head, rest = README.read_text().split(MARKS[0])
        _, tail = rest.split(MARKS[1])
        page = f"{describe(results)}\n\n{report.text(results)}"
        README.write_text(f"{head}{MARKS[0]}\n{page}\n{MARKS[1]}{tail}")
    print(
        f"\n{describe(results)}\n\n{report.text(results)}\n{out}/throughput.json and .png written"
    )


def measure(quick: bool, with_peers: bool, repeats: int) -> dict[str, Any]:
    """Runs all measurements, one process at a time."""
    size = QUICK if quick else FULL
    results: dict[str, Any] = {"machine": machine(), "settings": list(size), "repeats": repeats}
    print("  floor, breakdown ...", flush=True)
    for name in ("floor", "breakdown"):
        results[name] = implementations.run(f"benchmarks.{name}", size)
    if not quick:
        print("  the whole of make run ...", flush=True)
        results["whole_run"] = implementations.run("benchmarks.whole_run")
    compared = implementations.list_implementations(with_peers)
    results["implementations"] = implementations.run_in_rounds(compared, repeats, size)
    return results


def machine() -> dict[str, Any]:
    """Describes the machine; a high load shows that other programs are running.

    `load_before` is the number of cores that were busy for `LOAD_SECONDS`. The load average of the
    kernel would also count what ended in the last minutes, such as the installation of the peers.
    """
    busy = psutil.cpu_percent(LOAD_SECONDS) / 100 * psutil.cpu_count()
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=implementations.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "cpu": cpu.group(1) if cpu else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "python": platform.python_version(),
        "load_before": round(busy, 2),
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip() or "unknown",
    }


def describe(results: dict[str, Any]) -> str:
    """One line about machine, date and settings."""
    it = results["machine"]
    return (
        f"{it['cpu']}, {it['cores']} cores, {it['memory_gib']} GiB, Python {it['python']}; "
        f"load before the first measurement {it['load_before']} cores; {it['date']}, "
        f"commit {it['commit']}; {results['minutes']} minutes, {results['repeats']} repeats in "
        f"turn ({' '.join(results['settings'])})."
    )


if __name__ == "__main__":
    main()
