"""Runs a notebook with papermill and shows its progress in the terminal: `labkit run`.

The executed notebook is written to the run directory, next to the other files of the run.
"""

import contextlib
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import papermill
from papermill.exceptions import PapermillExecutionError
from papermill.iorw import load_notebook_node
from tqdm import tqdm

from labkit.config import SACConfig
from labkit.environments.make import check_name
from labkit.errors import ParameterError, RunError, first_line, storage
from labkit.parameters import check_int, invalid, literal, unknown
from labkit.runtime import LAUNCHER_VARIABLE
from labkit.training import (
    checkpoint,
    progress,
)
from labkit.training.run import check_free, check_replay, choose_directory, is_finished, read_config


def run_notebook(notebook: Path, texts: dict[str, str]) -> int:
    """Checks the parameters, then executes the notebook in its run directory; see `execute`.

    Raises:
        ParameterError, RunError: see `check`, `choose_directory` and `execute`.
    """
    parameters, config = check(notebook, texts)
    # With a parameter `resume`, a notebook's run_dir holds one run; without it, perhaps several.
    own = _defaults(notebook) if _uses_labkit(notebook) else {}
    read = [name for name in ("run_dir", "resume") if "resume" in own and name in own]
    given = {name: own[name] for name in read} | texts
    if "replay" in own:
        check_replay(config)
    run_dir = choose_directory(given.get("run_dir", ""), config, given.get("resume", "auto"))
    if "run_dir" in declared(notebook):
        parameters["run_dir"] = str(run_dir)
    parameters = {**_default_paths(notebook), **parameters}
    return execute(notebook, run_dir, parameters)


def check(notebook: Path, texts: dict[str, str]) -> tuple[dict[str, Any], SACConfig]:
    """Checks the command line's texts, parameter → text, before a kernel starts.

    Returns:
        The parameters with their types, and the configuration: that of the notebook's own defaults
        with these parameters.

    Raises:
        ParameterError: there is no such notebook or parameter, or a value is not allowed.
    """
    known = declared(notebook)
    if not load_notebook_node(str(notebook)).metadata.get("kernelspec", {}).get("name"):
        raise _bad_kernel(notebook, "not named")
    for name in texts:
        if name not in known:
            raise unknown(name, known)
    # Another notebook's parameters may have the same names and mean something else.
    trains_sac = _uses_labkit(notebook) and not {"env_name", "run_dir"}.isdisjoint(known)
    ours = SACConfig.names() if trains_sac else []
    fields = {name: text for name, text in texts.items() if name in ours}
    defaults = _defaults(notebook)
    own = {name: value for name, value in defaults.items() if name in ours}
    try:
        config = SACConfig.parse({**own, **fields})
    except ParameterError:  # a lesson's own defaults may not form a valid configuration
        config = SACConfig.parse(fields)
    if "env_name" in fields:  # a notebook may define its own environment
        check_name(config.env_name)
    if "num_collectors" in texts and ours:
        check_int("num_collectors", texts["num_collectors"], 0, 64, "rollout workers")
    others = {name: _typed(text, defaults.get(name)) for name, text in texts.items()}
    return {**others, **{name: getattr(config, name) for name in fields}}, config


def declared(notebook: Path) -> list[str]:
    """The parameters that a notebook declares.

    Raises:
        ParameterError: there is no such notebook, or it cannot be read.
    """
    if not notebook.is_file():
        raise ParameterError(f"there is no notebook {str(notebook)!r}")
    if notebook.suffix != ".ipynb":
        raise invalid("notebook", str(notebook), "a file whose name ends in .ipynb")
    try:
        return list(papermill.inspect_notebook(_unformatted(notebook)))
    except Exception as error:  # papermill, nbformat and jsonschema each raise others
        raise ParameterError(f"{str(notebook)!r} cannot be read: {first_line(error)}") from None


