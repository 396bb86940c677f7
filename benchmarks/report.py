"""Tables and figure of the throughput benchmark, from its results."""

import statistics
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.plotting.style import BLUE, GREY, ORANGE, subplots

AIMS = {"published": 3.0, "sbx_sac": 1.6, "sbx_sac_1": 1.6}  # the defaults' rate over theirs
RAY_AIMS = {"sbx_sac": 1.3, "sbx_sac_1": 1.3}  # the Ray executor's rate over theirs
CPU_AIM = 0.2  # less CPU time than an iteration of labkit 0.1
GROWTH_AIM, MEMORY_AIM_MIB = 0.9, 4096


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


def ratio(implementations: dict[str, Any], one: str, other: str, name: str = "rate") -> float:
    """How many times as large `name` is for `one` as for `other`: the median over the rounds.

    A round measures each implementation in turn. So a ratio within a round compares measurements
    that are minutes apart; medians of all rounds may come from a faster and a slower phase of the
    machine.
    """
    sides = (implementations[key]["repeats"] for key in (one, other))
    return statistics.median(a[name] / b[name] for a, b in zip(*sides, strict=False))


def text(results: dict[str, Any]) -> str:
    """All tables as Markdown, padded so that they are readable in a terminal."""
    parts = [_throughput(results)]
    if "labkit_earlier" in medians(results["implementations"]):
        parts.append(_less_cpu(results))
    if "ray" in medians(results["implementations"]):
        parts.append(_ray(results))
    if "breakdown" in results and "floor" in results:
        parts.append(_breakdown(results))
    if "growth" in results:
        parts.append(_growth(results["growth"]))
    return "\n\n".join(parts) + "\n"


def _throughput(results: dict[str, Any]) -> str:
    typical = medians(results["implementations"])
    columns = ("labkit", "labkit_same")  # whose rate over the others' the table shows
    header = ("", "iterations/s", "lowest to highest", "defaults ÷ row")
    header += ("same work ÷ row", "CPU ms each", "peak MiB")
    rows = []
    for key, entry in results["implementations"].items():
        if key not in typical:
            rows.append((entry["label"], "skipped: " + entry["skipped"], *[""] * 5))
            continue
        it, rates = typical[key], [repeat["rate"] for repeat in entry["repeats"]]
        aim = f" (aim {AIMS[key]:.1f})" if key in AIMS else ""
        times = [
            ""
            if key == ours or ours not in typical
            else f"{ratio(results['implementations'], ours, key):.2f} ×"
            for ours in columns
        ]
        rounds = f" ({len(rates)} of {results['repeats']} rounds)" if "stopped" in entry else ""
        rows.append(
            (
                entry["label"] + rounds,
                f"{it['rate']:.1f}",
                f"{min(rates):.1f} to {max(rates):.1f}",
                times[0] + aim,
                times[1],
                f"{it['cpu_ms']:.1f}",
                f"{it['peak_mib']:.0f}",
            )
        )
    if bound := _sum_of_parts(results):
        cpu, wall = bound
        name = "sum of the components alone / cores"
        rows.append((name, f"{1e3 / wall:.0f}", "", "", "", f"{cpu:.1f}", ""))
    if "floor" in results:
        floor = results["floor"]
        rows.append(
            (
                "computed floor",
                f"{1e3 / floor['floor_ms']:.0f}",
                "",
                "",
                "",
                f"{floor['physics_ms'] + floor['arithmetic_ms']:.1f}",
                "",
            )
        )
    return _table(header, rows)


def _less_cpu(results: dict[str, Any]) -> str:
    """A sentence on the CPU time of an iteration next to that of the earlier version."""
    compared = results["implementations"]
    kinds = {"labkit": "the defaults", "labkit_same": "the same work"}
    changes = {
        kind: ratio(compared, key, "labkit_earlier", "cpu_ms") - 1
        for key, kind in kinds.items()
        if key in medians(compared)
    }
    said = [
        f"{abs(change):.0%} {'more' if change > 0 else 'less'} CPU time with {kind}"
        for kind, change in changes.items()
    ]
    return (
        f"Next to {compared['labkit_earlier']['label']} in the same rounds, an iteration takes "
        f"{' and '.join(said)} (median of the rounds' own ratios; aim: {CPU_AIM:.0%} less)."
    )


