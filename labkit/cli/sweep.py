"""One notebook over several seeds, side by side, resumed where it was stopped: `make sweep`.

    labkit sweep notebooks/03_sac_minitaur.ipynb --seeds '0 1 2' -p reward_scale_factor 20

Each run has a process and a directory of its own, `INTO/SETTING/seed-N`; runs that are finished are
not run again, others go on from their last checkpoint.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
import click
from tqdm import tqdm

from labkit.analysis import compare
from labkit.cli.run import bar_options, check, execute
from labkit.config import SACConfig
from labkit.errors import ParameterError
from labkit.parameters import invalid
from labkit.training import run_directory
from labkit.training.signals import StopRequest, stop_request


@attrs.define
class Job:
    """One run: its directory, what it was asked for, the process while there is one, its cores."""

    run_dir: Path
    texts: dict[str, str]
    config: SACConfig
    process: subprocess.Popen | None = None
    cores: frozenset[int] = frozenset()
    steps: int = 0

    @property
    def name(self) -> str:
        """Its setting and seed, such as `defaults/seed-3`."""
        return "/".join(self.run_dir.parts[-2:])

    @property
    def log(self) -> Path:
        """What the run's process printed."""
        return self.run_dir.with_name(self.run_dir.name + ".log")

    def finished(self) -> bool:
        """Whether its directory holds the final evaluation."""
        return (self.run_dir / "config.json").exists() and run_directory.is_finished(
            self.run_dir, self.config
        )


def plan(
    notebook: Path,
    seeds: Sequence[str],
    texts: dict[str, str],
    into: Path,
    setting: str | None = None,
) -> list[Job]:
    """One job a seed, each checked before any begins.

    Args:
        notebook: with the parameters seed and run_dir.
        seeds: one run for each.
        texts: what every run gets, parameter → text, as on the command line.
        into: the folder for `setting/seed-N`.
        setting: the folder's name; None: made of what `texts` asks for beyond the defaults.

    Raises:
        ParameterError: a parameter or a seed is refused, or a directory holds another run.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise invalid("seeds", " ".join(seeds), "one or more different seeds, such as '0 1 2'")
    taken = {"seed", "run_dir", "resume"} & set(texts)
    if taken:
        raise ParameterError(f"`{min(taken)}` is not a parameter of a sweep, which sets it itself")
    # num_iterations is not part of it: more of them go on in the same directory.
    names = [name for name in texts if name not in compare.NOT_A_SETTING]
    words = "_".join(f"{name}-{texts[name]}" for name in names) or "defaults"
    setting = setting or re.sub(r"[^\w.+-]+", "_", words)
    jobs = []
    for seed in seeds:
        run_dir = into / setting / f"seed-{seed}"
        wanted = {**texts, "seed": seed}
        _, config = check(notebook, wanted)
        job = Job(run_dir, wanted, config)
        if (run_dir / "config.json").exists() and not job.finished():
            run_directory.check_resumable(run_dir, config)
        jobs.append(job)
    return jobs


def free_share(workers: int, taken: Sequence[frozenset[int]]) -> frozenset[int]:
    """The cores of one of `workers` runs side by side: a share that the fewest others have.

    Runs that spread over each other's cores wait for one another: the threads of a gradient step
    meet at its end.

    Returns:
        Numbers of cores, as `os.sched_setaffinity` takes them; none where there is no such call.
    """
    if not hasattr(os, "sched_getaffinity"):
        return frozenset()
    cores = sorted(os.sched_getaffinity(0))
    count = min(workers, len(cores))
    shares = [frozenset(cores[number::count]) for number in range(count)]
    return min(shares, key=lambda share: sum(share == other for other in taken))


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
    with tqdm(total=total, initial=done, unit=" it", desc="runs", **bar_options()) as bar:

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
            [sys.executable, "-m", "labkit.cli.run", str(notebook), *arguments],
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
            raise invalid("workers", workers, "1 or more")
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
    return execute(notebook, into, {"runs": str(into.resolve()), "budget": budget})


if __name__ == "__main__":
    main(prog_name="labkit.cli.sweep")
