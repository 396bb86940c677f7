"""Runs a notebook with papermill and shows its progress in the terminal: `labkit run`.

The executed notebook is written to the run directory, next to the other files of the run.
"""

import contextlib
import json
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

import papermill
from papermill.exceptions import PapermillExecutionError
from tqdm import tqdm

from labkit.config import SACConfig
from labkit.environments.make import check_name
from labkit.errors import ParameterError
from labkit.parameters import check_int, unknown
from labkit.training import progress, run_directory, signals


def run_notebook(notebook: Path, texts: dict[str, str]) -> int:
    """Checks the parameters, then executes the notebook in its run directory; see `execute`.

    Raises:
        ParameterError: see `check`, and `run_directory.choose_directory`.
    """
    parameters, config = check(notebook, texts)
    wanted, resume = texts.get("run_dir", ""), texts.get("resume", "auto")
    run_dir = run_directory.choose_directory(wanted, config, resume)
    return execute(notebook, run_dir, {**parameters, "run_dir": str(run_dir)})


def check(notebook: Path, texts: dict[str, str]) -> tuple[dict[str, Any], SACConfig]:
    """Checks the command line's texts, parameter → text, before a kernel starts.

    Returns:
        The parameters, typed where they are fields of `SACConfig`, and the configuration.

    Raises:
        ParameterError: there is no such notebook or parameter, or a value is not allowed.
    """
    if not notebook.is_file():
        raise ParameterError(f"there is no notebook {str(notebook)!r}")
    try:
        known = list(papermill.inspect_notebook(str(notebook)))
    except ValueError as error:
        raise ParameterError(f"{str(notebook)!r} cannot be read: {error}") from None
    for name in texts:
        if name not in known:
            raise unknown(name, known)
    fields = {name: text for name, text in texts.items() if name in SACConfig.names()}
    config = SACConfig.parse(fields)
    check_name(config.env_name)
    if "num_collectors" in texts:
        check_int("num_collectors", texts["num_collectors"], 0, 64, "rollout workers")
    return {**texts, **{name: getattr(config, name) for name in fields}}, config


def execute(notebook: Path, run_dir: Path, parameters: dict[str, Any]) -> int:
    """Executes the notebook into `run_dir`; Ctrl-C and SIGTERM stop its training.

    Returns:
        0; 1 if a cell failed; 130 if the notebook was stopped. One line on stderr gives the reason.
    """
    output = run_dir / notebook.name
    state, stop = run_dir / "progress.json", run_dir / "stop"
    stop.unlink(missing_ok=True)
    os.environ[progress.FILE_VARIABLE] = str(state.resolve())
    os.environ[signals.FILE_VARIABLE] = str(stop.resolve())
    logging.getLogger("papermill").setLevel(logging.ERROR)
    print(f"{notebook.name} runs into {output}", file=sys.stderr)
    done = threading.Event()
    bars = threading.Thread(target=_draw_bars, args=(state, done), daemon=True)
    bars.start()
    status, message = 0, f"done: {output}"
    try:
        with signals.stop_request(stop.touch):
            cells = {"desc": "cells", "unit": "cell", **bar_options()}
            papermill.execute_notebook(str(notebook), str(output), parameters, progress_bar=cells)
    except PapermillExecutionError as error:
        if error.ename == "KeyboardInterrupt" and stop.exists():
            status, message = 130, f"stopped {error.evalue}; the same command starts it again"
        else:
            reason = f"{error.ename}: {error.evalue}"
            status, message = 1, f"{reason}\nthe cell that failed is marked in {output}"
    except KeyboardInterrupt:
        status, message = 130, f"interrupted; the results so far are in {run_dir}"
    finally:
        done.set()
        bars.join()
        for file in (state, stop):
            file.unlink(missing_ok=True)
    print(message, file=sys.stderr)
    return status


def _draw_bars(state: Path, done: threading.Event) -> None:
    """Draws a bar below papermill's for each task that the kernel reports, until `done`."""
    bar: tqdm | None = None
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
    """Redraws a bar twice a second in a terminal, every 30 seconds in a log file."""
    return {"leave": False, "mininterval": 0.5 if sys.stderr.isatty() else 30.0}
