"""Trains the Minitaur study's missing runs, and writes its scores and the results page.

    python scripts/study.py              # hours; a second call resumes what was stopped
    python scripts/study.py --dry-run    # the runs that are missing
    python scripts/pages.py              # the scores, the page and its figures alone, in seconds

The plan is labkit's defaults over seeds, and ablations: the defaults with one choice of `MINITAUR`
set back to labkit's general default, which is the value of the TF-Agents tutorial. Runs are
trained in runs/study/SETTING/seed-N. Their small files are kept in results/minitaur/study, and
results/minitaur/scores.csv has a row for each run and budget. Its column `kind` groups machines
that round alike; it is empty for new runs.

How defaults are chosen, written down before the runs: a candidate trains with the development
seeds 1 to 5 for 100 000 env steps, on one kind of machine. A change is adopted if it raises the
worst return or the IQM by 2 and lowers neither by more than 1. A choice is dropped if the mean
falls by less than 1 without it. results/minitaur/tried.csv has each of these runs. Seeds 31 to 40
choose nothing: each runs once, with the final defaults.
"""

import itertools
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np
import pandas as pd

import labkit
from labkit.analysis.runs import StoredRun, find_runs
from labkit.config import MINITAUR, SACConfig
from labkit.parameters import grouped

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "runs" / "study"
KEPT = ROOT / "results" / "minitaur" / "study"
SCORES = KEPT.parent / "scores.csv"
WALKS = 10.0  # return of a robot that walks
SMALL_FILES = ("config.json", "metrics.csv")
INTERVALS = {"eval_interval": 2_500, "log_interval": 500}

GENERAL = {field.name: field.metadata["default"] for field in attrs.fields(SACConfig)}
RATES = ("critic_learning_rate", "actor_learning_rate", "alpha_learning_rate")
# The general default of the target entropy is the Minitaur's, too.
TUTORIAL: dict[str, Any] = {name: GENERAL[name] for name in MINITAUR if name != "target_entropy"}
TUTORIAL |= {"replay_buffer_capacity": 10_000, "initial_collect_steps": 10_000}
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    **{f"no-{name}": {name: value} for name, value in TUTORIAL.items() if name not in RATES},
    "no-learning_rates": {name: TUTORIAL[name] for name in (*RATES, "learning_rate_decay_steps")},
    "source": TUTORIAL,  # the source document, the tutorial
    "n_step-3": {"n_step": 3},
    "n_step-8": {"n_step": 8},
}
BUDGET = 60_000  # env steps of an ablation, warm-up included


@attrs.frozen
class Job:
    """One planned run: a key of `SETTINGS`, a seed, and env steps with the warm-up."""

    setting: str
    seed: int
    env_steps: int

    @property
    def config(self) -> SACConfig:
        """The configuration; one gradient step follows each env step after the warm-up."""
        changed = {**SETTINGS[self.setting], **INTERVALS, "seed": self.seed}
        steps = self.env_steps - SACConfig(**changed).initial_collect_steps
        return SACConfig(**changed, num_iterations=steps)

    @property
    def folder(self) -> Path:
        """Where its files are, below `RUNS` and `KEPT`."""
        return Path(self.setting, f"seed-{self.seed}")


# A larger budget resumes the run of a smaller one.
DEFAULT_SEEDS = {BUDGET: range(1, 11), 100_000: (1, 4, 5, 6, 7), 300_000: (4, 5, 6)}
PLAN = (
    *(Job("defaults", seed, steps) for steps, seeds in DEFAULT_SEEDS.items() for seed in seeds),
    *(
        Job(name, seed, BUDGET)
        for name in SETTINGS
        if name != "defaults"
        for seed in ((1, 2) if name.startswith("n_step") else (1, 2, 3))
    ),
)


@click.command()
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Cores.")
@click.option("--dry-run", is_flag=True, help="List the missing runs only.")
@click.option("--train", type=int, hidden=True, help="Train this number of the plan, here.")
def main(workers: int, dry_run: bool, train: int | None) -> None:
    """Trains the missing runs of the plan, keeps their small files, and writes the page."""
    if train is not None:
        job = PLAN[train]
        labkit.train(job.config, labkit.open_run(RUNS / job.folder, job.config))
        return
    if dry_run:
        for job in PLAN:
            if not finished(job):
                click.echo(f"{job.folder} to {grouped(job.env_steps)} env steps")
        return
    failed = run_missing(workers)
    subprocess.run([sys.executable, ROOT / "scripts" / "pages.py"], cwd=ROOT, check=True)
    if failed:
        raise click.ClickException("; ".join(failed))


def finished(job: Job) -> bool:
    """Whether the kept files have the run's final evaluation."""
    if not (KEPT / job.folder / "config.json").exists():
        return False
    (run,), _ = find_runs(KEPT / job.folder)
    evaluation = run.evaluation_at(job.config.num_iterations)
    return evaluation is not None and len(evaluation.eval_returns) == job.config.num_eval_episodes


