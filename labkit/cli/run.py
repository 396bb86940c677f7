"""Executes notebooks with papermill, each in a run directory: `labkit run`, and in `sweep`."""

import logging
import re
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import attrs
import papermill
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from papermill.exceptions import PapermillExecutionError
from papermill.iorw import load_notebook_node
from tqdm import tqdm

from labkit.config import SACConfig
from labkit.environments.make import check_specs, make_environment
from labkit.errors import ParameterError, RunError, StorageError, first_line, storage
from labkit.parameters import check_int, invalid, literal, unknown
from labkit.runtime import quiet
from labkit.training import checkpoint
from labkit.training import run as training

DONE, FAILED, STOPPED = 0, 1, 130  # exit statuses
KILLED = "the kernel was killed (out of memory, or an env step longer than `environment_timeout`?)"


@attrs.frozen
class Notebook:
    """A notebook: its parameters, name → default; and whether it trains with `start_run`."""

    path: Path
    defaults: dict[str, Any]
    trains: bool

    @classmethod
    def read(cls, path: Path) -> "Notebook":
        """Raises a ParameterError if it is missing or damaged, or has no kernel here."""
        if path.suffix != ".ipynb" or not path.is_file():
            raise invalid("notebook", str(path), "an existing file whose name ends in .ipynb")
        try:
            book = load_notebook_node(str(path))
            KernelSpecManager().get_kernel_spec(book.metadata.get("kernelspec", {}).get("name"))
            cell = papermill.inspect_notebook(_escape(path))
        except Exception as error:  # each library raises others
            raise ParameterError(f"{str(path)!r} cannot be run: {first_line(error)}") from None
        defaults = {name: literal(one["default"], one["default"]) for name, one in cell.items()}
        code = "\n".join(one.source for one in book.cells if one.cell_type == "code")
        return cls(path, defaults, trains=bool(re.search(r"\bstart_run\(", code)))

    def check(self, texts: dict[str, str]) -> tuple[dict[str, Any], SACConfig | None]:
        """Checks the command line's texts, parameter → text, before a kernel starts.

        Every field of `SACConfig` is a parameter of a notebook that trains. Returns the parameters
        with their types; and the notebook's configuration, if it trains.

        Raises:
            ParameterError: an unknown name, a wrong value, or no environment to train SAC in.
        """
        fields = SACConfig.names() if self.trains else []
        parameters: dict[str, Any] = {}
        for name, text in texts.items():
            if name not in self.defaults and name not in fields:
                raise unknown(name, [*self.defaults, *fields])
            word = text.capitalize() if text.lower() in ("true", "false", "none") else text
            is_text = isinstance(self.defaults.get(name), str)
            parameters[name] = text if is_text else literal(word, text)
        if not self.trains:
            return parameters, None
        given = {**self.defaults, **texts}
        config = SACConfig.parse({name: given[name] for name in fields if name in given})
        check_int("num_collectors", given.get("num_collectors", 0), 0, 64, "rollout workers")
        training.check_replay(config)
        with quiet():
            env = make_environment(config.env_name)
            check_specs(env)
            env.close()
        return {n: getattr(config, n, value) for n, value in parameters.items()}, config


def _escape(path: Path) -> str:
    """A path for papermill, which takes braces for names of parameters."""
    return str(path).replace("{", "{{").replace("}", "}}")


