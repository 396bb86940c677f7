"""Solves LunarLanderContinuous with both executors, and times them next to Stable-Baselines3.

    python -m benchmarks.lunarlander            # local and ray, seeds 0 1 2, then the timing
    python -m benchmarks.lunarlander --executors ray --seeds 3 --no-timing
    python -m benchmarks.lunarlander --no-train --no-timing    # only summarises existing runs

All of it takes an afternoon. A run counts as solved, and ends, at a mean return of at least 200
over 20 deterministic episodes within 300 000 env steps. Runs are stored under runs/lunarlander/;
the same command resumes interrupted ones. Their small files are copied to results/lunarlander/,
next to summary.csv, timing.json and curves.png.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import matplotlib as mpl
from matplotlib.figure import Figure

import labkit
from benchmarks import implementations
from benchmarks.throughput import machine
from labkit.plotting.style import BLUE, ORANGE, STYLE
from labkit.training import run_directory, signals

ENV = "LunarLanderContinuous-v2"
SOLVED, EPISODES, MOST_ENV_STEPS = 200.0, 20, 300_000
TIMED_STEPS, WARMUP_STEPS = 20_000, 1_000
RUNS = implementations.ROOT / "runs" / "lunarlander"
RESULTS = implementations.ROOT / "results" / "lunarlander"


def configure(seed: int, **changes: Any) -> labkit.SACConfig:
    """Settings tuned for the lander, with the evaluation that the criterion requires."""
    settings: dict[str, Any] = {
        "env_name": ENV,
        "seed": seed,
        "num_iterations": MOST_ENV_STEPS - 10_000,
        "initial_collect_steps": 10_000,
        "critic_learning_rate": 7.3e-4,
        "actor_learning_rate": 7.3e-4,
        "alpha_learning_rate": 7.3e-4,
        "target_update_tau": 0.01,
        "interim_eval_episodes": EPISODES,
        "num_eval_episodes": EPISODES,
        "eval_interval": 10_000,
    }
    return labkit.SACConfig(**{**settings, **changes})


def train(executor: str, config: labkit.SACConfig, run: run_directory.Run) -> None:
    """Trains with one executor, "local" or "ray"."""
    if executor == "ray":
        labkit.train_on_ray(config, 1, run=run)
    else:
        labkit.train(config, run=run)


def solved_at(path: Path) -> tuple[int, float] | None:
    """Env step and mean return of the first evaluation that counts as solved, or None."""
    table = run_directory.read_metrics(path)
    enough = table[(table.eval_returns.map(len) >= EPISODES) & (table.eval_return >= SOLVED)]
    if enough.empty:
        return None
    return int(enough.env_step.iloc[0]), float(enough.eval_return.iloc[0])


def solve(executor: str, seed: int) -> None:
    """Trains until solved or until the budget is spent; skips a run that is finished."""
    path, config = RUNS / f"{executor}-{seed}", configure(seed)
    if (path / "config.json").exists() and (
        solved_at(path) or run_directory.is_finished(path, config)
    ):
        return
    run, stop = run_directory.open_run(path, config), path / "stop"
    stop.unlink(missing_ok=True)
    os.environ[signals.FILE_VARIABLE] = str(stop)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(1):
            if solved_at(path):
                stop.touch()
                return

    threading.Thread(target=watch, daemon=True).start()
    train(executor, config, run)
    over.set()


def keep(executor: str, seed: int) -> dict[str, Any]:
    """Copies a run's small files to results/; returns its row of summary.csv."""
    source, target = RUNS / f"{executor}-{seed}", RESULTS / f"{executor}-{seed}"
    run_directory.copy_records(source, target)
    table, found = run_directory.read_metrics(source), solved_at(source)
    evaluated = table.dropna(subset="eval_return")
    spent = run_directory.is_finished(source, configure(seed))
    return {
        "executor": executor,
        "seed": seed,
        "ended": "solved" if found else "not solved" if spent else "not finished",
        "solved_at_env_step": found[0] if found else "",
        "mean_return": round(found[1] if found else float(evaluated.eval_return.max()), 1),
        "env_steps": int(table.env_step.max()),
        "minutes": round(float(table.wall_seconds.max()) / 60, 1),
    }