def run_missing(workers: int) -> list[str]:
    """Trains what is missing, `workers` runs at a time, shorter budgets first; returns failures."""
    cores = itertools.cycle(sorted(os.sched_getaffinity(0)))
    failed: list[str] = []
    for env_steps in sorted({job.env_steps for job in PLAN}):
        jobs = [job for job in PLAN if job.env_steps == env_steps and not finished(job)]
        # Each worker, and the processes that it starts, has one core.
        pool = ThreadPoolExecutor(workers, initializer=lambda: pin(next(cores)))
        try:
            failed += [reason for reason in pool.map(run_one, jobs) if reason]
        finally:  # after Ctrl-C no further run starts; those that run end with a checkpoint
            pool.shutdown(cancel_futures=True)
    return failed


def pin(core: int) -> None:
    """Restricts this thread, and the processes that it starts, to one core."""
    os.sched_setaffinity(0, {core})


def run_one(job: Job) -> str:
    """Trains one run in its own process and keeps its small files; returns why it failed, or ''."""
    if (KEPT / job.folder).exists() and not (RUNS / job.folder).exists():
        return f"{job.folder} is kept, but its checkpoint is not in {RUNS}: it cannot be resumed"
    log = RUNS / f"{job.setting}-{job.seed}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    click.echo(f"{job.folder} to {grouped(job.env_steps)} env steps: {log}")
    command = [sys.executable, __file__, "--train", str(PLAN.index(job))]
    with log.open("a") as out:
        done = subprocess.run(command, cwd=ROOT, stdout=out, stderr=out, check=False)
    source, target = RUNS / job.folder, KEPT / job.folder
    rows = [(folder / "metrics.csv") for folder in (source, target)]
    if rows[1].exists() and not rows[0].read_bytes().startswith(rows[1].read_bytes()):
        return f"{target} holds another run, which is not replaced"
    if rows[0].exists():
        target.mkdir(parents=True, exist_ok=True)
        for name in SMALL_FILES:
            shutil.copyfile(source / name, target / name)
    return f"{job.folder} failed: see {log}" if done.returncode else ""


# --- scores


def kept_runs() -> list[StoredRun]:
    """The kept runs of the plan, each named by its folder."""
    found, damaged = find_runs(KEPT)
    for line in damaged:
        click.echo(line, err=True)
    named = [attrs.evolve(run, setting=run.path.parent.name) for run in found]
    return [run for run in named if run.setting in SETTINGS]


def training_minutes(metrics: pd.DataFrame) -> pd.Series:
    """Minutes of training up to each row, without warm-up and evaluations."""
    between = metrics.wall_seconds.diff().where(metrics.eval_return.isna(), 0)
    return between.fillna(0).cumsum() / 60


def first_at(evaluated: pd.DataFrame, column: str = "eval_return") -> pd.Series | None:
    """The first of two consecutive evaluations with a mean of at least `WALKS`, or None."""
    reached = evaluated[column] >= WALKS
    both = evaluated[reached & reached.shift(-1, fill_value=False)]
    return None if both.empty else both.iloc[0]


def score(job: Job, run: StoredRun) -> dict[str, Any]:
    """The row of `scores.csv` of one run after the env steps of `job`."""
    row = run.evaluation_at(job.config.num_iterations)
    first = first_at(run.evaluations)
    assert row is not None
    return {
        "setting": job.setting,
        "seed": job.seed,
        "env_steps": job.env_steps,
        "return": round(float(row.eval_return), 4),
        "return_sd": round(float(np.std(row.eval_returns, ddof=1)), 3),
        "length": round(float(np.mean(row.eval_lengths)), 2),
        "distance": round(float(np.mean(row.eval_distances)), 4),
        "episodes": len(row.eval_returns),
        "steps_to_10": None if first is None else float(first.env_step),
    }


def write_scores() -> pd.DataFrame:
    """Writes scores.csv: a row for each kept run and budget, then rows whose runs are not kept."""
    runs = {(run.setting, run.config.seed): run for run in kept_runs()}
    jobs = sorted((j for j in PLAN if finished(j)), key=lambda j: (j.setting, j.env_steps, j.seed))
    new = pd.DataFrame([score(job, runs[job.setting, job.seed]) for job in jobs])
    old = pd.read_csv(SCORES)
    kinds = dict(zip(zip(old.setting, old.seed, strict=True), old.kind, strict=True))
    new["kind"] = [kinds.get(key) for key in zip(new.setting, new.seed, strict=True)]
    table = pd.concat([new, old[~old.setting.isin(SETTINGS)]], ignore_index=True)
    table.to_csv(SCORES, index=False)
    return table


if __name__ == "__main__":
    main()
