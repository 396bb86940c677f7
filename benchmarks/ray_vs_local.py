"""Both executors on the Minitaur, 50 000 gradient steps, three seeds each.

    python -m benchmarks.ray_vs_local                 # writes results/ray_vs_local/

Everything but the executor is the same. The local runs are the study's without greedy episodes in
the collection, the setting whose seeds differ least: two executors are told apart soonest there.
Runs on Ray lie under runs/ray_vs_local/ and go on where they were stopped; finished ones are kept.
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

LOCAL = ROOT / "results" / "minitaur" / "study" / "greedy_share-back"
SETTING = {"greedy_share": 0.0}
RUNS, RESULTS = ROOT / "runs" / "ray_vs_local", ROOT / "results" / "ray_vs_local"
FIELDS = ("executor", "seed", "mean_return", "deviation", "minutes", "samples_per_insert")
FIELDS = (*FIELDS, "staleness_median", "staleness_max")


def train(config: labkit.SACConfig) -> Path:
    """One run on Ray, unless it is finished; returns its directory."""
    path = RUNS / f"ray-{config.seed}"
    if not (path / "config.json").exists() or not opening.is_finished(path, config):
        labkit.train_on_ray(config, 1, run=opening.open_run(path, config))
    return path


def score(path: Path, iterations: int) -> dict[str, float]:
    """The final return of the run in `path` after so many gradient steps, and the minutes.

    Raises:
        click.ClickException: it has no final evaluation there.
    """
    if (path / "config.json").exists():
        table = runs.read_metrics(path)
        final = table[(table.gradient_step == iterations) & (table.eval_returns.map(len) >= 20)]
        if len(final):
            row = final.iloc[0]
            return {
                "mean_return": round(row.eval_return, 2),
                "deviation": round(float(np.std(row.eval_returns, ddof=1)), 2),
                "minutes": round(row.wall_seconds / 60, 1),
            }
    raise click.ClickException(f"{path} has no final evaluation after {iterations} gradient steps")


def keep(source: Path, iterations: int) -> dict[str, Any]:
    """Copies a Ray run's small files to results/; returns its row of summary.csv."""
    runs.copy_records(source, RESULTS / source.name)
    row = score(source, iterations)
    summary = json.loads((source / "ray.json").read_text())
    return row | {name: summary[name] for name in FIELDS if name in summary}


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Every run as a dot, the mean of each executor as a line."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6, 2.2), layout="constrained")
        axes = figure.subplots()
        for place, (executor, colour) in enumerate((("local", BLUE), ("ray", ORANGE))):
            returns = [row["mean_return"] for row in rows if row["executor"] == executor]
            axes.plot(returns, [place] * len(returns), "o", color=colour)
            if returns:
                axes.plot([np.mean(returns)] * 2, [place - 0.25, place + 0.25], color=colour)
        axes.set_yticks([0, 1], ["local executor", "Ray, one collector"])
        axes.set_ylim(1.6, -0.6)
        axes.set_xlabel("mean return of 20 greedy episodes; dot: one seed")
    return figure


@click.command()
@click.option("--iterations", default=50_000, show_default=True, help="Gradient steps of each run.")
@click.option("--seeds", multiple=True, type=int, default=(1, 2, 3), show_default=True)
def main(iterations: int, seeds: tuple[int, ...]) -> None:
    """Trains on Ray, then writes summary.csv, returns.png and each run's small files."""
    rows = []
    for seed in seeds:
        rows.append({"executor": "local", "seed": seed} | score(LOCAL / f"seed-{seed}", iterations))
        config = labkit.SACConfig(num_iterations=iterations, seed=seed, **SETTING)
        rows.append({"executor": "ray", "seed": seed} | keep(train(config), iterations))
        print(*rows[-2:], sep="\n", flush=True)
    with Path(RESULTS / "summary.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draw(rows).savefig(RESULTS / "returns.png", dpi=110)


if __name__ == "__main__":
    main()
