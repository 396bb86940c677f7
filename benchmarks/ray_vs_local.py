"""Compares both executors on the Minitaur: 50 000 gradient steps, three seeds each.

    python -m benchmarks.ray_vs_local                 # writes results/ray_vs_local/

Only the executor differs. The local runs are those of the study (scripts/study.py) that collect
without deterministic episodes; two of their seeds were run twice. Runs on Ray are stored under
runs/ray_vs_local/; the same command resumes interrupted ones and skips finished ones. An earlier
set of runs on Ray, which sent new weights every 50 steps instead of 10, is included as it is.
"""

import csv
import json
from pathlib import Path
from typing import Any

import click
import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

import labkit
from benchmarks.implementations import ROOT
from labkit.plotting.style import BLUE, GREY, ORANGE, STYLE
from labkit.training import run_directory

STUDY = ROOT / "results" / "minitaur" / "study"
RUNS, RESULTS = ROOT / "runs" / "ray_vs_local", ROOT / "results" / "ray_vs_local"
# Tracked runs, which are not repeated: executor, folder, prefix of the run directories, seeds.
LOCAL = ("local", STUDY / "no-greedy_share", "seed-", (1, 2, 3))
AGAIN = ("local", STUDY / "no-greedy_share-again", "seed-", (1, 2))
EARLIER = ("ray, every 50", RESULTS, "every-50-", (1, 2, 3))
FIELDS = (
    *("executor", "seed", "mean_return", "deviation", "samples_per_insert"),
    *("staleness_median", "staleness_max"),
)


def train(config: labkit.SACConfig) -> Path:
    """Makes, or resumes, one run on Ray unless it is finished; returns its directory."""
    path = RUNS / f"ray-{config.seed}"
    if not (path / "config.json").exists() or not run_directory.is_finished(path, config):
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


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Draws every run as a dot and the mean of each executor as a line."""
    executors = {
        "local": ("local executor", BLUE),
        "ray": ("Ray, one collector", ORANGE),
        EARLIER[0]: ("Ray, weights every 50 steps", GREY),
    }
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6, 2.6), layout="constrained")
        axes = figure.subplots()
        for place, (executor, (_, colour)) in enumerate(executors.items()):
            returns = [row["mean_return"] for row in rows if row["executor"] == executor]
            axes.plot(returns, [place] * len(returns), "o", color=colour)
            if returns:
                axes.plot([np.mean(returns)] * 2, [place - 0.25, place + 0.25], color=colour)
        axes.set_yticks(range(len(executors)), [label for label, _ in executors.values()])
        axes.set_ylim(len(executors) - 0.4, -0.6)
        axes.set_xlabel("return of 20 deterministic episodes; dot: one run, line: mean")
    return figure


@click.command()
@click.option("--iterations", default=50_000, show_default=True, help="Gradient steps of each run.")
@click.option("--seeds", multiple=True, type=int, default=(1, 2, 3), show_default=True)
def main(iterations: int, seeds: tuple[int, ...]) -> None:
    """Trains on Ray, then writes summary.csv, returns.png and each run's small files."""
    rows = tracked_rows(*LOCAL, iterations) + tracked_rows(*AGAIN, iterations)
    for seed in seeds:
        config = labkit.SACConfig(num_iterations=iterations, seed=seed, greedy_share=0.0)
        path = train(config)
        run_directory.copy_records(path, RESULTS / path.name)
        rows.append({"executor": "ray", "seed": seed} | row(path, iterations))
        print(rows[-1], flush=True)
    rows += tracked_rows(*EARLIER, iterations)
    with Path(RESULTS / "summary.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draw(rows).savefig(RESULTS / "returns.png", dpi=110)


if __name__ == "__main__":
    main()
