"""Executes notebooks with papermill, each in a run directory: `labkit run` and `labkit sweep`."""

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
import psutil
from papermill.exceptions import PapermillExecutionError
from papermill.iorw import load_notebook_node
from tqdm import tqdm

from labkit.analysis.runs import NOT_A_SETTING, setting_name
from labkit.config import SACConfig
from labkit.environments.make import check_specs, make_environment
from labkit.errors import ParameterError, RunError, first_line, storage
from labkit.parameters import invalid, literal, unknown
from labkit.runtime import quiet
from labkit.training import checkpoint, records
from labkit.training import run as training

COMPARISON = "05_compare_runs.ipynb"  # next to the notebook of a sweep


def check_notebook(
    path: Path, texts: dict[str, str]
) -> tuple[dict[str, Any], dict[str, Any], SACConfig | None]:
    """Checks a notebook and the command line's texts, parameter → text, before a kernel starts.

    Every field of `SACConfig` is a parameter of a notebook that trains with `start_run`.

    Returns:
        Its parameters, name → default; the given ones, typed; and its configuration, if it trains.

    Raises:
        ParameterError: no notebook, an unknown name, a wrong value, or no environment to train in.
    """
    try:
        book = load_notebook_node(str(path))
        cell = papermill.inspect_notebook(str(path))
    except Exception as error:  # each library raises others
        raise ParameterError(f"{str(path)!r} cannot be run: {first_line(error)}") from None
    defaults = {name: literal(one["default"], one["default"]) for name, one in cell.items()}
    trains = any("start_run(" in c.source for c in book.cells if c.cell_type == "code")
    fields = SACConfig.names() if trains else []
    parameters: dict[str, Any] = {}
    for name, text in texts.items():
        if name not in defaults and name not in fields:
            raise unknown(name, [*defaults, *fields])
        parameters[name] = text if isinstance(defaults.get(name), str) else literal(text, text)
    if not trains:
        return defaults, parameters, None
    config = SACConfig.parse({n: v for n, v in {**defaults, **texts}.items() if n in fields})
    training.check_replay(config)
    with quiet():
        env = make_environment(config.env_name)
        check_specs(env)
        env.close()
    return defaults, {n: getattr(config, n, value) for n, value in parameters.items()}, config


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

    def finished(self) -> bool:
        """Whether the run has its final evaluation; True if the notebook trains none."""
        if self.config is None or not (self.run_dir / records.CONFIG).exists():
            return self.config is None
        return records.is_finished(self.run_dir, self.config)

    def steps(self) -> int:
        """The gradient steps in the run's metrics so far."""
        try:
            return int(records.read_metrics(self.run_dir).gradient_step.max())
        except (ParameterError, ValueError):  # none yet
            return 0

    def run(self) -> int:
        """Executes the notebook, and prints how it ended.

        Returns an exit status: 0, 1 if it failed, 130 if it was stopped.
        """

        def check_stop(**cell: Any) -> None:
            if self.stops:
                raise RunError("stopped")

        output = self.run_dir / self.notebook.name
        files = str(self.notebook), str(output)
        # nbclient skips what the run does not need.
        options: Any = {"on_cell_start": check_stop, "skip_cells_with_tag": "lesson"}
        logging.getLogger("papermill").setLevel(logging.CRITICAL)  # every ending is named here
        status, message = 0, "done"
        try:
            with storage(output):
                self.run_dir.mkdir(parents=True, exist_ok=True)
                papermill.execute_notebook(*files, self.parameters, progress_bar=False, **options)
            if not self.finished():
                raise RunError(f"the notebook left no finished run in {self.run_dir}")
        except Exception as error:
            status, message = 1, f"{type(error).__name__}: {first_line(error)}"
            if self.stops:
                status, message = 130, "stopped; the same command resumes it"
            elif isinstance(error, PapermillExecutionError):
                message = f"{error.ename}: {error.evalue}".splitlines()[0]
            elif "Kernel died" in message:  # nbclient's and jupyter_client's
                good = checkpoint.latest(self.run_dir / "checkpoints")
                message = f"killed (out of memory? a hung env step?); last good checkpoint: {good}"
        tqdm.write(f"{output}: {message}", file=sys.stderr)
        return status


