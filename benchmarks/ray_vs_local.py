"""Compares both executors on the Minitaur: 50 000 gradient steps, three seeds each.

    python -m benchmarks.ray_vs_local            # trains, then writes results/ray_vs_local/
    python -m benchmarks.ray_vs_local --page     # only writes it again from the tracked runs

Only the executor differs. The local runs are those of the study (scripts/study.py) that collect
without deterministic episodes; two of their seeds were run twice. Runs on Ray are stored under
runs/ray_vs_local/; the same command resumes interrupted ones and skips finished ones. An earlier
set of runs on Ray, which sent new weights every 50 steps instead of 10, is included as it is, and
so are the scores of two runs whose files were lost (lost.csv). A run that replaces a tracked one
keeps that one as `…-replaced-1`. The page lists every run and compares all of them.
"""

# ruff: noqa: E501 (the lines of the page)

import csv
import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import labkit
from benchmarks.implementations import ROOT
from benchmarks.page_text import between, counted, markdown
from labkit.analysis import statistics, tracked_runs
from labkit.parameters import grouped
from labkit.plotting.style import BLUE, GREY, ORANGE, subplots
from labkit.training import resuming, run_directory

STUDY = ROOT / "results" / "minitaur" / "v0.1" / "study"
RUNS, RESULTS = ROOT / "runs" / "ray_vs_local", ROOT / "results" / "ray_vs_local"
SUMMARY = ROOT / "docs" / "distributed.md"
# Tracked runs, which are not repeated: executor, folder, prefix of the run directories, seeds.
LOCAL = ("local", STUDY / "no-greedy_share", "seed-", (1, 2, 3))
# Those of labkit 0.1, with which the tracked runs were made.
EARLIER_DEFAULTS: dict[str, Any] = {
    "gamma": 0.99,
    "initial_collect_steps": 10_000,
    "critic_learning_rate": 3e-4,
    "actor_learning_rate": 3e-4,
    "alpha_learning_rate": 3e-4,
    "learning_rate_decay_steps": 0,
    "actor_update_period": 1,
    "action_repeat": 1,
    "collect_steps_per_iteration": 1,
    "n_step": 5,
    "target_entropy": -4.0,
    "replay_buffer_capacity": 1_000_000,
    "recent_transitions": 0,
    "symmetry_augmentation": False,
    "observation_scale": (3.14,) * 8 + (20.0,) * 8 + (5.7,) * 8 + (1.0,) * 4,
}
AGAIN = ("local", STUDY / "no-greedy_share-again", "seed-", (1, 2))
EARLIER = ("ray, every 50", RESULTS, "every-50-", (1, 2, 3))
LOST = RESULTS / "lost.csv"
MARKS = (
    "<!-- written by benchmarks.ray_vs_local: begin -->",
    "<!-- written by benchmarks.ray_vs_local: end -->",
)
FIELDS = (
    *("executor", "seed", "mean_return", "deviation", "samples_per_insert"),
    *("staleness_median", "staleness_max"),
)


def train(config: labkit.SACConfig) -> Path:
    """Makes, or resumes, one run on Ray unless it is finished; returns its directory."""
    path = RUNS / f"ray-{config.seed}"
    if not (path / "config.json").exists() or not resuming.is_finished(path, config):
        labkit.train_on_ray(config, 1, run=run_directory.open_run(path, config))
    return path


def score(path: Path, iterations: int) -> dict[str, float]:
    """Mean and standard deviation of the final returns of a run after `iterations` gradient steps.

    Raises:
        click.ClickException: the run has no final evaluation at that step.
    """
    if (path / "config.json").exists():
        table = run_directory.read_metrics(path)
        final = table[(table.gradient_step == iterations) & (table.eval_returns.map(len) >= 20)]
        if len(final):
            row = final.iloc[0]
            return {
                "mean_return": round(row.eval_return, 2),
                "deviation": round(float(np.std(row.eval_returns, ddof=1)), 2),
            }
    raise click.ClickException(f"{path} has no final evaluation after {iterations} gradient steps")


def tracked_rows(
    executor: str, folder: Path, prefix: str, seeds: tuple[int, ...], iterations: int
) -> list[dict[str, Any]]:
    """The rows of summary.csv for tracked runs, which are not repeated."""
    return [
        {"executor": executor, "seed": seed} | row(folder / f"{prefix}{seed}", iterations)
        for seed in seeds
    ]


def row(path: Path, iterations: int) -> dict[str, Any]:
    """A run's score, and the fields of its `ray.json` if it has one."""
    summary = json.loads((path / "ray.json").read_text()) if (path / "ray.json").exists() else {}
    kept = {name: summary[name] for name in FIELDS if name in summary}
    return score(path, iterations) | kept


