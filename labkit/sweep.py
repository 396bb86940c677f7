"""One notebook over several seeds, side by side, going on where it was stopped: `make sweep`.

    python -m labkit.sweep notebooks/03_sac_minitaur.ipynb --seeds '0 1 2' -p reward_scale_factor 20

Each run has a process and a directory of its own, `INTO/SETTING/seed-N`; runs that are finished are
not run again, others go on from their last checkpoint.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click
from tqdm import tqdm

from labkit import launch
from labkit.config import ParameterError, refuse
from labkit.jobs import Job, free_share, plan
from labkit.stopping import StopRequest, stop_request

SECONDS_BETWEEN_LOOKS = 0.5


def run_all(notebook: Path, jobs: Sequence[Job], workers: int) -> list[Job]:
    """Runs the jobs that are not finished, `workers` at a time, under one progress bar.

    Ctrl-C or SIGTERM ends every run after its iteration, with a checkpoint; once more at once.

    Returns:
        The jobs that are still not finished: they failed, or were stopped.
    """
    waiting = [job for job in jobs if not job.finished()]
    workers = max(1, min(workers, len(waiting)))  # who is there shares all cores
    running: list[Job] = []
    total = sum(job.config.num_iterations for job in jobs)
    done = sum(job.config.num_iterations for job in jobs if job not in waiting)
    with tqdm(total=total, initial=done, unit=" it", desc="runs", **launch.bar_options()) as bar:

        def forward() -> None:
            for job in running:
                _signal(job)

        with stop_request(forward) as stop:
            try:
                while running or (waiting and not stop):
                    while waiting and len(running) < workers and not stop:
                        job = waiting.pop(0)
                        job.cores = free_share(workers, [other.cores for other in running])
                        running.append(job)
                        _start(notebook, job)
                    time.sleep(SECONDS_BETWEEN_LOOKS)
                    _look(bar, running, len(jobs), len(waiting), stop)
            except KeyboardInterrupt:  # the second one
                forward()
                for job in running:
                    _end(job)
    return [job for job in jobs if not job.finished()]


def _start(notebook: Path, job: Job) -> None:
    job.run_dir.parent.mkdir(parents=True, exist_ok=True)
    pairs = {**job.texts, "run_dir": str(job.run_dir)}
    arguments = [word for name, text in pairs.items() for word in ("-p", name, text)]
    with job.log.open("a") as log:
        job.process = subprocess.Popen(
            [sys.executable, "-m", "labkit.launch", str(notebook), *arguments],
            stdout=log,
            stderr=log,
            start_new_session=True,  # the terminal's Ctrl-C reaches us, and is passed on once
        )
    if job.cores:  # before it loads TensorFlow, which makes a thread for each core it may use
        os.sched_setaffinity(job.process.pid, job.cores)


def _look(bar: tqdm, running: list[Job], jobs: int, waiting: int, stop: StopRequest) -> None:
    """Moves the bar, and lets go of the runs that ended."""
    for job in list(running):
        job_steps = _steps(job)
        bar.update(max(0, job_steps - job.steps))
        job.steps = max(job.steps, job_steps)
        if job.process is not None and job.process.poll() is not None:
            running.remove(job)
            if job.finished():
                bar.update(job.config.num_iterations - job.steps)
                bar.write(f"done: {job.name}", file=sys.stderr)
            elif stop:
                bar.write(f"stopped: {job.name}", file=sys.stderr)
            else:
                bar.write(f"failed: {job.name}: {last_line(job.log)}", file=sys.stderr)
    ended = jobs - waiting - len(running)
    bar.set_postfix_str(f"{len(running)} running, {waiting} waiting, {ended} ended", refresh=False)


def _steps(job: Job) -> int:
    """How many gradient steps a running job has, so far as it says."""
    try:
        state = json.loads((job.run_dir / "progress.json").read_text())
        return int(state["done"]) if state["label"] == "training" else 0
    except (OSError, ValueError, KeyError):
        return 0


def _signal(job: Job) -> None:
    if job.process is not None and job.process.poll() is None:
        job.process.send_signal(signal.SIGINT)


def _end(job: Job) -> None:
    """Waits ten seconds for a run to end by itself, then ends its whole session."""
    assert job.process is not None
    try:
        job.process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(job.process.pid, signal.SIGKILL)
        job.process.wait()


def last_line(log: Path) -> str:
    """The last words of a log, carriage returns and empty lines aside."""
    lines = log.read_text(errors="replace").replace("\r", "\n").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")


@click.command()
@click.argument("notebook", type=click.Path(path_type=Path))
@click.option("--seeds", default="0 1 2", show_default=True, help="One run for each.")
@click.option("--into", default="runs/sweep", show_default=True, type=click.Path(path_type=Path))
@click.option("--workers", default=os.cpu_count() or 1, show_default=True, help="Runs at a time.")
@click.option(
    *("-p", "--parameters", "pairs"),
    nargs=2,
    multiple=True,
    metavar="NAME VALUE",
    help="Sets a parameter of every run; may be repeated.",
)
def main(notebook: Path, seeds: str, into: Path, workers: int, pairs) -> None:
    """Runs NOTEBOOK once a seed; then compares all that lies in INTO with notebook 05."""
    try:
        if workers < 1:
            raise refuse("workers", workers, "1 or more")
        jobs = plan(notebook, seeds.replace(",", " ").split(), dict(pairs), into)
    except ParameterError as error:
        click.echo(f"ParameterError: {error}", err=True)
        sys.exit(2)
    unfinished = run_all(notebook, jobs, workers)
    for job in unfinished:
        click.echo(f"not finished: {job.name}, see {job.log}; the same command goes on", err=True)
    if unfinished:
        sys.exit(1)
    sys.exit(_compare(notebook.with_name("05_compare_runs.ipynb"), jobs, into))


def _compare(notebook: Path, jobs: Sequence[Job], into: Path) -> int:
    """Executes notebook 05 on everything in `into`; the copy there shows the result."""
    budget = jobs[0].config.num_iterations
    return launch.execute(notebook, into, {"runs": str(into.resolve()), "budget": budget})


if __name__ == "__main__":
    main(prog_name="labkit.sweep")
