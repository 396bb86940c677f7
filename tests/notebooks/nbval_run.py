"""Runs pytest's nbval on a copy of a committed notebook, with smaller parameters."""

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import nbformat
import papermill

ROOT = Path(__file__).resolve().parents[2]


def compare(
    notebook: Path, folder: Path, parameters: dict, leave_out: Collection[str] = ()
) -> None:
    """Asserts that each cell runs, and that tagged outputs are the committed ones.

    Only cells with the tag `nbval-check-output` are compared: the others depend on the parameters.
    nbval never compares pictures. Cells with the ids in `leave_out` are not executed.
    """
    before, copy = notebook.read_bytes(), folder / notebook.name
    # It keeps the committed outputs, which nbval compares with.
    prepared = papermill.execute_notebook(
        str(notebook), None, parameters, prepare_only=True, progress_bar=False
    )
    left = [cell for cell in prepared.cells if cell.id not in leave_out]
    assert len(left) == len(prepared.cells) - len(leave_out), "a cell has another id now"
    prepared.cells = left
    nbformat.write(prepared, copy)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:anyio", "-p", "no:cacheprovider"]
    command += ["--nbval-lax", "--nbval-current-env", "--rootdir", "."]
    done = subprocess.run(
        [*command, "--nbval-cell-timeout", "300", copy.name],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert notebook.read_bytes() == before
