"""Both executors on the Minitaur, 50 000 steps, three seeds each: about two hours.

    python -m benchmarks.ray_vs_local                 # writes results/ray_vs_local/

Everything but the executor is the same. Runs lie under runs/ray_vs_local/ and go on where they were
stopped; finished ones are kept.
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
from benchmarks.contenders import ROOT
from labkit import opening, runs
from labkit.figures import BLUE, ORANGE, STYLE

RUNS, RESULTS = ROOT / "runs" / "ray_vs_local", ROOT / "results" / "ray_vs_local"
FIELDS = ("executor", "seed", "mean_return", "deviation", "minutes", "samples_per_insert")
FIELDS = (*FIELDS, "staleness_median", "staleness_max")


def train(executor: str, config: labkit.SACConfig) -> None:
    """One run, unless it is finished."""
    path = RUNS / f"{executor}-{config.seed}"
    if (path / "config.json").exists() and opening.is_finished(path, config):
        return
    run = opening.open_run(path, config)
    if executor == "ray":
        labkit.train_on_ray(config, 1, run=run)
    else:
        labkit.train(config, run=run)


def keep(executor: str, seed: int) -> dict[str, Any]:
    """Copies a run's small files to results/; returns its row of summary.csv."""
    source, target = RUNS / f"{executor}-{seed}", RESULTS / f"{executor}-{seed}"
    runs.copy_records(source, target)
    table = runs.read_metrics(source)
    last = table.dropna(subset="eval_return").iloc[-1]
    row: dict[str, Any] = dict.fromkeys(FIELDS, "")
    row |= {"executor": executor, "seed": seed, "mean_return": round(last.eval_return, 2)}
    row["deviation"] = round(float(np.std(last.eval_returns, ddof=1)), 2)
    row["minutes"] = round(float(table.wall_seconds.max()) / 60, 1)
    if (source / "ray.json").exists():
        summary = json.loads((source / "ray.json").read_text())
        row |= {name: summary[name] for name in FIELDS if name in summary}
    return row


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Every run as a dot, the mean of each executor as a line."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5, 2.2), layout="constrained")
        axes = figure.subplots()
        for place, (executor, colour) in enumerate((("local", BLUE), ("ray", ORANGE))):
            returns = [row["mean_return"] for row in rows if row["executor"] == executor]
            axes.plot(returns, [place] * len(returns), "o", color=colour)
            if returns:
                axes.plot([np.mean(returns)] * 2, [place - 0.25, place + 0.25], color=colour)
        axes.set_yticks([0, 1], ["local executor", "Ray, one collector"])
        axes.set_ylim(1.6, -0.6)
        axes.set_xlabel("mean return over 20 greedy episodes, one dot a seed")
    return figure


@click.command()
@click.option("--iterations", default=50_000, show_default=True, help="Gradient steps of each run.")
@click.option("--seeds", multiple=True, type=int, default=(0, 1, 2), show_default=True)
@click.option("--executors", multiple=True, default=("local", "ray"), show_default=True)
def main(iterations: int, seeds: tuple[int, ...], executors: tuple[str, ...]) -> None:
    """Trains, then writes summary.csv, returns.png and each run's small files."""
    rows = []
    for seed in seeds:
        for executor in executors:
            train(executor, labkit.SACConfig(num_iterations=iterations, seed=seed))
            rows.append(keep(executor, seed))
            print(rows[-1], flush=True)
    with Path(RESULTS / "summary.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draw(rows).savefig(RESULTS / "returns.png", dpi=110)


if __name__ == "__main__":
    main()