def _uses_labkit(notebook: Path) -> bool:
    """Whether labkit is imported in a code cell of the notebook."""
    cells = load_notebook_node(str(notebook)).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    return re.search(r"^\s*(import|from) labkit\b", code, re.M) is not None


def _bad_kernel(notebook: Path, name: str) -> ParameterError:
    allowed = "a notebook whose kernel is installed here, such as python3"
    return invalid("notebook", f"{notebook} (kernel {name})", allowed)


def _typed(text: str, default: object) -> object:
    """A parameter's text as a number, a truth value or a list; as text where the default is one."""
    if isinstance(default, str):
        return text
    if text.lower() in ("true", "false", "none"):
        text = text.capitalize()
    return literal(text, text)


def _defaults(notebook: Path) -> dict[str, Any]:
    """The defaults in a notebook's parameters cell, where they are literals."""
    other = object()  # None is a literal, too
    cell = papermill.inspect_notebook(_unformatted(notebook))
    found = {name: literal(str(given["default"]), other) for name, given in cell.items()}
    return {name: value for name, value in found.items() if value is not other}


def _default_paths(notebook: Path) -> dict[str, str]:
    """Defaults that name a file from the notebook's folder, as paths from the working directory.

    A notebook's kernel starts in the working directory, as with papermill.
    """
    return {
        name: os.path.relpath(notebook.parent / value)
        for name, value in _defaults(notebook).items()
        if isinstance(value, str)
        and value.startswith("../")
        and not Path(value).exists()
        and (notebook.parent / value).exists()
    }


def _unformatted(path: Path) -> str:
    """A path for papermill, which takes braces for names of parameters."""
    return str(path).replace("{", "{{").replace("}", "}}")


def execute(notebook: Path, run_dir: Path, parameters: dict[str, Any]) -> int:
    """Executes the notebook into `run_dir`; Ctrl-C and SIGTERM stop its training.

    Returns:
        0; 1 if a cell failed; 130 if the notebook was stopped. One line on stderr gives the reason.

    Raises:
        ParameterError: another process writes to `run_dir`, or the notebook itself is in it.
        RunError: the kernel was killed, or the disk is full.
    """
    output = run_dir / notebook.name
    check_output(notebook, run_dir)
    with storage(run_dir):
        check_free(run_dir)
    # The stop file is named after this process, so no other `labkit run` can stop the kernel.
    state, stop = run_dir / "progress.json", run_dir / f".stop-{os.getpid()}"
    variables = {
        "LABKIT_PROGRESS": str(state.resolve()),
        "LABKIT_STOP": str(stop.resolve()),
        LAUNCHER_VARIABLE: str(os.getpid()),
    }
    print(f"{notebook.name} runs into {output}", file=sys.stderr)
    try:
        with storage(output), _environment(variables):
            status, message = _execute(notebook, output, parameters, state, stop)
    finally:
        for file in (state, stop):
            file.unlink(missing_ok=True)
    print(message, file=sys.stderr)
    return status


def check_output(notebook: Path, run_dir: Path, parameter: str = "run_dir") -> None:
    """Rejects a directory where the executed notebook would overwrite another file.

    Raises:
        ParameterError: names the parameter that chose the directory.
    """
    output = run_dir / notebook.name
    if not output.exists():
        return
    if output.samefile(notebook):
        raise invalid(parameter, str(run_dir), "another directory than that of the notebook")
    if not (run_dir / "config.json").exists():  # it was not executed there
        allowed = f"a directory without a {notebook.name}, which would be overwritten"
        raise invalid(parameter, str(run_dir), f"{allowed} (rename it first)")


