"""The page of the lander's tracked runs: every run, whether it was confirmed, the timing.

`python -m benchmarks.lunarlander --page` calls `write`, which reads results/lunarlander/ and writes
README.md, summary.csv and curves.png there, and the sentences about them in docs/distributed.md.
"""

# ruff: noqa: E501 (the lines of the page)

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.implementations import ROOT
from benchmarks.page_text import between, counted, listed, markdown
from benchmarks.status import caveats, reservation
from labkit.parameters import grouped
from labkit.plotting.style import BLUE, GREY, ORANGE, label_axes, solved_line, subplots
from labkit.training import resuming, run_directory

RESULTS = ROOT / "results" / "lunarlander"
SUMMARY = ROOT / "docs" / "distributed.md"
CONFIRMATION = "confirmation.json"
SOLVED, EPISODES = 200.0, 20
MOST_ENV_STEPS = 300_000
REACHED = f"mean of {SOLVED:.0f}"
STOPPED = "stopped"  # by hand, before its budget was spent
MARKS = (
    "<!-- written by benchmarks.lunarlander: begin -->",
    "<!-- written by benchmarks.lunarlander: end -->",
)
EARLIER_RAY = {("ray", 0), ("ray", 1)}  # replaced runs of an earlier version of the executor
REPLACED = {"linestyle": "--", "alpha": 0.4, "markersize": 3, "linewidth": 1}  # how they look
NAME = re.compile(r"(local|ray)-(\d+)(-replaced-\d+)?")


def solved_at(path: Path) -> tuple[int, float] | None:
    """Env step and mean return of the first evaluation with a mean of 200, or None."""
    table = run_directory.read_metrics(path)
    enough = table[(table.eval_returns.map(len) >= EPISODES) & (table.eval_return >= SOLVED)]
    if enough.empty:
        return None
    return int(enough.env_step.iloc[0]), float(enough.eval_return.iloc[0])


def row(path: Path) -> dict[str, Any]:
    """A run's row of summary.csv."""
    match = NAME.fullmatch(path.name)
    assert match, path
    table, reached = run_directory.read_metrics(path), solved_at(path)
    evaluated = table.dropna(subset="eval_return")
    looks = evaluated if reached is None else evaluated[evaluated.env_step <= reached[0]]
    config = run_directory.read_config(path)
    spent = resuming.is_finished(path, config)
    file = path / CONFIRMATION
    confirmed = json.loads(file.read_text()) if file.exists() else {}
    return {
        "executor": match[1],
        "seed": int(match[2]),
        "replaced": bool(match[3]),
        "ended": REACHED if reached else "budget spent" if spent else STOPPED,
        "evaluations": len(looks),
        "last_env_step": int(looks.env_step.iloc[-1]),
        "last_mean_return": round(float(looks.eval_return.iloc[-1]), 1),
        "confirmed_mean_return": round(confirmed["mean_return"], 1) if confirmed else "",
        "env_steps": int(table.env_step.max()),
        "minutes": round(float(table.wall_seconds.max()) / 60, 1),
    }


def page(rows: Sequence[dict[str, Any]], timing: dict[str, Any] | None) -> str:
    """The page of all tracked runs."""
    shown = [
        {
            "executor": one["executor"],
            "seed": one["seed"],
            "ended": one["ended"] + (", replaced by a later run" if one["replaced"] else ""),
            "evaluations": one["evaluations"],
            "at env step": grouped(one["last_env_step"]),
            "mean return there": f"{one['last_mean_return']:+.1f}",
            "confirmed by new episodes": confirmation(one),
            "minutes": one["minutes"],
        }
        for one in rows
    ]
    return f"""# LunarLanderContinuous on both executors

This page lists every run of `benchmarks.lunarlander`. It trains on LunarLanderContinuous-v2 with the local executor and with the Ray executor.

    .venv/bin/python -m benchmarks.lunarlander            # trains, confirms and times, then writes this page
    .venv/bin/python -m benchmarks.lunarlander --page     # only writes this page

A run ends at the first evaluation with a mean return of at least {SOLVED:.0f} over {EPISODES} deterministic episodes, or after {grouped(MOST_ENV_STEPS)} env steps. This mean tends to overestimate the policy,
because a run stops at its first lucky evaluation. So a run counts as solved only if its policy also has a mean of {SOLVED:.0f} over
100 new episodes. The first command above plays them. {verdict(rows)}

{markdown(pd.DataFrame(shown))}

"Evaluations" counts the evaluations until the run ended. The first of them evaluates the untrained policy: after the warm-up on the local executor, during it on Ray. "Minutes" are not comparable: other
programs were running beside most of the runs. {replaced_sentence(rows)}

![Mean return of each evaluation over env steps; pale dashed lines are replaced runs](curves.png)

{timing_text(timing)}
"""


def confirmation(one: dict[str, Any]) -> str:
    """Whether new episodes confirm that a run is solved."""
    if one["confirmed_mean_return"] == "":
        return "not tested: the policy was not saved" if one["ended"] == REACHED else ""
    word = "yes" if one["confirmed_mean_return"] >= SOLVED else "no"
    return f"{word}: {one['confirmed_mean_return']:+.1f}"


