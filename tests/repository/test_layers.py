"""Imports in labkit point down the layers of pyproject.toml, and so do modules named by strings."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import labkit

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "labkit"
CONTRACT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
LAYERS = CONTRACT["contracts"][0]["layers"]

MODULE_NAME = re.compile(r"\blabkit(?:\.\w+)+")
# A name put together at run time could be any module: "labkit." + name, f"labkit.{name}".
BUILT_NAME = re.compile(r"\blabkit\.$")
# The front door loads its public names on first use.
MAY_POINT_UPWARD = {"__init__.py"}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs import-linter on the labkit in `folder`, with the contract of this checkout."""
    command = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [command, "--no-cache", "--no-logo", "--config", ROOT / "pyproject.toml"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def copy_of_labkit(folder: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(PACKAGE, folder / "labkit", ignore=ignored))


def test_imports_point_down():
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "statement",
    ["import labkit.cli.run\n", "def late():\n    from labkit.cli import run\n\n    return run\n"],
    ids=["at module level", "inside a function"],
)
def test_an_upward_import_breaks_the_contract(tmp_path, statement):
    module = copy_of_labkit(tmp_path) / "replay" / "n_step.py"
    module.write_text(f"{module.read_text()}\n\n{statement}")
    done = lint(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "labkit.replay.n_step -> labkit.cli.run" in done.stdout


def test_a_package_without_a_layer_breaks_the_contract(tmp_path):
    new = copy_of_labkit(tmp_path) / "extras"
    new.mkdir()
    (new / "__init__.py").touch()
    done = lint(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "- labkit.extras" in done.stdout


def test_the_readme_of_labkit_lists_every_module_in_the_order_of_the_layers():
    listed = re.findall(r"^\| `([\w/]*\w)` \|", (PACKAGE / "README.md").read_text(), re.M)
    files = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")}
    modules = {str(file.with_suffix("")) for file in files if file.name != "__init__.py"}
    assert sorted(listed) == sorted(modules)
    assert list(dict.fromkeys(name.split("/")[0] for name in listed)) == LAYERS


# --- modules named by a string, and names imported through the front door


def docstrings(tree: ast.Module) -> set[ast.AST]:
    """The nodes of all docstrings: they may mention any module that exists."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                found.add(first.value)
    return found


def names_in_strings(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """Each `labkit.…` in a string: the name, its line, whether the string is a docstring."""
    documentation = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for name in MODULE_NAME.findall(node.value):
                yield name, node.lineno, node in documentation
            if BUILT_NAME.search(node.value):
                yield "labkit.", node.lineno, False


def names_through_the_front_door(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The modules behind `from labkit import train` and `labkit.train`, with the line."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module == "labkit":
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [node.attr] if node.value.id == "labkit" else []
        for name in names:
            if name in labkit._LAZY:
                yield labkit._LAZY[name], node.lineno


def module_of(name: str) -> str | None:
    """The module that a dotted name is, or is an attribute of; None if neither exists."""
    for module in (name, name.rpartition(".")[0]):
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            continue
        if found is None:
            continue
        exists = module == name or name.split(".")[-1] in dir(importlib.import_module(module))
        return module if exists else None
    return None


def points_upward(source: Path, module: str) -> bool:
    own, other = source.parts[0].removesuffix(".py"), module.split(".")[1]
    return LAYERS.index(other) < LAYERS.index(own)


def problems(package: Path) -> list[str]:
    """What is wrong with the modules that the files of `package` name, a sentence each."""
    found = []
    for path in sorted(package.rglob("*.py")):
        source, tree = path.relative_to(package), ast.parse(path.read_text())
        targets = []
        for name, line, documentation in names_in_strings(tree):
            module = module_of(name)
            if module is None:
                found.append(f"{source}:{line} names {name}, which does not exist")
            elif module != "labkit" and not documentation:
                targets.append((module, line))
        for module, line in [*targets, *names_through_the_front_door(tree)]:
            if str(source) not in MAY_POINT_UPWARD and points_upward(source, module):
                found.append(f"{source}:{line} names {module}, which is in a layer above")
    return found


def test_modules_named_by_a_string_exist_and_are_not_above():
    assert problems(PACKAGE) == []


def test_the_modules_that_labkit_starts_by_name_are_found():
    started = {
        name
        for path in PACKAGE.rglob("*.py")
        for name, _, documentation in names_in_strings(ast.parse(path.read_text()))
        if not documentation
    }
    assert "labkit.replay.serve" in started
    assert set(labkit._LAZY.values()) <= started


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('COMMAND = ["python", "-m", "labkit.cli.run"]', "names labkit.cli.run, which is in a"),
        ('importlib.import_module("labkit.sac.agent")', "names labkit.sac.agent, which is in a"),
        ('COMMAND = "python -m labkit.server"', "names labkit.server, which does not exist"),
        ('"""See `labkit.stalls`."""', "names labkit.stalls, which does not exist"),
        ('"""See `labkit.runtime.quite`."""', "labkit.runtime.quite, which does not exist"),
        ('importlib.import_module(f"labkit.{name}")', "names labkit., which does not exist"),
        ("from labkit import train", "names labkit.training.local, which is in a"),
        ("import labkit; labkit.evaluate", "names labkit.sac.evaluation, which is in a"),
    ],
)
def test_a_wrong_name_is_found(tmp_path, line, expected):
    module = tmp_path / "replay" / "new.py"
    module.parent.mkdir()
    module.write_text(f"{line}\n")
    (problem,) = problems(tmp_path)
    assert problem.startswith("replay/new.py:1 ")
    assert expected in problem