def comparisons(rows: list[dict[str, Any]], lost: pd.DataFrame) -> pd.DataFrame:
    """Compares the local runs with each set of runs on Ray, from the present version to all.

    Args:
        rows: those of summary.csv.
        lost: the scores of runs whose files were lost.

    Returns:
        One row per set, with the columns runs on Ray (which), n, mean, minus local (difference of
        the means) and p (of Welch's two-sided t-test).
    """
    table = pd.DataFrame(rows)
    scores = {name: list(group.mean_return) for name, group in table.groupby("executor")}
    local, ray, earlier = scores["local"], scores["ray"], scores.get(EARLIER[0], [])
    gone = list(lost.mean_return)
    sets = {
        "tracked, this version": ray,
        "tracked and lost, this version": ray + gone,
        "tracked, earlier version": earlier,
        "all": ray + gone + earlier,
    }
    found = []
    for name, values in sets.items():
        if not values:
            continue
        difference = float(np.mean(values) - np.mean(local))
        p = statistics.welch(local, values) if min(len(values), len(local)) > 1 else np.nan
        found.append((name, len(values), float(np.mean(values)), difference, p))
    columns = ["runs on Ray", "n", "mean", "minus local", "p"]
    return pd.DataFrame(found, columns=columns)


def page(rows: list[dict[str, Any]], lost: pd.DataFrame, iterations: int) -> str:
    """The page: every run and the comparisons.

    Args:
        rows: those of summary.csv.
        lost: the scores of runs whose files were lost.
        iterations: gradient steps of each run.
    """
    listing = [
        {
            "executor": row["executor"],
            "seed": row["seed"],
            "mean return": f"{row['mean_return']:+.2f}",
            "files": "tracked",
        }
        for row in rows
    ]
    listing += [
        {
            "executor": row.executor,
            "seed": row.seed,
            "mean return": f"{row.mean_return:+.1f}",
            "files": f"lost; known from the {row.known_from}",
        }
        for row in lost.itertuples()
    ]
    local = [row["mean_return"] for row in rows if row["executor"] == "local"]
    compared = comparisons(rows, lost)
    shown = compared.assign(
        mean=compared["mean"].map("{:+.2f}".format),
        p=compared.p.map("{:.2g}".format),
        **{"minus local": compared["minus local"].map("{:+.2f}".format)},
    )
    return f"""# Both executors on the Minitaur

    .venv/bin/python -m benchmarks.ray_vs_local            # trains what is missing, then writes this page
    .venv/bin/python -m benchmarks.ray_vs_local --page     # only writes this page

Each run takes {grouped(iterations)} gradient steps. All runs have the defaults of labkit 0.1 with one change:
labkit 0.1 collected some episodes with the mean action, and these runs do not. The score of a run is the mean return
of 20 deterministic episodes. The table lists every run that was made: {counted(len(listing), "run")}, of which {len(lost)} were lost.

{markdown(pd.DataFrame(listing))}

"ray, every 50" is an earlier version of the executor. It sent new weights every 50 gradient steps instead of every 10. A seed does not fix what Reverb
samples, so two runs of one seed differ, and the table may list a seed twice. The local runs are those of [the study of labkit 0.1](../minitaur/v0.1/README.md), in its folders
`study/no-greedy_share` and `study/no-greedy_share-again`. The first command above trains only runs on Ray that are missing.

The {len(local)} local runs have a mean of {np.mean(local):+.2f}. The next table compares {len(compared)} sets of runs on Ray with them. p is the p-value of Welch's two-sided t-test. Runs that share a seed are not fully independent, so p is approximate.
It is not corrected for the {len(compared)} comparisons, whose sets overlap.

{markdown(shown)}

{conclusion(compared)}

![Final returns by executor, tracked runs](returns.png)
"""


def conclusion(compared: pd.DataFrame) -> str:
    """What the comparisons support; `compared` as of `comparisons`."""
    said = [
        f"{row['runs on Ray']}: {row['minus local']:+.2f} (p = {row.p:.2g})"
        for _, row in compared.iterrows()
        if row.p < 0.05
    ]
    found = "; ".join(said) or "none"
    return (
        f"Differences at level 0.05, before any correction: {found}. With so few runs, a larger p-value does not\n"
        "show that the executors are equal. [Notebook 04](../../notebooks/04_distributed_sac.ipynb) counts one run for each seed, and corrects the p-values."
    )


