"""What limits each tracked figure: superseded code, a dirty checkout, other load, nothing recorded.

    python -m benchmarks.status        # writes the table in benchmarks/README.md and sentences in README.md

A figure is superseded if labkit/ has changed since the commit that it was measured on. Run the
command again after each new measurement.
"""

# ruff: noqa: E501 (the lines of the page)

import json
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pandas as pd

from benchmarks import report
from benchmarks.implementations import ROOT
from benchmarks.page_text import between, listed, markdown
from labkit.parameters import grouped

RESULTS = ROOT / "benchmarks" / "results"
README, FRONT = ROOT / "benchmarks" / "README.md", ROOT / "README.md"
MARKS = (
    "<!-- written by benchmarks.status: begin -->",
    "<!-- written by benchmarks.status: end -->",
)
LOAD = 0.5  # of other programs before the first measurement, in cores; above it is a limit
FILES = {
    "benchmarks/results/throughput.json": "make bench",
    "benchmarks/results/scaling.json": "make bench-scaling",
    "benchmarks/results/collection.json": "make bench-collection",
    "benchmarks/results/snapshot.json": "python -m benchmarks.snapshot",
    "benchmarks/results/soak.csv": "make soak",
    "benchmarks/results/pace.csv": "python -m benchmarks.pace RUN",
    "results/lunarlander/timing.json": "python -m benchmarks.lunarlander",
    "results/cartpole_dqn.csv": "python benchmarks/cartpole_dqn.py",
}


def caveats(machine: dict[str, Any], root: Path = ROOT) -> list[str]:
    """What limits figures that were measured as `throughput.machine` describes."""
    commit, load = str(machine.get("commit") or "unknown"), machine.get("load_before")
    found = []
    if commit == "unknown":
        found.append("the commit was not recorded")
    elif superseded(commit.removesuffix("-dirty"), root):
        found.append("labkit has changed since")
    if commit.endswith("-dirty"):
        found.append("the checkout had uncommitted changes")
    if load is None:
        found.append("the load was not recorded")
    elif load > LOAD:
        found.append(f"other programs were running (a load of {load} cores)")
    return found


def superseded(commit: str, root: Path = ROOT) -> bool:
    """Whether labkit/ differs from that commit; also if the commit is not in this clone."""
    command = ["git", "diff", "--quiet", commit, "--", "labkit"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError):
        return True
    return done.returncode != 0


def machine_of(file: Path) -> dict[str, Any]:
    """What a result recorded of its machine; older ones, and tables, recorded less or nothing."""
    if file.suffix != ".json":
        return {}
    content = json.loads(file.read_text())
    return {"date": content.get("date"), **content.get("machine", {})}


def table() -> pd.DataFrame:
    """One row per tracked result: file, command, date, commit, limits."""
    rows = []
    for name, command in FILES.items():
        machine = machine_of(ROOT / name)
        rows.append(
            {
                "result": f"`{name}`",
                "command": f"`{command}`",
                "date": machine.get("date") or "not recorded",
                "commit": machine.get("commit") or "not recorded",
                "limits": "; ".join(caveats(machine)) or "none",
            }
        )
    return pd.DataFrame(rows)


def sentence() -> str:
    """README.md's sentences about throughput."""
    results = json.loads((RESULTS / "throughput.json").read_text())
    machine = results["machine"]
    times, same = (
        report.ratio(results["implementations"], key, "published")
        for key in ("labkit", "labkit_same")
    )
    text = (
        f"With layers of the same size and {machine['cores']} cores, labkit's loop is {times:.1f} times as fast as the loop of the TF-Agents tutorial. labkit's defaults\n"
        f"update the actor only in every second iteration. If both do the same work in each iteration, labkit's loop is {same:.1f} times as fast. {fastest_peer(results)}{growth(results)}`make bench` measured\n"
        f"this on {machine['date']} (commit {machine['commit']})."
    )
    return text + reservation(caveats(machine))


def growth(results: dict[str, Any]) -> str:
    """README.md's sentences about a full table, with a space after them; empty without figures."""
    if "growth" not in results:
        return ""
    shares = report.paired_ratios(results["growth"])[-1]
    smallest, largest = (grouped(results["growth"]["sizes"][place]) for place in (0, -1))
    return (
        f"With\n{largest} transitions in the replay table, the loop ran at {statistics.median(shares):.0%} of the speed that it had with {smallest} "
        f"(median of {len(shares)} rounds, which gave {min(shares):.0%} to {max(shares):.0%}; aim: at least {report.GROWTH_AIM:.0%}). "
    )


def fastest_peer(results: dict[str, Any]) -> str:
    """README.md's sentences about the fastest other library, with a space after them."""
    measured = results["implementations"]
    typical = report.medians(measured)
    peers = [key for key in typical if key.startswith(("sb3", "sbx"))]
    if not peers:
        return ""
    peer = max(peers, key=lambda key: typical[key]["rate"])
    times, same = (report.ratio(measured, key, peer) for key in ("labkit", "labkit_same"))
    aim = report.AIMS["sbx_sac"]  # for the fastest other library
    return (
        f"The fastest other library measured is\n{measured[peer]['label']}: labkit's loop is {times:.2f} times as fast, and {same:.2f} times as fast with the same work "
        f"(labkit's own aim of {aim} is {'met' if times >= aim else 'not met'}). "
    )


def reservation(limits: Sequence[str]) -> str:
    """A sentence, with a space before it, that says what limits a figure; empty if nothing does."""
    return f" Limits of this measurement: {listed(limits)}." if limits else ""


@click.command()
def main() -> None:
    """Writes the table and the sentence."""
    README.write_text(between(README.read_text(), MARKS, markdown(table())))
    FRONT.write_text(between(FRONT.read_text(), MARKS, sentence()))
    click.echo(markdown(table()))


if __name__ == "__main__":
    main()