def _sum_of_parts(results: dict[str, Any]) -> tuple[float, float] | None:
    """CPU ms of an iteration if each part took what it takes alone, and ms on all cores."""
    if "cpu_alone" not in results.get("breakdown", {}) or "floor" not in results:
        return None
    cpu = sum(results["breakdown"]["cpu_alone"].values())
    return cpu, cpu / results["floor"]["cores"]


def _ray(results: dict[str, Any]) -> str:
    """A paragraph on the Ray executor: speed ratios, samples per insert, staleness of weights."""
    typical = medians(results["implementations"])
    it = typical["ray"]
    beside = [
        f"{ratio(results['implementations'], 'ray', key):.2f} × "
        f"{results['implementations'][key]['label']} "
        f"(aim {aim:.1f})"
        for key, aim in RAY_AIMS.items()
        if key in typical
    ]
    if "floor" in results:
        beside.append(f"{it['rate'] * results['floor']['floor_ms'] / 1e3:.0%} of the floor's rate")
    return (
        "The speed of the Ray executor with one rollout worker, relative to other speeds: "
        f"{'; '.join(beside)}.\n"
        f"The learner drew {it['samples_per_insert']:.1f} samples per inserted transition; "
        "256 is configured. The weights of the rollout worker\nwere older than the learner's "
        f"newest by a median of {it['staleness_median']:.0f} env steps, and by "
        f"{it['staleness_max']:.0f} at most."
    )


def _breakdown(results: dict[str, Any]) -> str:
    measured, floor = results["breakdown"], results["floor"]
    loop, alone = measured["in_loop"], measured["alone"]
    cpu, earlier = measured.get("cpu_alone", {}), measured.get("cpu_alone_earlier", {})
    least = {"physics engine": floor["physics_ms"], "gradient step": floor["arithmetic_ms"]}
    rows = [
        (
            name,
            f"{ms:.2f}",
            f"{alone[name]:.2f}" if name in alone else "",
            f"{cpu[name]:.2f}" if name in cpu else "",
            f"{earlier[name]:.2f}" if name in earlier else "",
            f"{least[name]:.2f}" if name in least else "",
        )
        for name, ms in loop.items()
    ]
    rows += [
        (
            f"{name} in all",
            "",
            f"{alone[name]:.2f}",
            f"{cpu[name]:.2f}" if name in cpu else "",
            f"{earlier[name]:.2f}" if name in earlier else "",
            "",
        )
        for name in ("environment", "sampling")
        if name in alone
    ]
    rate = floor["flops_per_second"] / 1e9
    return (
        _table(
            (
                "milliseconds of one iteration",
                "in the loop",
                "alone",
                "CPU alone",
                "in labkit 0.1",
                "floor",
            ),
            rows,
        )
        + "\n\nGradient steps run in a second thread, in parallel, and include sampling. "
        f"The floor counts {floor['physics_ms']:.2f} ms of physics and\n"
        f"{floor['flops'] / 1e6:.0f} MFLOP of matrix products at {rate:.0f} GFLOP/s a core. "
        f"If {floor['cores']} cores share them without loss, they take {floor['floor_ms']:.2f} ms."
        + _cpu_by_thread(results)
    )


def _cpu_by_thread(results: dict[str, Any]) -> str:
    """Where the loop's CPU time goes, and how much more it is than that of the parts alone."""
    bound = _sum_of_parts(results)
    if bound is None:
        return ""
    measured = results["breakdown"]
    threads = "; ".join(f"{part} {ms:.2f}" for part, ms in measured["cpu_in_loop"].items())
    return (
        f"\nCPU time of an iteration in the loop, in milliseconds: {threads}; in all, measured "
        f"separately, {measured['cpu_ms']:.2f}. The components,\neach measured alone, take "
        f"{bound[0]:.2f} ms of CPU time in all. If {results['floor']['cores']} cores shared this "
        f"work without loss, an iteration would take {bound[1]:.2f} ms."
    )