def time_labkit(executor: str) -> float:
    """Wall seconds of 20 000 iterations without evaluations, in this process."""
    last = WARMUP_STEPS + TIMED_STEPS
    config = configure(
        0,
        num_iterations=last,
        initial_collect_steps=1_000,
        eval_interval=0,
        interim_eval_episodes=1,
        num_eval_episodes=1,
        log_interval=WARMUP_STEPS,
    )
    path = RUNS / f"timing-{executor}"
    shutil.rmtree(path, ignore_errors=True)
    run = run_directory.open_run(path, config)
    train(executor, config, run)
    table = run.metrics()
    rows = table[table.critic_loss.notna()].set_index("gradient_step").wall_seconds
    return float(rows[last] - rows[WARMUP_STEPS])


def timing(with_sb3: bool, repeats: int) -> dict[str, Any]:
    """Times both executors and Stable-Baselines3 in alternation, each in its own process."""
    commands = {
        name: [sys.executable, "-m", "benchmarks.lunarlander", "--time", name]
        for name in ("local", "ray")
    }
    if with_sb3:
        implementations.make_sb3_venv()
        module = "benchmarks.lunarlander_sb3"
        commands["sb3"] = [str(implementations.SB3_PYTHON), "-m", module, str(TIMED_STEPS)]
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    env = {**os.environ, "PYTHONPATH": str(implementations.ROOT)}
    for _ in range(repeats):
        for name, command in commands.items():
            done = subprocess.run(
                command,
                cwd=implementations.ROOT,
                env=env,
                capture_output=True,
                text=True,
                timeout=1800,
            )
            if done.returncode:
                raise RuntimeError(f"{name} failed: {done.stderr[-400:]}")
            seconds[name].append(float(done.stdout.strip().splitlines()[-1]))
    return {"machine": machine(), "seconds_per_20000_steps": seconds}


def draw(folders: Sequence[Path]) -> Figure:
    """Draws every evaluation of every run: mean return over env steps."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7, 3.5), layout="constrained")
        axes = figure.subplots()
        for folder in folders:
            table = run_directory.read_metrics(folder).dropna(subset="eval_return")
            colour = BLUE if folder.name.startswith("local") else ORANGE
            axes.plot(table.env_step, table.eval_return, "o-", color=colour, markersize=3)
        for colour, label in ((BLUE, "local executor"), (ORANGE, "Ray, one collector")):
            axes.plot([], [], "o-", color=colour, label=label)
        axes.axhline(SOLVED, color="black", linewidth=1, linestyle=":")
        axes.set_xlabel("env steps")
        axes.set_ylabel("mean return of 20 deterministic episodes")
        axes.legend()
    return figure


@click.command()
@click.option("--executors", multiple=True, default=("local", "ray"), show_default=True)
@click.option("--seeds", multiple=True, type=int, default=(0, 1, 2), show_default=True)
@click.option("--train/--no-train", "trained", default=True, help="Train, or use existing runs.")
@click.option("--timing/--no-timing", "timed", default=True, help="Time 20 000 steps.")
@click.option("--without-sb3", is_flag=True, help="Leave Stable-Baselines3 out.")
@click.option("--repeats", default=3, show_default=True, help="Rounds of the timing.")
@click.option("--time", "only", type=click.Choice(["local", "ray"]), hidden=True)
def main(
    executors: Sequence[str],
    seeds: Sequence[int],
    trained: bool,
    timed: bool,
    without_sb3: bool,
    repeats: int,
    only: str | None,
) -> None:
    """Trains until solved, times, and writes results/lunarlander/."""
    if only:
        print(time_labkit(only))
        return
    begin = time.monotonic()
    RESULTS.mkdir(parents=True, exist_ok=True)
    rows = []
    for seed in seeds:
        for executor in executors:
            if trained:
                solve(executor, seed)
            elif not (RUNS / f"{executor}-{seed}" / "config.json").exists():
                continue
            rows.append(keep(executor, seed))
            print(rows[-1])
    if not rows:
        raise click.ClickException(f"{RUNS} contains no run of these executors and seeds")
    with (RESULTS / "summary.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    folders = [RESULTS / f"{row['executor']}-{row['seed']}" for row in rows]
    draw(folders).savefig(RESULTS / "curves.png", dpi=110)
    if timed:
        found = timing(not without_sb3, repeats)
        (RESULTS / "timing.json").write_text(json.dumps(found, indent=1) + "\n")
        print(found["seconds_per_20000_steps"])
    print(f"{(time.monotonic() - begin) / 60:.0f} minutes; {RESULTS} written")


if __name__ == "__main__":
    main()
