"""Runs the Minitaur study, tracks its small files, and writes its page.

python scripts/results.py                       all of the following
python scripts/results.py run --setting defaults --seed 3 --budget 60000
python scripts/results.py track                 runs/results/ into results/minitaur/
python scripts/results.py starts                study/starts.csv, for runs whose start it lacks
python scripts/results.py page                  results/minitaur/README.md and its figures
"""

import sys
import tempfile
from pathlib import Path

import attrs
import click
import numpy as np

import labkit
from labkit.analysis import arithmetic, compare, tracked_runs
from labkit.config import SACConfig
from labkit.errors import ParameterError
from labkit.training import resuming
from labkit.training.run_directory import read_metrics

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]
import readme_table  # noqa: E402
import results_page  # noqa: E402
import study  # noqa: E402

from benchmarks import side_by_side  # noqa: E402

RUNS = ROOT / "runs" / "results"
KEPT = ROOT / "results" / "minitaur" / "study"
STARTS = KEPT / arithmetic.FILE


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Runs, tracks and reports the Minitaur study; all of it takes a day."""
    if context.invoked_subcommand is None:
        side_by_side.invoke_each(context, run, track, page)


@main.command()
@click.option("--setting", type=click.Choice(list(study.SETTINGS)), help="Only this setting.")
@click.option("--seed", type=click.IntRange(min=0), help="Only this seed.")
@click.option("--budget", type=click.IntRange(min=1), help="Only this budget, in env steps.")
@click.option(
    "--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Runs in parallel."
)
def run(setting: str | None, seed: int | None, budget: int | None, workers: int) -> None:
    """Runs the planned runs that are not finished; a larger budget resumes a smaller one."""
    chosen = [
        job
        for job in study.PLAN
        if setting in (None, job.setting)
        and seed in (None, job.seed)
        and budget in (None, job.budget)
    ]
    if not chosen:
        raise click.UsageError("the study plans no such run; scripts/study.py lists the plan")
    failed = []
    for amount in sorted({job.budget for job in chosen}):
        jobs = [job for job in chosen if job.budget == amount and not _finished(job)]
        try:
            side_by_side.run_all(_run_one, jobs, workers)
        except click.ClickException as error:  # the longer runs do not need these
            failed.append(error.message)
    if failed:
        raise click.ClickException("; ".join(failed))


def _run_one(job: study.Job) -> str:
    """Trains in its own process; returns why it failed, or nothing."""
    name = f"{job.setting}-seed-{job.seed}-{job.budget}"
    folder = Path(job.setting, f"seed-{job.seed}")
    if (KEPT / folder).exists() and not (RUNS / folder).exists():
        return (
            f"{name}: a shorter run is tracked, but its checkpoint is not in {RUNS / folder}; a "
            "new run needs a separate setting, such as `defaults-again`"
        )
    options = ["--setting", job.setting, "--seed", str(job.seed), "--budget", str(job.budget)]
    command = [sys.executable, str(Path(__file__)), "train", *options]
    reason = side_by_side.run_logged(name, command, ROOT / "build" / "study" / f"{name}.log", ROOT)
    return reason or ("" if _finished(job) else f"{name} is not finished: run this again to resume")


@main.command(hidden=True)
@click.option("--setting", type=click.Choice(list(study.SETTINGS)), required=True, help="Its name.")
@click.option("--seed", type=click.IntRange(min=0), required=True, help="Seed of every generator.")
@click.option(
    "--budget", type=click.IntRange(min=1), required=True, help="Env steps, warm-up included."
)
def train(setting: str, seed: int, budget: int) -> None:
    """One run, in this process; it resumes what runs/results/ has of it."""
    job = study.Job(setting, seed, budget)
    config = SACConfig.parse({**job.parameters, "seed": seed})
    labkit.train(config, labkit.open_run(RUNS / setting / f"seed-{seed}", config))


def _finished(job: study.Job) -> bool:
    """Whether runs/results/, or else the repository, has this run with its final evaluation."""
    local = RUNS / job.setting / f"seed-{job.seed}"
    place = local if local.exists() else KEPT / job.setting / f"seed-{job.seed}"
    config = SACConfig(num_iterations=job.iterations)
    return (place / "config.json").exists() and resuming.is_finished(place, config)


@main.command()
def track() -> None:
    """Copies configuration and metrics of every run into results/; never replaces another run.

    The exit status is 1 if a run was left out.
    """
    left_out = 0
    for source in sorted(RUNS.glob("*/seed-*")):
        target = KEPT / source.relative_to(RUNS)
        try:
            length = read_metrics(source).gradient_step.max()
            if np.isnan(length):  # it has only just begun
                continue
            if target.exists():
                if not tracked_runs.is_same_run(source, target):
                    click.echo(
                        f"left out: {target.relative_to(ROOT)} holds another run; give the new one "
                        "a separate setting, such as `defaults-again`, to track both",
                        err=True,
                    )
                    left_out += 1
                    continue
                if read_metrics(target).gradient_step.max() > length:
                    continue
        except ParameterError as error:
            click.echo(f"left out: {error}", err=True)
            left_out += 1
            continue
        tracked_runs.copy_records(source, target)
        click.echo(f"tracked: {target.relative_to(ROOT)}")
    if left_out:
        raise click.ClickException(f"not tracked: {left_out} of the runs in {RUNS}")


@main.command()
def starts() -> None:
    """Measures the returns before training that study/starts.csv lacks; see `arithmetic`.

    It must be the machine that measured the others: the first of them is measured again.
    """
    configs = {arithmetic.key_of(run.config): run.config for run in compare.find_runs(KEPT)[0]}
    known = arithmetic.read_starts(KEPT)
    again = next((key for key in configs if key in known), None)
    if again and round(_start(configs[again]) - known[again], arithmetic.PRECISION):
        raise click.ClickException(f"this machine rounds otherwise than that of {STARTS}")
    for key in configs.keys() - known:
        known[key] = _start(configs[key])
        arithmetic.write_starts(known, STARTS)
        click.echo(f"measured: seed {key[0]}, {known[key]:+.6f}")


def _start(config: SACConfig) -> float:
    """The return before training of a run with this configuration, on this machine."""
    short = {"num_iterations": 1, "initial_collect_steps": 300, "num_eval_episodes": 1}
    with tempfile.TemporaryDirectory() as folder:
        run = labkit.open_run(Path(folder, "run"), attrs.evolve(config, **short))
        labkit.train(run.config, run)
        return float(read_metrics(run.path).eval_return.dropna().iloc[0])


@main.command()
def page() -> None:
    """Writes the page, its figures and README's table from the tracked runs."""
    found, damaged = compare.find_runs(KEPT)
    for line in damaged:
        click.echo(f"left out: {line}", err=True)
    for file in results_page.write(found, ROOT / "results" / "minitaur"):
        click.echo(f"written: {file.relative_to(ROOT)}")
    readme = ROOT / "README.md"
    readme.write_text(readme_table.into_readme(readme.read_text(), found))


if __name__ == "__main__":
    main()