def sentence(rows: list[dict[str, Any]], lost: pd.DataFrame, iterations: int) -> str:
    """The sentences about these runs in docs/distributed.md."""
    local = [row["mean_return"] for row in rows if row["executor"] == "local"]
    compared = comparisons(rows, lost).set_index("runs on Ray")
    present, earlier = (
        compared.loc["tracked and lost, this version"],
        compared.loc["tracked, earlier version"],
    )
    return (
        f"On the Minitaur, each run took {grouped(iterations)} gradient steps with the defaults of labkit 0.1 and one change: it collected no\n"
        f"episodes with the mean action. {len(local)} runs on the local executor have a mean return of {np.mean(local):+.2f}. {present.n:.0f} runs on Ray, of which the files of {len(lost)} were lost, have {present['mean']:+.2f} (Welch's p = {present.p:.2g}).\n"
        f"{earlier.n:.0f} runs of an earlier version of the Ray executor have {earlier['mean']:+.2f} (p = {earlier.p:.2g}). That version sent weights less often. A repeated seed counts as another run here, so p is approximate; it is not corrected. So few runs cannot show that the executors are equal.\n"
        "[Notebook 04](../notebooks/04_distributed_sac.ipynb) counts one run for each seed, and corrects the p-values. [The page on both executors](../results/ray_vs_local/README.md) lists every run."
    )


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Draws the first run of each seed as a dot, with their mean, and repeated seeds as rings."""
    executors = {
        "local": ("local executor", BLUE),
        "ray": ("Ray, one worker", ORANGE),
        EARLIER[0]: ("Ray, weights every 50 steps", GREY),
    }
    with subplots(6, 2.6) as (figure, axes):
        for place, (executor, (_, colour)) in enumerate(executors.items()):
            first: dict[int, float] = {}
            for row in rows:
                score = row["mean_return"]
                if row["executor"] == executor and row["seed"] in first:
                    axes.plot(score, place, "o", color=colour, markerfacecolor="none")
                elif row["executor"] == executor:
                    first[row["seed"]] = score
                    axes.plot(score, place, "o", color=colour)
            if first:
                mean = np.mean(list(first.values()))
                axes.plot([mean] * 2, [place - 0.25, place + 0.25], color=colour)
        axes.set_yticks(range(len(executors)), [label for label, _ in executors.values()])
        axes.set_ylim(len(executors) - 0.4, -0.6)
        axes.set_xlabel(
            "mean return of 20 episodes; dot: the first run of a seed,\n"
            "line: their mean, ring: another run of a seed"
        )
    return figure


def replaced_rows(iterations: int) -> list[dict[str, Any]]:
    """The rows of tracked runs on Ray that later runs replaced."""
    return [
        {"executor": "ray", "seed": run_directory.read_config(path).seed} | row(path, iterations)
        for path in sorted(RESULTS.glob("ray-*-replaced-*"))
    ]


@click.command()
@click.option(
    "--iterations",
    type=click.IntRange(min=1),
    default=50_000,
    show_default=True,
    help="Gradient steps of each run.",
)
@click.option(
    "--seeds",
    multiple=True,
    type=click.IntRange(min=0),
    default=(1, 2, 3),
    show_default=True,
    help="Train these; the page lists all.",
)
@click.option("--page", "only_page", is_flag=True, help="Do not train; use the tracked runs.")
def main(iterations: int, seeds: tuple[int, ...], only_page: bool) -> None:
    """Trains on Ray, then writes the page, summary.csv, returns.png and each run's small files."""
    for seed in () if only_page else seeds:
        config = labkit.SACConfig(num_iterations=iterations, seed=seed, **EARLIER_DEFAULTS)
        path = train(config)
        tracked_runs.keep_replaced(path, RESULTS / path.name)
        tracked_runs.copy_records(path, RESULTS / path.name)
    rows = tracked_rows(*LOCAL, iterations) + tracked_rows(*AGAIN, iterations)
    made = tuple(sorted(int(p.name[4:]) for p in RESULTS.glob("ray-*") if p.name[4:].isdigit()))
    rows += tracked_rows("ray", RESULTS, "ray-", made, iterations) + replaced_rows(iterations)
    rows += tracked_rows(*EARLIER, iterations)
    with (RESULTS / "summary.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draw(rows).savefig(RESULTS / "returns.png", dpi=110)
    lost = pd.read_csv(LOST)
    (RESULTS / "README.md").write_text(page(rows, lost, iterations))
    text = sentence(rows, lost, iterations)
    SUMMARY.write_text(between(SUMMARY.read_text(), MARKS, text))


if __name__ == "__main__":
    main()
