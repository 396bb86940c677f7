"""Imports in labkit point down the layers of pyproject.toml; the front door opens."""

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import labkit

ROOT = Path(__file__).resolve().parents[2]


def test_imports_point_down():
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_public_names_load():
    assert sorted(labkit.__all__) == [
        *("ActorPolicy", "ParameterError", "Run", "RunError", "SACConfig", "evaluate"),
        *("make_environment", "open_run", "quiet", "start_run", "train", "train_on_ray"),
    ]
    assert all(getattr(labkit, name) is not None for name in labkit.__all__)


def test_modules_that_labkit_names_in_strings_exist():
    """In docstrings, for example."""
    wrong = []
    for path in (ROOT / "labkit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names = re.findall(r"\blabkit(?:\.\w+)+", node.value)
                wrong += [(path.name, node.lineno, name) for name in names if not exists(name)]
    assert wrong == []


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    parent, _, attribute = name.rpartition(".")
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        found = None
    return found is not None or hasattr(importlib.import_module(parent), attribute)