def _execute(
    notebook: Path, output: Path, parameters: dict[str, Any], state: Path, stop: Path
) -> tuple[int, str]:
    """The exit status of an executed notebook, and the reason."""
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # every ending is named here
    cells = {"desc": "cells", "unit": "cell", **bar_options()}
    with _bars(state), progress.stop_request(stop.touch):
        try:
            paths = _unformatted(notebook), _unformatted(output)
            _run_cells(lambda: papermill.execute_notebook(*paths, parameters, progress_bar=cells))
        except PapermillExecutionError as error:
            if error.ename == "KeyboardInterrupt" and stop.exists():
                return 130, f"stopped {error.evalue}; the same command starts it again"
            reason = f"{error.ename}: {error.evalue}".splitlines()[0]
            return 1, f"{reason}\nthe cell that failed is marked in {output}"
        except KeyError as error:  # jupyter_client's
            if type(error).__name__ != "NoSuchKernel":
                raise
            raise _bad_kernel(notebook, getattr(error, "name", "unknown")) from None
        except FileNotFoundError as error:  # the kernel's program, or the run directory
            if str(error.filename or output).startswith(str(output.parent)):
                raise
            gone = f"{error.filename}, the program of its kernel, does not exist"
            raise ParameterError(f"{str(notebook)!r} cannot be executed: {gone}") from None
        except RuntimeError as error:  # nbclient's
            if "Kernel died" not in str(error):
                raise
            raise RunError(_killed(output.parent)) from None
        except KeyboardInterrupt:
            return 130, f"interrupted; the results so far are in {output.parent}"
        if stop.exists() and _is_unfinished(output.parent):  # the cells after the training ran
            return 130, f"stopped; the results so far are in {output.parent}"
    return 0, f"done: {output}"


def _is_unfinished(run_dir: Path) -> bool:
    """Whether a directory holds a run without its final evaluation; not in notebooks 05 and 06."""
    if not (run_dir / "config.json").is_file():
        return False
    return not is_finished(run_dir, read_config(run_dir))


def _run_cells(execute_notebook: Callable[[], object]) -> None:
    """Executes a notebook; starts its kernel once more if it ends before the first cell.

    Jupyter chooses the kernel's ports before the kernel opens them. Another program may take one
    in between.

    Raises:
        RunError: the second kernel also ended before the first cell.
    """
    for again in (False, True):
        try:
            execute_notebook()
            return
        except RuntimeError as error:  # jupyter_client's
            if "before replying to kernel_info" not in str(error):
                raise
            if again:
                raise RunError(
                    "the notebook's kernel ended twice before its first cell; its output is above"
                ) from None
        print("the kernel ended before its first cell; it is started again", file=sys.stderr)


def _killed(run_dir: Path) -> str:
    """Why a kernel ended by itself, as far as that is known, and what is safe."""
    why = "its memory may have run out, or an env step took longer than environment_timeout"
    good = checkpoint.latest(run_dir / "checkpoints")
    safe = f"last good checkpoint: {good or 'none yet'}"
    return f"the process that ran the notebook was killed ({why}); {safe}"


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Sets environment variables, which the kernel inherits; restores them afterwards."""
    before = {name: os.environ.pop(name, None) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def _bars(state: Path) -> Iterator[None]:
    """Draws a bar below papermill's for each task that the kernel reports in the file `state`."""
    done = threading.Event()
    bars = threading.Thread(target=_draw_bars, args=(state, done), daemon=True)
    bars.start()
    try:
        yield
    finally:
        done.set()
        bars.join()


def _draw_bars(state: Path, done: threading.Event) -> None:
    """Draws the bars until `done`."""
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
                # A resumed run has steps before: they do not count towards its speed.
                options = {"initial": now["done"], "desc": label, "unit": unit, **bar_options()}
                bar = tqdm(total=now["total"], position=1, **options)
            bar.set_postfix(now["facts"], refresh=False)
            bar.update(now["done"] - bar.n)
    if bar is not None:
        bar.close()


def bar_options() -> dict[str, Any]:
    """Redraws a bar twice a second in a terminal, every 30 seconds in a log file."""
    return {"leave": False, "mininterval": 0.5 if sys.stderr.isatty() else 30.0}
