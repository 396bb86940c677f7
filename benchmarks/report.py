"""Tables and figure of the throughput benchmark, from its results."""

import statistics
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.whole_run import STEPS
from labkit.plotting.style import BLUE, GREY, ORANGE, subplots


def medians(implementations: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Medians over the repeats, for each implementation that ran."""
    return {
        key: {
            name: statistics.median(repeat[name] for repeat in entry["repeats"])
            for name in entry["repeats"][0]
        }
        for key, entry in implementations.items()
        if entry.get("repeats")
    }


def ratio(implementations: dict[str, Any], one: str, other: str) -> float:
    """How many times as fast `one` is as `other`: the median over the rounds.

    A round measures each implementation in turn. So a ratio within a round compares measurements
    that are minutes apart; medians of all rounds may come from a faster and a slower phase of the
    machine.
    """
    sides = (implementations[key]["repeats"] for key in (one, other))
    return statistics.median(a["rate"] / b["rate"] for a, b in zip(*sides, strict=False))


def text(results: dict[str, Any]) -> str:
    """The table as Markdown, padded so that it is readable in a terminal, and the floor."""
    floor = results["floor"]
    return (
        f"{_throughput(results)}\n\nThe floor counts {floor['physics_ms']:.2f} ms of physics and "
        f"{floor['flops'] / 1e6:.0f} MFLOP of matrix products at "
        f"{floor['flops_per_second'] / 1e9:.0f} GFLOP/s a core. If {floor['cores']} cores\nshare "
        f"them without loss, they take {floor['floor_ms']:.2f} ms.\n{_whole_run(results)}"
    )


def _whole_run(results: dict[str, Any]) -> str:
    phases = results.get("whole_run")
    if not phases:
        return ""
    total = sum(phases.values())
    rows = [(name, f"{seconds:.0f}") for name, seconds in phases.items()]
    table = _table(("`make run`", "seconds"), [*rows, ("total", f"{total:.0f}")])
    return (
        f"\n{table}\n\nThe total is {total / phases[STEPS]:.2f} times the env and gradient steps.\n"
    )


def _throughput(results: dict[str, Any]) -> str:
    compared, floor = results["implementations"], results["floor"]
    typical = medians(compared)
    header = ("", "iterations/s", "defaults ÷ row", "same work ÷ row", "peak MiB")
    rows = []
    for key, entry in compared.items():
        if key not in typical:
            rows.append((entry["label"], "skipped: " + entry["skipped"], "", "", ""))
            continue
        times = [
            f"{ratio(compared, ours, key):.2f}×" if key != ours and ours in typical else ""
            for ours in ("labkit", "labkit_same")
        ]
        it = typical[key]
        rows.append((entry["label"], f"{it['rate']:.1f}", *times, f"{it['peak_mib']:.0f}"))
    rows.append(("computed floor", f"{1e3 / floor['floor_ms']:.0f}", "", "", ""))
    return _table(header, rows)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, *rows]
    # The reason for a skip may extend to the right; it does not widen its column.
    widths = [
        max(len(line[i]) for line in lines if not line[i].startswith("skipped"))
        for i in range(len(header))
    ]
    cells = [
        [cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines
    ]
    cells.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def figure(results: dict[str, Any]) -> Figure:
    """Draws the rates (a dot for each repeat), and the time of one iteration by component."""
    with subplots(8, 5.8, 2) as (drawn, (rates, parts)):
        _draw_rates(rates, results["implementations"])
        _draw_breakdown(parts, results["breakdown"]["in_loop"], results["floor"])
        for axes in (rates, parts):
            axes.set_axisbelow(True)  # the grid is behind the bars
    return drawn


def _draw_rates(axes: Axes, implementations: dict[str, Any]) -> None:
    for place, (key, it) in enumerate(medians(implementations).items()):
        entry = implementations[key]
        ours = key in ("labkit", "labkit_same", "ray")
        axes.barh(entry["label"], it["rate"], color=BLUE if ours else GREY, height=0.6)
        rates = [repeat["rate"] for repeat in entry["repeats"]]
        axes.plot(rates, [place] * len(rates), "o", color="black", markersize=3.5)
        right = (max(rates), place)  # beyond the last dot
        axes.annotate(f"{it['rate']:.0f}", right, (8, 0), textcoords="offset points", va="center")
    axes.invert_yaxis()
    axes.set_xlabel(
        "iterations per second (one env step, one gradient step of 256)\ndot: one repeat"
    )
    axes.margins(x=0.12)
    axes.grid(axis="y", visible=False)


def _draw_breakdown(axes: Axes, loop: dict[str, float], floor: dict[str, float]) -> None:
    least = {"physics engine": floor["physics_ms"], "gradient step": floor["arithmetic_ms"]}
    ours = axes.barh(list(loop), list(loop.values()), color=BLUE, height=0.6, label="in the loop")
    axes.bar_label(ours, fmt="%.1f", padding=4)
    axes.barh(list(least), list(least.values()), color=ORANGE, height=0.25, label="computed floor")
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds of one iteration\n(gradient steps run in a second thread)")
    axes.margins(x=0.12)
    axes.legend(loc="upper right")
    axes.grid(axis="y", visible=False)
