"""Commands that run in parallel, each on one core, with their output in files."""

import concurrent.futures
import itertools
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import click

Job = TypeVar("Job")
LIMIT_SECONDS = 12 * 3600  # for one job; a peer has no watchdog of its own


def invoke_each(context: click.Context, *commands: click.Command) -> None:
    """Invokes all commands, also after one has failed: a page shows what there is.

    Raises:
        ClickException: with the messages of those that failed.
    """
    failed = []
    for command in commands:
        try:
            context.invoke(command)
        except click.ClickException as error:
            failed.append(error.message)
    if failed:
        raise click.ClickException("; ".join(failed))


def run_all(run_one: Callable[[Job], str], jobs: Sequence[Job], workers: int) -> None:
    """Runs the jobs, `workers` at a time, each on one core.

    The workers take the cores in turn, so more workers than cores share them.
    After Ctrl-C no further job starts.

    Args:
        run_one: runs a job; returns why it failed, or nothing.
        jobs: what to run, in this order.
        workers: how many at a time, 1 or more.

    Raises:
        ClickException: at least one job failed; all others have run.
    """
    pool = concurrent.futures.ThreadPoolExecutor(workers, initializer=_core_chooser())
    try:
        failed = [reason for reason in pool.map(run_one, jobs) if reason]
    finally:
        pool.shutdown(cancel_futures=True)
    if failed:
        raise click.ClickException("; ".join(failed))


def _core_chooser() -> Callable[[], None]:
    """A function that restricts the thread that calls it, and its later processes, to one core."""
    if not hasattr(os, "sched_setaffinity"):  # only Linux has it
        return lambda: None
    cores = itertools.cycle(sorted(os.sched_getaffinity(0)))
    return lambda: os.sched_setaffinity(0, {next(cores)})


def run_logged(
    name: str, command: Sequence[str], log: Path, root: Path, env: Mapping[str, str] | None = None
) -> str:
    """Runs a command in `root`; returns why it failed, or nothing.

    Args:
        name: of the job, for messages.
        command: program and arguments.
        log: gets all output; an older one is replaced.
        root: the working directory, of which `log` is a part.
        env: environment variables, besides those of this process.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    click.echo(f"{name}: {log.relative_to(root)}")
    variables = {**os.environ, **(env or {})}
    with log.open("w") as out:
        try:
            done = subprocess.run(
                command, cwd=root, env=variables, stdout=out, stderr=out, timeout=LIMIT_SECONDS
            )
        except subprocess.TimeoutExpired:
            return f"{name} has not ended within {LIMIT_SECONDS // 3600} hours: see {log}"
    return f"{name} failed: see {log}" if done.returncode else ""