def paired_ratios(growth: dict[str, Any]) -> list[list[float]]:
    """The speed at each size over that at the smallest, of each round."""
    smallest = growth["rates"][0]
    return [
        [rate / first for rate, first in zip(rates, smallest, strict=True)]
        for rates in growth["rates"]
    ]


def _growth(growth: dict[str, Any]) -> str:
    rows = [
        (
            f"{size:,}".replace(",", " "),
            f"{rate:.1f}",
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            f"{mib:.0f}",
        )
        for size, rate, ratios, mib in zip(
            growth["sizes"],
            growth["rate"],
            paired_ratios(growth),
            growth["resident_mib"],
            strict=True,
        )
    ]
    header = ("stored transitions", "iterations/s", "share of the first row", "resident MiB")
    least = min(map(statistics.median, paired_ratios(growth)))
    most = max(growth["resident_mib"])
    met = least >= GROWTH_AIM and most < MEMORY_AIM_MIB
    return (
        _table(header, rows)
        + "\n\nEach round gives the ratio of its own speeds; the share is the median of these "
        + "ratios, with the lowest and the highest. The aim is a share of at least "
        + f"{GROWTH_AIM}\nand memory use below {MEMORY_AIM_MIB} MiB: "
        + f"{'met' if met else 'missed'}. A stored transition takes "
        + f"{growth['bytes_per_transition']:.0f} bytes; its numbers alone are "
        + f"{growth['raw_bytes']} bytes."
    )


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
    """Draws the rates (a dot for each repeat), the time of one iteration by component, and growth.

    Returns:
        The figure; the second and third panel only if they were measured.
    """
    panels = [_draw_rates]
    if "breakdown" in results and "floor" in results:
        panels.append(_draw_breakdown)
    if "growth" in results:
        panels.append(_draw_growth)
    with subplots(8, 2.9 * len(panels), len(panels), squeeze=False) as (drawn, places):
        for draw, axes in zip(panels, places[:, 0], strict=True):
            draw(axes, results)
    return drawn


def _draw_rates(axes: Axes, results: dict[str, Any]) -> None:
    typical = medians(results["implementations"])
    for place, (key, it) in enumerate(typical.items()):
        entry = results["implementations"][key]
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


def _draw_breakdown(axes: Axes, results: dict[str, Any]) -> None:
    loop, floor = results["breakdown"]["in_loop"], results["floor"]
    least = {"physics engine": floor["physics_ms"], "gradient step": floor["arithmetic_ms"]}
    names = list(loop)
    bars = axes.barh(
        names, list(loop.values()), color=BLUE, height=0.6, label="labkit, in the loop"
    )
    axes.bar_label(bars, fmt="%.1f", padding=4)
    marked = [name for name in names if name in least]
    axes.barh(marked, [least[n] for n in marked], color=ORANGE, height=0.25, label="computed floor")
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds of one iteration\n(gradient steps run in a second thread)")
    axes.margins(x=0.12)
    axes.legend(loc="upper right")
    axes.grid(axis="y", visible=False)


def _draw_growth(axes: Axes, results: dict[str, Any]) -> None:
    growth = results["growth"]
    for rates in zip(*growth["rates"], strict=True):  # as in the table, each round by itself
        axes.plot(growth["sizes"], rates, "o-", color=BLUE, alpha=0.5, linewidth=1, markersize=4)
    for size, mib in zip(growth["sizes"], growth["resident_mib"], strict=True):
        axes.annotate(f"{mib:.0f} MiB", (size, 0), (0, 6), textcoords="offset points", ha="center")
    axes.set_xscale("log")
    axes.set_xticks(growth["sizes"], [f"{size:,}".replace(",", " ") for size in growth["sizes"]])
    axes.minorticks_off()
    axes.set_ylim(0, 1.2 * max(max(rates) for rates in growth["rates"]))
    axes.set_xlabel("stored transitions (line: one round; below: resident memory)")
    axes.set_ylabel("iterations per second")
    axes.margins(x=0.12)