def run_all(executions: Sequence[Execution], workers: int = 1) -> int:
    """Executes notebooks, `workers` at a time; shows their progress, and how each one ended.

    The first Ctrl-C, or SIGTERM, stops them after the current iteration, with a checkpoint; the
    second one kills their kernels. Returns the highest status, see `Execution.run`.
    """

    def stop(number: int, frame: object) -> None:
        tqdm.write("stopping after this iteration; Ctrl-C again stops at once", file=sys.stderr)
        for one in executions:
            one.stops += 1
        for kernel in psutil.Process().children():
            kernel.send_signal(signal.SIGINT if executions[0].stops == 1 else signal.SIGKILL)

    total = sum(one.config.num_iterations for one in executions if one.config)
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    with (
        tqdm(None, "training", total, leave=False, unit=" it", disable=not total) as bar,
        ThreadPoolExecutor(workers) as pool,
    ):
        futures = [pool.submit(one.run) for one in executions]
        while wait(futures, timeout=1).not_done:
            bar.update(sum(one.steps() for one in executions) - bar.n)
    for number, handler in before.items():
        signal.signal(number, handler)
    return max((future.result() for future in futures), default=0)


def run_notebook(path: Path, texts: dict[str, str]) -> int:
    """Executes a notebook in its run directory; `texts` are parameter → text; see `run_all`.

    Raises:
        ParameterError: see `check_notebook` and `choose_directory`; no kernel was started.
    """
    defaults, parameters, config = check_notebook(path, texts)
    given = {**defaults, **texts} if config else {**texts, "resume": "never"}
    wanted = given.get("run_dir", ""), config or SACConfig(), given.get("resume", "auto")
    executor = "ray" if parameters.get("num_collectors") else "local"
    run_dir = training.choose_directory(*wanted, {"executor": executor})
    training.check_free(run_dir)
    if run_dir.resolve() == path.resolve().parent:
        raise invalid("run_dir", str(run_dir), "another folder than that of the notebook")
    if "run_dir" in defaults:
        parameters["run_dir"] = str(run_dir)
    print(f"{path.name} runs into {run_dir / path.name}", file=sys.stderr)
    return run_all([Execution(path, run_dir, parameters, config)])


def run_sweep(
    path: Path, seeds: Sequence[str], texts: dict[str, str], into: Path, workers: int
) -> int:
    """Runs every seed in `into`/SETTING/seed-N, then executes notebook 05 on all runs there.

    A second sweep skips finished runs and resumes the others. For arguments and the status that it
    returns, see `run_notebook` and `run_all`.

    Raises:
        ParameterError: a parameter, a seed or a directory is not allowed; no run has started.
    """
    if taken := {"seed", "run_dir", "resume"} & set(texts):
        raise invalid("-p", min(taken), "a parameter that the sweep does not set itself")
    executions: dict[Path, Execution] = {}
    for seed in seeds:
        defaults, parameters, config = check_notebook(path, {**texts, "seed": seed})
        if config is None or "run_dir" not in defaults:
            allowed = "a notebook that trains with labkit.start_run, such as 03_sac_minitaur.ipynb"
            raise invalid("notebook", str(path), allowed)
        words = [  # one setting has one name, however its values are spelled
            f"{name}-{parameters[name]}"
            for name in texts
            if name not in NOT_A_SETTING and parameters[name] != defaults.get(name)
        ]
        setting = re.sub(r"[^\w.+-]+", "_", "_".join(words) or "defaults")
        run_dir = into / setting / f"seed-{config.seed}"
        training.check_usable(run_dir, config)
        training.check_free(run_dir)
        parameters["run_dir"] = str(run_dir)
        executions[run_dir] = Execution(path, run_dir, parameters, config)
        shown = {"budget": config.num_iterations, "baseline": setting_name(config)}
    if len(executions) != max(len(seeds), 1):
        raise invalid("--seeds", " ".join(seeds), "one or more different seeds, such as '0 1 2'")
    status = run_all([one for one in executions.values() if not one.finished()], workers)
    comparison = path.with_name(COMPARISON)
    if status or not comparison.is_file():
        return status
    return run_all([Execution(comparison, into, {"runs": str(into.resolve()), **shown})])
