"""The beginning of every notebook, and adding and removing badges."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import front  # noqa: E402


@pytest.mark.parametrize("path", front.notebooks(), ids=lambda path: path.stem)
def test_every_notebook_has_the_same_front_and_no_badges(path):
    committed, made = (nbformat.read(path, as_version=4) for _ in range(2))
    front.front(made, "", f"notebooks/{path.name}")
    assert made == committed, "run python scripts/front.py, then execute the notebook again"
    first_code = next(cell for cell in committed.cells if cell.cell_type == "code")
    assert first_code.source == front.CELL.format(origin="")
    assert first_code.outputs == []
    assert front.BEGIN not in committed.cells[0].source


def test_the_cell_is_short_and_does_nothing_outside_colab():
    assert len([line for line in front.CELL.splitlines() if line.strip()]) <= 15
    code = front.CELL.format(origin="") + "\nprint(sorted(set(dir()) - before))"
    done = subprocess.run(
        [sys.executable, "-c", f"before = {{'before', *dir()}}\n{code}"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("['drive', 'origin', 'sys']\n", "")


def test_badges_link_to_the_notebook_and_can_be_removed():
    path = front.notebooks()[0]
    notebook, before = (nbformat.read(path, as_version=4) for _ in range(2))
    front.front(notebook, "someone/labkit", f"notebooks/{path.name}")
    first, cell = notebook.cells[0].source, notebook.cells[1].source
    assert f"/github/someone/labkit/blob/main/notebooks/{path.name})" in first
    assert f"/v2/gh/someone/labkit/main?labpath=notebooks%2F{path.name})" in first
    assert first.startswith("# ")
    assert 'origin = "https://github.com/someone/labkit"' in cell
    nbformat.validate(notebook)
    front.front(notebook, "", f"notebooks/{path.name}")
    assert notebook == before


def test_badges_in_the_readme():
    committed = (ROOT / "README.md").read_text()
    assert front.readme(committed, "") == committed, "the committed README has badges"
    with_badges = front.readme(committed, "someone/labkit")
    for path in front.notebooks():
        assert f"blob/main/notebooks/{path.name}" in with_badges
    assert front.readme(with_badges, "") == committed


@pytest.mark.parametrize("repo", ["labkit", "a/b/c", "https://github.com/a/b", "a b/c"])
def test_an_invalid_repository_is_an_error_before_anything_is_written(repo):
    command = [sys.executable, str(ROOT / "scripts" / "front.py"), "--repo", repo]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert re.search(r"--repo must be owner/name, got '.*'$", done.stderr.strip())


def test_binder_finds_its_environment_at_the_root():
    """repo2docker uses environment.yml at the root only if none of these files hides it."""
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert "python=3.11" in environment["dependencies"]
    hiding = ["binder", ".binder", "Dockerfile", "Pipfile", "runtime.txt"]
    assert [name for name in hiding if (ROOT / name).exists()] == []
