"""Continuous integration runs every test: the quick ones, and each kind that they leave out."""

import re
import tomllib
from pathlib import Path

import conftest

ROOT = Path(__file__).resolve().parents[2]


def test_each_marker_has_a_target_that_ci_runs():
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    markers = [line.partition(":")[0] for line in stated["markers"]]
    left_out = stated["addopts"][-1].replace("not ", "").split(" and ")
    assert sorted(markers) == sorted(left_out)
    makefile = (ROOT / "Makefile").read_text()
    suites = re.search(r"for suite in (.*); do", (ROOT / ".ci" / "run").read_text())[1].split()
    recipes = {name: re.search(rf"^{name}:.*\n((?:\t.*\n)+)", makefile, re.M)[1] for name in suites}
    assert "-m pytest $(SIDE_BY_SIDE) $(ARGS)" in recipes["test"], "a folder would leave tests out"
    others, alone = re.findall(r"-m pytest (-m slow .*?) \|\| status", recipes["slow"])
    assert others == "-m slow $(SIDE_BY_SIDE) $(filter-out $(RAY),$(SLOW)) $(ARGS)"
    assert alone == "-m slow $(RAY) $(ARGS)", "what the first command leaves out"
    # Every file that names the marker, so that pytest need not read the others.
    assert "SLOW = $(shell grep -rlE 'mark\\.slow' tests --include='test_*.py')\n" in makefile
    assert all(f"-m {marker}" in " ".join(recipes.values()) for marker in markers)


def test_browser_tests_are_in_the_folder_that_their_target_names():
    marked = [p for p in (ROOT / "tests").rglob("test_*.py") if "mark.browser" in p.read_text()]
    others = [path for path in marked if path.parent.name not in ("browser", "repository")]
    assert not others


def test_the_long_files_exist():
    """Processes side by side begin with them."""
    assert set(conftest.LONG) <= {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(set(conftest.LONG)) == len(conftest.LONG)
