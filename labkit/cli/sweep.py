"""Runs a notebook with several seeds in parallel, then compares the runs: `labkit sweep`.

Each run is a process with its own directory, `INTO/SETTING/seed-N`. A second sweep skips finished
runs and resumes the others from their last checkpoints.
"""

import contextlib
import hashlib
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

from labkit.analysis.runs import NOT_A_SETTING, setting_name
from labkit.cli.run import bar_options, check, check_output, declared, execute
from labkit.config import SACConfig
from labkit.errors import ParameterError, storage
from labkit.parameters import MANY, check_int, check_no_wildcards, invalid
from labkit.runtime import LAUNCHER_VARIABLE
from labkit.training.progress import stop_request
from labkit.training.run import check_free, check_same, check_usable, is_finished, read_config

COMPARISON = "05_compare_runs.ipynb"  # next to the notebook of the sweep
POLL_SECONDS = 0.5
LONGEST_NAME = 100  # characters of a setting's directory; a longer one is cut, and gets a digest


@attrs.define
class Job:
    """One run of a sweep."""

    run_dir: Path
    texts: dict[str, str]  # parameter → text, as on the command line, without `run_dir`
    config: SACConfig
    process: subprocess.Popen | None = None
    cores: frozenset[int] = frozenset()  # numbers of the cores it may use; empty: all
    steps: int = 0  # gradient steps that the sweep's progress bar has counted

    @property
    def name(self) -> str:
        """Setting and seed, such as `defaults/seed-3`."""
        return "/".join(self.run_dir.parts[-2:])

    @property
    def log(self) -> Path:
        """The file with the output of the process."""
        return self.run_dir.with_name(self.run_dir.name + ".log")

    def finished(self) -> bool:
        """Whether the run directory has the final evaluation."""
        started = (self.run_dir / "config.json").exists()
        return started and is_finished(self.run_dir, self.config)

    def left_no_run(self) -> bool:
        """Whether the notebook ended without an error, but wrote no run into the run directory."""
        complete = self.process is not None and self.process.returncode == 0
        return complete and not (self.run_dir / "config.json").exists()

    def start(self, notebook: Path) -> None:
        """Starts `labkit run` on the job's cores.

        Raises:
            StorageError: the folder or the log cannot be written.
        """
        with storage(self.run_dir.parent):
            self.run_dir.parent.mkdir(parents=True, exist_ok=True)
        pairs = {**self.texts, "run_dir": str(self.run_dir)}
        command = [sys.executable, "-m", "labkit.cli.main", "run", str(notebook)]
        command += [word for name, text in pairs.items() for word in ("-p", name, text)]
        # On Linux the run ends with the sweep.
        variables = {**os.environ, LAUNCHER_VARIABLE: str(os.getpid())}
        with storage(self.log), self.log.open("a") as log:
            # In a separate session: the terminal's Ctrl-C reaches the sweep alone.
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, env=variables
            )
        if self.cores:  # before TensorFlow loads and makes a thread for each core it may use
            os.sched_setaffinity(self.process.pid, self.cores)

    def running(self) -> bool:
        """Whether the process has started and not ended."""
        return self.process is not None and self.process.poll() is None

    def reported_steps(self) -> int:
        """Gradient steps that the process has reported; 0 outside of training."""
        try:
            state = json.loads((self.run_dir / "progress.json").read_text())
            return int(state["done"]) if state["label"] == "training" else 0
        except (OSError, ValueError, KeyError):
            return 0

    def interrupt(self) -> None:
        """Asks the run to stop after the current iteration; the second call stops it at once."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """Waits ten seconds for the process to end, then kills its session."""
        if self.process is None:
            return
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def run_sweep(
    notebook: Path, seeds: Sequence[str], texts: dict[str, str], into: Path, workers: int
) -> int:
    """Runs every seed, `workers` at a time, then executes notebook 05 on all runs in `into`.

    Returns:
        The exit status: 0; 1 if a run is unfinished; otherwise that of notebook 05, see
        `run.execute`.

    Raises:
        ParameterError: see `plan`, or `into` holds another notebook 05; no run has started.
        RunError: see `run.execute`, of notebook 05.
    """
    workers = check_int("--workers", workers, 1, MANY, "runs at a time")
    into = into.expanduser()  # as the runs do with their directories
    jobs = plan(notebook, seeds, texts, into)
    comparison = notebook.with_name(COMPARISON)
    if comparison.is_file():
        check_output(comparison, into, "--into")
    unfinished = run_all(notebook, jobs, workers)
    for job in unfinished:
        text = f"not finished: {job.name}, see {job.log}; the same command resumes it"
        if job.left_no_run():
            what = "`run_dir` must be the directory of one run, as in 03_sac_minitaur.ipynb"
            text = f"{notebook} wrote no run to {job.run_dir}: its {what}"
        click.echo(text, err=True)
    if unfinished:
        return 1
    if not comparison.is_file():
        click.echo(f"no comparison: there is no {comparison}", err=True)
        return 0
    shown = {"runs": str(into.resolve()), "budget": jobs[0].config.num_iterations}
    return execute(comparison, into, {**shown, "baseline": setting_name(jobs[0].config)})


def plan(notebook: Path, seeds: Sequence[str], texts: dict[str, str], into: Path) -> list[Job]:
    """Checks every run before the first one starts; makes one job for each seed.

    `texts` are the parameters of every run, parameter → text, as on the command line. A run's
    directory is `into/SETTING/seed-N`, where SETTING is made of the parameters in `texts`.

    Raises:
        ParameterError: a parameter or a seed is not allowed, or a directory holds another run.
    """
    taken = {"seed", "run_dir", "resume"} & set(texts)
    if taken:
        raise ParameterError(f"`{min(taken)}` is not a parameter of a sweep, which sets it itself")
    for name in ("seed", "run_dir"):
        if name not in declared(notebook):
            allowed = f"a notebook with the parameter `{name}`, such as 03_sac_minitaur.ipynb"
            raise invalid("notebook", str(notebook), allowed)
    configs = {seed: check(notebook, {**texts, "seed": seed})[1] for seed in seeds}
    if not seeds or len({config.seed for config in configs.values()}) < len(seeds):
        raise invalid("seeds", " ".join(seeds), "one or more different seeds, such as '0 1 2'")
    check_no_wildcards("--into", into)
    if into.exists() and not into.is_dir():
        raise invalid("--into", str(into), "a folder, or a path where there is nothing yet")
    setting = _directory_name(notebook, texts, configs[seeds[0]])
    jobs = []
    for seed, config in configs.items():
        run_dir = into / setting / f"seed-{config.seed}"
        job = Job(run_dir, {**texts, "seed": seed}, config)
        if job.finished():  # it may have lost its checkpoints
            theirs = read_config(run_dir)
            check_same(run_dir, theirs, config, but=("num_iterations",))
        else:
            check_usable(run_dir, config)
            check_free(run_dir)
        jobs.append(job)
    return jobs


def _directory_name(notebook: Path, texts: dict[str, str], config: SACConfig) -> str:
    """The name of a setting's directory: one for each setting, however its values are spelled.

    A parameter with the notebook's own default is not part of it. Nor is num_iterations: more
    iterations resume the run in the same directory.
    """
    words = []
    for name, text in texts.items():
        if name in NOT_A_SETTING:
            continue
        if name in SACConfig.names():
            value = getattr(config, name)
            others = {other: text for other, text in texts.items() if other != name}
            with contextlib.suppress(ParameterError):  # without it, the others may be invalid
                if getattr(check(notebook, others)[1], name) == value:
                    continue
            text = str(value)
        words.append(f"{name}-{text}")
    name = re.sub(r"[^\w.+-]+", "_", "_".join(words) or "defaults")
    if len(name) > LONGEST_NAME:  # file systems allow 255 bytes
        digest = hashlib.sha256(name.encode()).hexdigest()[:12]
        name = f"{name[:LONGEST_NAME]}-{digest}"
    return name


def free_share(workers: int, taken: Sequence[frozenset[int]]) -> frozenset[int]:
    """The cores for one of `workers` parallel runs: the share that the fewest others use.

    Runs that share cores wait for one another: a gradient step ends when its last thread does.
    The result is empty on systems without `os.sched_setaffinity`.
    """
    if not hasattr(os, "sched_getaffinity"):
        return frozenset()
    cores = sorted(os.sched_getaffinity(0))
    count = min(workers, len(cores))
    shares = [frozenset(cores[number::count]) for number in range(count)]
    return min(shares, key=lambda share: sum(share == other for other in taken))


def run_all(notebook: Path, jobs: Sequence[Job], workers: int) -> list[Job]:
    """Runs the unfinished jobs, `workers` at a time, under one progress bar.

    The first Ctrl-C or SIGTERM stops every run after its current iteration, with a checkpoint. The
    second one stops them at once.

    Returns:
        The jobs that are still unfinished: they failed, or were stopped.
    """
    waiting = [job for job in jobs if not job.finished()]
    pool = _Pool(notebook, waiting, max(1, min(workers, len(waiting))))  # fewer get more cores each
    total = sum(job.config.num_iterations for job in jobs)
    done = total - sum(job.config.num_iterations for job in waiting)
    bars = tqdm(total=total, initial=done, unit=" it", desc="runs", **bar_options())
    with bars as bar, stop_request(pool.interrupt) as stop:
        try:
            while pool.running or (pool.waiting and not stop):
                while pool.has_place() and not stop:
                    job = pool.start_next()
                    if stop:  # while the process was being started
                        job.interrupt()
                time.sleep(POLL_SECONDS)
                pool.remove_ended(bar, stopped=bool(stop))
                counts = f"{len(pool.running)} running, {len(pool.waiting)} waiting"
                past = len(jobs) - len(pool.waiting) - len(pool.running)
                bar.set_postfix_str(f"{counts}, {past} ended", refresh=False)
        except BaseException as error:  # the second signal, or a run that could not start
            pool.end()
            if not isinstance(error, KeyboardInterrupt):
                raise
    return [job for job in jobs if not job.finished()]


@attrs.define
class _Pool:
    """The jobs of a sweep: those that wait, and those that run, at most `workers` at a time."""

    notebook: Path
    waiting: list[Job]
    workers: int
    running: list[Job] = attrs.Factory(list)

    def has_place(self) -> bool:
        """Whether a job waits and may start now."""
        return bool(self.waiting) and len(self.running) < self.workers

    def start_next(self) -> Job:
        """Starts the first job that waits; see `Job.start`."""
        job = self.waiting.pop(0)
        job.cores = free_share(self.workers, [other.cores for other in self.running])
        self.running.append(job)
        job.start(self.notebook)
        return job

    def remove_ended(self, bar: tqdm, stopped: bool) -> None:
        """Counts the gradient steps of every run; prints a line for each that has ended."""
        for job in list(self.running):
            ended = not job.running()
            _count_steps(bar, job, ended)
            if ended:
                self.running.remove(job)
                bar.write(_ending(job, stopped), file=sys.stderr)

    def interrupt(self) -> None:
        """See `Job.interrupt`, of every job that runs."""
        for job in self.running:
            job.interrupt()

    def end(self) -> None:
        """Ends every job that runs."""
        self.interrupt()
        for job in self.running:
            job.end()


def _count_steps(bar: tqdm, job: Job, ended: bool) -> None:
    """Adds the job's new gradient steps to the bar; all of them once it has finished."""
    complete = ended and job.finished()
    steps = max(job.steps, job.config.num_iterations if complete else job.reported_steps())
    bar.update(steps - job.steps)
    job.steps = steps


def _ending(job: Job, stopped: bool) -> str:
    """One line about a job whose process has ended; for a failed one, its last line of output."""
    if job.finished():
        return f"done: {job.name}"
    if stopped:
        return f"stopped: {job.name}"
    if job.left_no_run():
        return f"ended without a run: {job.name}"
    output = job.log.read_text(errors="replace").strip().splitlines() or ["no output"]
    return f"failed: {job.name}: {output[-1].strip()}"