@attrs.define(eq=False)
class Execution:
    """A notebook that a kernel of its own executes; the copy in `run_dir` has the outputs.

    `config` is that of the run that it trains, if any. `stops` counts requests to stop.
    """

    notebook: Path
    run_dir: Path
    parameters: dict[str, Any]
    config: SACConfig | None = None
    stops: int = 0
    _kernel: AsyncKernelManager | None = None

    @property
    def output(self) -> Path:
        """The executed copy."""
        return self.run_dir / self.notebook.name

    def check_output(self, parameter: str) -> None:
        """Rejects a folder, the value of `parameter`, where the copy would replace the original."""
        if self.output.is_symlink() or self.output.resolve() == self.notebook.resolve():
            raise invalid(parameter, str(self.run_dir), "another folder than that of the notebook")

    def finished(self) -> bool:
        """Whether the run has its final evaluation; True if the notebook trains none."""
        if self.config is None or not (self.run_dir / training.CONFIG).exists():
            return self.config is None
        return training.is_finished(self.run_dir, self.config)

    def steps(self) -> int:
        """The gradient steps in the run's metrics so far."""
        try:
            return int(training.read_metrics(self.run_dir).gradient_step.max())
        except (ParameterError, ValueError):  # none yet
            return 0

    def run(self, bar: dict[str, Any] | None) -> tuple[int, str]:
        """Executes the notebook; returns an exit status, and one line with the reason.

        `bar` are the options of papermill's progress bar, which counts cells; None for no bar.
        """
        logging.getLogger("papermill").setLevel(logging.CRITICAL)  # every ending is named here
        try:
            self._execute(bar)
            if not self.finished():
                raise RunError(f"the notebook left no finished run in {self.run_dir}")
        except (PapermillExecutionError, StorageError, RuntimeError, KeyboardInterrupt) as error:
            if self.stops:
                return STOPPED, "stopped; the same command resumes it"
            if isinstance(error, PapermillExecutionError):
                return FAILED, f"{error.ename}: {error.evalue}".splitlines()[0]
            if "Kernel died" in str(error):  # nbclient's and jupyter_client's
                good = checkpoint.latest(self.run_dir / "checkpoints") or "none yet"
                error = RunError(f"{KILLED}; last good checkpoint: {good}")
            if not isinstance(error, RunError):
                raise
            return FAILED, f"{type(error).__name__}: {error}"
        return DONE, "done"

    def _execute(self, bar: dict[str, Any] | None) -> None:
        execution = self

        class Manager(AsyncKernelManager):
            def __init__(self, **options: Any) -> None:
                super().__init__(**options)
                execution._kernel = self  # for `stop`

        def check_stop(**cell: Any) -> None:
            if self.stops:
                raise KeyboardInterrupt

        options = {"kernel_manager_class": Manager, "on_cell_start": check_stop}
        files = _escape(self.notebook), _escape(self.output)
        with storage(self.output):
            papermill.execute_notebook(*files, self.parameters, progress_bar=bar, **options)

    def stop(self) -> None:
        """Interrupts the kernel, which ends a training with a checkpoint; again, kills it."""
        self.stops += 1
        process = getattr(getattr(self._kernel, "provisioner", None), "process", None)
        if process is not None:
            process.send_signal(signal.SIGINT if self.stops == 1 else signal.SIGKILL)


def run_all(executions: Sequence[Execution], workers: int = 1) -> int:
    """Executes notebooks, `workers` at a time; shows their progress, and how each one ended.

    The first Ctrl-C, or SIGTERM, or a terminal that is closed, stops them after the current
    iteration, with a checkpoint; the second one kills their kernels. Returns the highest exit
    status: 0; 1 if one failed; 130 if one was stopped.
    """

    def stop(number: int, frame: object) -> None:
        tqdm.write("stopping after this iteration; Ctrl-C again stops at once", file=sys.stderr)
        for one in executions:
            one.stop()

    look = {"leave": False, "mininterval": 0.5 if sys.stderr.isatty() else 30.0}  # in a log file
    cells = {"desc": "cells", "unit": "cell", **look} if len(executions) == 1 else None
    total = sum(one.config.num_iterations for one in executions if one.config)
    options = {"initial": sum(one.steps() for one in executions), "disable": not total, **look}
    caught = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
        caught.append(signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in caught}
    statuses = [DONE]
    try:
        with (
            tqdm(None, "training", total, unit=" it", position=bool(cells), **options) as bar,
            ThreadPoolExecutor(workers) as pool,
        ):
            pending = {pool.submit(one.run, cells): one for one in executions}
            while pending:
                for future in wait(pending, timeout=0.5).done:
                    status, message = future.result()
                    statuses.append(status)
                    bar.write(f"{pending.pop(future).output}: {message}", file=sys.stderr)
                bar.update(sum(one.steps() for one in executions) - bar.n)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return max(statuses)


def run_notebook(path: Path, texts: dict[str, str]) -> int:
    """Executes a notebook in its run directory; `texts` are parameter → text; see `run_all`.

    Raises:
        ParameterError: see `Notebook` and `choose_directory`; no kernel was started.
    """
    notebook = Notebook.read(path)
    parameters, config = notebook.check(texts)
    given = {**notebook.defaults, **texts} if config else {**texts, "resume": "never"}
    wanted = given.get("run_dir", ""), config or SACConfig(), given.get("resume", "auto")
    executor = "ray" if parameters.get("num_collectors") else "local"
    run_dir = training.choose_directory(*wanted, executor=executor)
    training.check_free(run_dir)
    if "run_dir" in notebook.defaults:
        parameters["run_dir"] = str(run_dir)
    execution = Execution(path, run_dir, parameters, config)
    execution.check_output("run_dir")
    print(f"{path.name} runs into {execution.output}", file=sys.stderr)
    return run_all([execution])