def verdict(rows: Sequence[dict[str, Any]]) -> str:
    """How many runs are confirmed."""
    reached = [one for one in rows if one["ended"] == REACHED]
    unconfirmed = [one for one in reached if one["confirmed_mean_return"] == ""]
    solved = [
        one for one in reached if one not in unconfirmed and one["confirmed_mean_return"] >= SOLVED
    ]
    tested = len(reached) - len(unconfirmed)
    text = f"{len(reached)} of {counted(len(rows), 'run')} reached a mean of {SOLVED:.0f}; {tested} of these were tested with new episodes, which confirmed {len(solved)}."
    if unconfirmed:
        again = sum(not one["replaced"] for one in unconfirmed)
        text += f" In {counted(len(unconfirmed), 'other case')}, the policy was not saved, so it cannot be tested."
        if again:
            text += f" New runs of the same seeds have replaced {len(unconfirmed) - again} of these; {again} must still be repeated."
        else:
            text += f" New runs of the same seeds have replaced these {len(unconfirmed)}."
    return text


def replaced_sentence(rows: Sequence[dict[str, Any]]) -> str:
    """Names the runs that later runs replaced; they stay on the page."""
    gone = [one for one in rows if one["replaced"]]
    if not gone:
        return "No run was replaced."
    names = sorted({f"{one['executor']} seed {one['seed']}" for one in gone})
    reached = sum(one["ended"] == REACHED for one in gone)
    earlier = [one for one in gone if (one["executor"], one["seed"]) in EARLIER_RAY]
    version = f" {len(earlier)} of them, on Ray, used an earlier version of the executor, which sent new weights every 50 gradient steps instead of every 10."
    return (
        f"For {listed(names)}, there is more than one run with the same configuration, because the earlier run was stopped by hand or its policy was not saved. "
        f"The table lists these earlier runs, too: {reached} reached the mean of {SOLVED:.0f}, and {len(gone) - reached} were stopped below it."
        + version
        * bool(earlier)
    )


def timing_text(timing: dict[str, Any] | None) -> str:
    """The timing, with what limits it."""
    if timing is None:
        return ""
    seconds = timing["seconds_per_20000_steps"]
    table = pd.DataFrame(
        {"": name, "seconds for 20 000 iterations": ", ".join(f"{one:.0f}" for one in values)}
        for name, values in seconds.items()
    )
    repeats = max(map(len, seconds.values()))
    limits = reservation(caveats(timing["machine"]))
    return (
        f"## Timing\n\n{markdown(table)}\n\n`sb3` is SAC of Stable-Baselines3. Each was measured "
        f"{'once' if repeats == 1 else counted(repeats, 'time')}.{limits}"
    )


def sentence(rows: Sequence[dict[str, Any]]) -> str:
    """The sentences about these runs in docs/distributed.md."""
    parts = []
    for executor in ("ray", "local"):
        own = [one for one in rows if one["executor"] == executor]
        reached = [one for one in own if one["ended"] == REACHED]
        if own:
            name = {"ray": "on Ray", "local": "on the local executor"}[executor]
            earlier = sum(one["replaced"] and (executor, one["seed"]) in EARLIER_RAY for one in own)
            name += f" ({earlier} of them with an earlier version of that executor)" * bool(earlier)
            parts.append(f"{len(reached)} of {counted(len(own), 'run')} {name}")
    stopped = sum(one["ended"] == STOPPED for one in rows)
    return (
        f"On LunarLanderContinuous, {listed(parts)} reached a mean return of {SOLVED:.0f} over {EPISODES} episodes; {stopped} were stopped by hand before they did. A run\n"
        f"stops at its first evaluation with such a mean. This selects lucky evaluations, so the mean tends to overestimate the policy. A run counts as solved\n"
        f"only if its policy also has a mean of {SOLVED:.0f} over 100 new episodes.\n"
        f"{verdict(rows)}\n"
        "[The page on the lander](../results/lunarlander/README.md) lists every run, including those that a later run replaced."
    )


def draw(folders: Sequence[Path]) -> Figure:
    """Draws every evaluation of every run: mean return over env steps."""
    with subplots(7, 4.2) as (figure, axes):
        for folder in folders:
            table = run_directory.read_metrics(folder).dropna(subset="eval_return")
            replaced = "replaced" in folder.name
            look = {"color": BLUE if folder.name.startswith("local") else ORANGE, "marker": "o"}
            look |= REPLACED if replaced else {"markersize": 4}
            axes.plot(table.env_step, table.eval_return, **look)
            if not replaced:
                last, seed = table.iloc[-1], run_directory.read_config(folder).seed
                # A number only: the words of neighbouring ends would overlap.
                place = {"xytext": (7, 0), "textcoords": "offset points", "va": "center"}
                place["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
                end = (last.env_step, last.eval_return)
                axes.annotate(str(seed), end, color=look["color"], fontsize=9, zorder=5, **place)
        for colour, label in ((BLUE, "local executor"), (ORANGE, "Ray, one worker")):
            axes.plot([], [], "o-", color=colour, markersize=4, label=label)
        if any("replaced" in folder.name for folder in folders):
            axes.plot([], [], "o", color=GREY, label="replaced by a later run", **REPLACED)
        axes.margins(x=0.09)
        solved_line(axes, SOLVED)
        label_axes(
            axes,
            "env steps; the number at the end of a line is its seed",
            f"mean return of {EPISODES} deterministic episodes",
        )
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def write(results: Path = RESULTS, summary: Path = SUMMARY) -> None:
    """Writes the page, the table, the figure and the sentences in docs/distributed.md."""
    folders = sorted(path for path in results.glob("*/") if NAME.fullmatch(path.name))
    rows = [row(folder) for folder in folders]
    pd.DataFrame(rows).to_csv(results / "summary.csv", index=False, lineterminator="\n")
    draw(folders).savefig(results / "curves.png", dpi=110)
    file = results / "timing.json"
    timing = json.loads(file.read_text()) if file.exists() else None
    (results / "README.md").write_text(page(rows, timing))
    summary.write_text(between(summary.read_text(), MARKS, sentence(rows)))
