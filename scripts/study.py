"""Trains the Minitaur study's missing runs, and writes its scores and its table.

    python scripts/study.py              # hours; a second call resumes what was stopped
    python scripts/study.py --dry-run    # the runs that are missing
    python scripts/study.py --page       # the scores and the table alone, in seconds

The plan is labkit's defaults over seeds, and ablations: the defaults with one choice of `MINITAUR`
set back to labkit's general default, which is the value of the TF-Agents tutorial. Runs are
trained in runs/study/SETTING/seed-N. Their small files are kept in results/minitaur/study, with
scores.csv, a row for each run, and README.md, the table.
"""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import click
import pandas as pd

import labkit
from labkit.analysis import statistics
from labkit.analysis.runs import StoredRun, compare, find_runs, rank, scores_at
from labkit.config import MINITAUR, SACConfig
from labkit.parameters import brief, grouped

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "runs" / "study"
KEPT = ROOT / "results" / "minitaur" / "study"
SMALL_FILES = ("config.json", "metrics.csv")
INTERVALS = {"eval_interval": 2_500, "log_interval": 500}

GENERAL = {field.name: field.metadata["default"] for field in attrs.fields(SACConfig)}
RATES = ("critic_learning_rate", "actor_learning_rate", "alpha_learning_rate")
# The general default of the target entropy is the Minitaur's, too.
TUTORIAL: dict[str, Any] = {name: GENERAL[name] for name in MINITAUR if name != "target_entropy"}
TUTORIAL["replay_buffer_capacity"] = 10_000
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    **{f"no-{name}": {name: value} for name, value in TUTORIAL.items() if name not in RATES},
    "no-learning_rates": {name: TUTORIAL[name] for name in (*RATES, "learning_rate_decay_steps")},
    "source": TUTORIAL,  # the source document, the tutorial
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
    *(Job(name, seed, BUDGET) for name in SETTINGS if name != "defaults" for seed in (1, 2, 3)),
)


@click.command()
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Cores.")
@click.option("--dry-run", is_flag=True, help="List the missing runs only.")
@click.option("--page", is_flag=True, help="Write the scores and the table only.")
@click.option("--train", type=int, hidden=True, help="Train this number of the plan, here.")
def main(workers: int, dry_run: bool, page: bool, train: int | None) -> None:
    """Trains the missing runs of the plan, keeps their small files, and writes the table."""
    if train is not None:
        job = PLAN[train]
        labkit.train(job.config, labkit.open_run(RUNS / job.folder, job.config))
        return
    if dry_run:
        for job in PLAN:
            if not finished(job):
                click.echo(f"{job.folder} to {grouped(job.env_steps)} env steps")
        return
    failed = [] if page else run_missing(workers)
    write()
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


# --- scores and table


def kept_runs() -> list[StoredRun]:
    """The kept runs of the plan, each named by its folder."""
    found, damaged = find_runs(KEPT)
    for line in damaged:
        click.echo(line, err=True)
    named = [attrs.evolve(run, setting=run.path.parent.name) for run in found]
    return [run for run in named if run.setting in SETTINGS]


def scores(found: list[StoredRun]) -> Iterator[pd.DataFrame]:
    """For each budget of the plan, a row for each planned run that was evaluated then."""
    for env_steps in sorted({job.env_steps for job in PLAN}):
        tables = []
        for setting in SETTINGS:
            jobs = [job for job in PLAN if (job.setting, job.env_steps) == (setting, env_steps)]
            seeds = {job.seed for job in jobs if finished(job)}
            members = [run for run in found if run.setting == setting and run.config.seed in seeds]
            if members:
                tables.append(scores_at(members, jobs[0].config.num_iterations)[0])
        if tables:
            yield pd.concat(tables, ignore_index=True).assign(env_steps=env_steps)


def write() -> None:
    """Writes scores.csv and README.md from the kept runs."""
    by_budget = list(scores(kept_runs()))
    table = pd.concat(by_budget, ignore_index=True)
    columns = ["setting", "seed", "env_steps", "return", "error", "length", "distance"]
    table[columns].round(4).to_csv(KEPT / "scores.csv", index=False)
    lines = [
        "# The Minitaur study",
        "",
        "`python scripts/study.py` trains these runs and writes this page. A score is the mean of",
        f"{SACConfig().num_eval_episodes} deterministic episodes after the last step. `IQM` is the",
        "interquartile mean over seeds, with a nominal 95 % bootstrap interval for five seeds or",
        "more. `p` is that of the difference from the defaults (Yuen's test, Holm's correction).",
        "[scores.csv](scores.csv) has a row for each run.",
    ]
    for scored in by_budget:
        lines += ["", f"## After {grouped(int(scored.env_steps.iloc[0]))} env steps", ""]
        lines += list(markdown(scored))
    (KEPT / "README.md").write_text("\n".join(lines) + "\n")
    click.echo(f"{KEPT / 'README.md'}: {len(table)} scores")


def markdown(scored: pd.DataFrame) -> Iterator[str]:
    """The table of one budget, best setting first."""
    several = scored[scored.groupby("setting").seed.transform("nunique") > 1]
    compared = compare(several, baseline="defaults")
    yield "| setting | changed | seeds | IQM | worst | best | minus the defaults | p |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, row in rank(scored).iterrows():
        returns = scored["return"][scored.setting == name]
        interval = ""
        if len(returns) >= statistics.MIN_SEEDS_FOR_INTERVAL:
            interval = f" ({row.low:+.2f} to {row.high:+.2f})"
        fields = SETTINGS[str(name)].items()
        words = [f"`{key}` {'none' if value == () else brief(value)}" for key, value in fields]
        changed = ", ".join(words) if len(words) < 5 else f"all {len(words)} choices"
        cells = [name, changed, len(returns), f"{row.iqm:+.2f}{interval}"]
        cells += [f"{returns.min():+.2f}", f"{returns.max():+.2f}"]
        if name in compared.index:
            cells += [f"{compared.difference[name]:+.2f}", f"{compared.corrected[name]:.2g}"]
        else:
            cells += ["", ""]
        yield f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
