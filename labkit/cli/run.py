"""Runs a notebook with papermill and shows its progress in the terminal: `make run`.

    python -m labkit.cli.run notebooks/03_sac_minitaur.ipynb -p num_iterations 2000 -p seed 3

The executed notebook lies in the run directory, beside everything else of the run.
"""

import contextlib
import json
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

import attrs
import click
import papermill
from papermill.exceptions import PapermillExecutionError
from tqdm import tqdm

from labkit.config import SACConfig
from labkit.environments.make import check_name
from labkit.errors import ParameterError
from labkit.parameters import check_int, did_you_mean
from labkit.training import progress, run_directory, signals


@click.command()
@click.argument("notebook", type=click.Path(path_type=Path))
@click.option(
    *("-p", "--parameters", "pairs"),
    nargs=2,
    multiple=True,
    metavar="NAME VALUE",
    help="Sets a parameter of the notebook; may be repeated.",
)
def main(notebook: Path, pairs: tuple[tuple[str, str], ...]) -> None:
    """Runs NOTEBOOK into a run directory and shows its progress; NOTEBOOK is not changed."""
    try:
        texts = dict(pairs)
        parameters, config = check(notebook, texts)
        resume = texts.get("resume", "auto")
        run_dir = run_directory.locate(texts.get("run_dir", ""), config, resume)
    except ParameterError as error:
        click.echo(f"ParameterError: {error}", err=True)
        sys.exit(2)
    sys.exit(execute(notebook, run_dir, {**parameters, "run_dir": str(run_dir)}))


def check(notebook: Path, texts: dict[str, str]) -> tuple[dict[str, Any], SACConfig]:
    """Turns the command line's texts into checked values and a configuration, before a kernel.

    Raises:
        ParameterError: the notebook is not there, has no such parameter, or refuses the value.
    """
    if not notebook.is_file():
        raise ParameterError(f"there is no notebook {str(notebook)!r}")
    try:
        known = list(papermill.inspect_notebook(str(notebook)))
    except ValueError as error:
        raise ParameterError(f"{str(notebook)!r} cannot be read: {error}") from None
    for name in texts:
        if name not in known:
            raise ParameterError(
                f"{name} is not a parameter of {notebook.name}{did_you_mean(name, known)}"
            )
    fields = [field.name for field in attrs.fields(SACConfig)]
    ours = {name: text for name, text in texts.items() if name in fields}
    config = SACConfig.parse(ours)
    check_name(config.env_name)
    if "num_collectors" in texts:
        check_int("num_collectors", texts["num_collectors"], 0, 64, "rollout workers")
    return {**texts, **{name: getattr(config, name) for name in ours}}, config


def execute(notebook: Path, run_dir: Path, parameters: dict[str, Any]) -> int:
    """Executes the notebook into `run_dir`; returns 0, or another status after one line why."""
    output = run_dir / notebook.name
    state = run_dir / "progress.json"
    os.environ[progress.FILE_VARIABLE] = str(state.resolve())
    logging.getLogger("papermill").setLevel(logging.ERROR)
    print(f"{notebook.name} runs into {output}", file=sys.stderr)
    stop = run_dir / "stop"
    stop.unlink(missing_ok=True)
    os.environ[signals.FILE_VARIABLE] = str(stop.resolve())
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(state, done), daemon=True)
    watcher.start()
    status, message = 0, ""
    try:
        with signals.stop_request(stop.touch):
            papermill.execute_notebook(
                str(notebook),
                str(output),
                parameters,
                progress_bar={"desc": "cells", "unit": "cell", **bar_options()},
            )
    except PapermillExecutionError as error:
        status, message = 1, f"{error.ename}: {error.evalue}"
        if error.ename == "KeyboardInterrupt" and stop.exists():
            status, message = 130, f"stopped {error.evalue}; the same command begins again"
    except KeyboardInterrupt:
        status, message = 130, f"interrupted; what there is lies in {run_dir}"
    finally:
        done.set()
        watcher.join()
        for file in (state, stop):
            file.unlink(missing_ok=True)
    if message:
        print(message, file=sys.stderr)
        if status == 1:
            print(f"the cell that failed is marked in {output}", file=sys.stderr)
    else:
        print(f"done: {output}", file=sys.stderr)
    return status


def _watch(state: Path, done: threading.Event) -> None:
    """Draws one bar for each task that the kernel reports, below papermill's, until `done`."""
    bar: Any = None
    label = None
    while not done.wait(0.5):
        with contextlib.suppress(OSError, ValueError, KeyError):
            now = json.loads(state.read_text())
            if now["label"] != label:
                if bar is not None:
                    bar.close()
                bar, label = None, now["label"]
            if label is None:
                continue
            if bar is None:
                unit = " " + now["unit"]
                bar = tqdm(total=now["total"], unit=unit, desc=label, position=1, **bar_options())
            bar.set_postfix(now["facts"], refresh=False)
            bar.update(now["done"] - bar.n)
    if bar is not None:
        bar.close()


def bar_options() -> dict[str, Any]:
    """How often a bar is drawn: a terminal twice a second, a log file now and then."""
    return {"leave": False, "mininterval": 0.5 if sys.stderr.isatty() else 30.0}


if __name__ == "__main__":
    main(prog_name="labkit.cli.run")
