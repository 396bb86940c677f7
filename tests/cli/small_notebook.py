"""A small copy of notebook 03, and `labkit` as a user types it, in this process."""

import os
import re
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import nbformat
from click.testing import CliRunner

from labkit.cli.main import main
from labkit.errors import ParameterError, RunError

PARAMETERS = """
run_dir: str = ""  # results
resume: str = "auto"  # auto or never
seed: int = 0  # of everything
env_name: str = "Pendulum-v1"  # Gym id
num_iterations: int = 30  # gradient steps
initial_collect_steps: int = 250  # env steps
replay: str = "tf_uniform"  # table
batch_size: int = 16  # transitions
actor_fc_layer_params: tuple = (8,)  # units
critic_joint_fc_layer_params: tuple = (8,)  # units
log_interval: int = 10  # gradient steps
eval_interval: int = 0  # gradient steps
num_eval_episodes: int = 1  # episodes
gamma: float = 0.99  # discount
"""
START = "import labkit\nrun = labkit.start_run(globals())"
TRAIN = "labkit.train(run.config, run)"


def write(folder: Path, *cells: str, parameters: str = PARAMETERS) -> Path:
    """Writes small.ipynb, whose first cell has the parameters."""
    book = nbformat.v4.new_notebook()
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "", "language": "python"}
    book.cells = [nbformat.v4.new_code_cell(text.strip()) for text in (parameters, *cells)]
    for cell in book.cells:
        cell.metadata["tags"] = ["lesson"] * cell.source.startswith("# lesson")
    book.cells[0].metadata["tags"] = ["parameters"]
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(book, folder / "small.ipynb")
    return folder / "small.ipynb"


def labkit(*arguments: object) -> SimpleNamespace:
    """What `labkit` with these arguments leaves: exit status, stdout, stderr, a named error."""
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    error, stderr = done.exception, done.stderr
    if isinstance(error, ParameterError | RunError):  # `sys.excepthook` prints it
        stderr += f"{type(error).__name__}: {error}\n"
    return SimpleNamespace(exit_code=done.exit_code, stdout=done.stdout, stderr=stderr)


def last_line(result: SimpleNamespace) -> str:
    """The last line on the terminal, without the bars, which carriage returns redraw."""
    text = re.sub(r"\x1b\[\w", "", result.stderr)
    lines = [line.rpartition("\r")[2].strip() for line in text.split("\n")]
    return [line for line in lines if line and "%|" not in line][-1]


def outputs(executed: Path) -> list[str]:
    """What each code cell of an executed notebook printed, but the parameters."""
    cells = nbformat.read(executed, as_version=4).cells
    return ["".join(o.get("text", "") for o in cell.outputs) for cell in cells[1:]]


def interrupt_when(ready, number=signal.SIGINT) -> None:
    """Sends this process a signal, as the terminal does at Ctrl-C, once `ready()` is true."""

    def wait():
        deadline = time.monotonic() + 200
        while not ready() and time.monotonic() < deadline:
            time.sleep(0.1)
        os.kill(os.getpid(), number)

    threading.Thread(target=wait, daemon=True).start()


def rows(run_dir: Path) -> int:
    """Rows of `metrics.csv` so far."""
    file = run_dir / "metrics.csv"
    return len(file.read_text().splitlines()) - 1 if file.exists() else 0
