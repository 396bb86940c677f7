"""A user's type checker knows labkit's public names and the types of `SACConfig`."""

import os
import subprocess
import sys
from pathlib import Path

import labkit

ROOT = Path(__file__).resolve().parents[2]
# Types of packages other than labkit and attrs are skipped, which saves most of mypy's time.
SETTINGS = """
[mypy]
follow_imports = skip
ignore_missing_imports = True
[mypy-labkit.*,attrs.*,attr.*]
follow_imports = silent
"""
PROGRAM = """import labkit
reveal_type(labkit.SACConfig().n_step)
"""


def test_a_users_program_is_checked_against_labkits_types(tmp_path):
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    names = "".join(f"reveal_type(labkit.{name})\n" for name in labkit.__all__)
    (tmp_path / "program.py").write_text(PROGRAM + names)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "program.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    n_step, *public = done.stdout.splitlines()
    assert n_step.endswith('Revealed type is "builtins.int"')
    assert len(public) == len(labkit.__all__)
    assert not [line for line in public if line.endswith('"Any"')]
