"""Runs pytest's nbval on a copy of a committed notebook, with smaller parameters."""

import os
import subprocess
import sys
from pathlib import Path

import papermill

ROOT = Path(__file__).resolve().parents[2]


def compare(notebook: Path, folder: Path, parameters: dict) -> None:
    """Asserts that each cell runs, and that tagged outputs are the committed ones.

    Only cells with the tag `nbval-check-output` are compared: the others depend on the parameters.
    nbval never compares pictures.
    """
    before, copy = notebook.read_bytes(), folder / notebook.name
    # It keeps the committed outputs, which nbval compares with.
    papermill.execute_notebook(
        str(notebook), str(copy), parameters, prepare_only=True, progress_bar=False
    )
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
