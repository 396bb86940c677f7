"""environment.yml, pyproject.toml, requirements.lock, the code and .venv say the same."""

import ast
import functools
import json
import re
import shutil
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
# They run in .venv-peers: requirements-peers.txt.
PEERS = {"peer", "peer_evaluation", "peer_study", "run_peer", "lunarlander_sb3", "standard_sb3"}
FILES = ("pyproject.toml", "requirements.lock", "environment.yml")


def pinned(line: str) -> tuple[str, str]:
    """`Box2D==2.3; marker` as ("box2d", "==2.3; marker"): what two files must share."""
    requirement = Requirement(line)
    marker = f"; {requirement.marker}" if requirement.marker else ""
    return canonicalize_name(requirement.name), f"{requirement.specifier}{marker}"


def read_pyproject(path: Path) -> dict[str, list[str]]:
    """The requirements by group: "main" and each extra."""
    project = tomllib.loads(path.read_text())["project"]
    return {"main": project["dependencies"], **project["optional-dependencies"]}


def read_lock(path: Path) -> list[str]:
    lines = (line.strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def read_environment(path: Path) -> tuple[list[str], list[str], dict[str, str]]:
    """The requirements below pip, pip's options below it, and each requirement's comment."""
    text = path.read_text()
    items = yaml.safe_load(text)["dependencies"]
    (pip,) = (item["pip"] for item in items if isinstance(item, dict))
    options = [item for item in pip if item.startswith("-")]
    names = [item for item in pip if not item.startswith("-")]
    lines = (line.strip().removeprefix("- ") for line in text.splitlines())
    comments = dict(line.split(" #", 1) for line in lines if " #" in line)
    reasons = {key.strip(): value.strip() for key, value in comments.items()}
    return names, options, reasons


def problems(root: Path) -> list[str]:
    """What is wrong between and within the three files, a sentence each."""
    groups = read_pyproject(root / "pyproject.toml")
    lock = read_lock(root / "requirements.lock")
    environment, options, reasons = read_environment(root / "environment.yml")
    found = []

    for where, lines in {**groups, "lock": lock, "environment.yml": environment}.items():
        names = [pinned(line)[0] for line in lines]
        found += [f"{n} stands twice in {where}" for n in set(names) if names.count(n) > 1]
        found += [f"{line} in {where} has an address" for line in lines if Requirement(line).url]
        found += [
            f"{line} in {where} is not pinned exactly"
            for line in lines
            if not re.fullmatch(r"==[^*,]+", str(Requirement(line).specifier))
        ]
    found += [
        f"{address} in requirements.lock is an address"
        for address in re.findall(r"\S+://\S+", (root / "requirements.lock").read_text())
    ]

    direct = dict(pinned(line) for group, some in groups.items() if group != "gpu" for line in some)
    locked = dict(pinned(line) for line in lock)
    listed = dict(pinned(line) for line in environment)
    for name, pin in direct.items():
        for where, pins in {"requirements.lock": locked, "environment.yml": listed}.items():
            if pins.get(name) != pin:
                found.append(f"{name}{pin} is {name}{pins.get(name, ' (missing)')} in {where}")
    found += [f"{name} is only in environment.yml" for name in listed.keys() - direct.keys()]

    found += [f"{line} has no reason" for line in environment if not reasons.get(line)]
    found += [
        f"environment.yml lacks {line}"
        for line in ("-r requirements.lock", "-e .")
        if line not in options
    ]

    tensorflow = direct.get("tensorflow")
    for line in groups["gpu"]:
        if pinned(line) != ("tensorflow", tensorflow):
            found.append(f"gpu names {line}, the main list tensorflow{tensorflow}")
    return found


def test_the_three_files_agree():
    assert problems(ROOT) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("environment.yml", r"tqdm==\S+", "tqdm==1.0", r"tqdm==4.* is tqdm==1.0 in environment"),
        ("environment.yml", r" *- tqdm==.*\n", "", r"tqdm.* \(missing\) in environment"),
        ("environment.yml", r"(tqdm==\S+).*", r"\1", "tqdm==.* has no reason"),
        ("environment.yml", r"(tqdm==\S+).*", r"\1  #", "tqdm==.* has no reason"),
        ("environment.yml", r"( *- )tqdm", r"\1rich==1.0  # colours\n\1tqdm", "rich is only in"),
        ("environment.yml", r"tqdm==", "tqdm>=", "is not pinned exactly"),
        ("environment.yml", r" *- -r requirements.lock\n", "", "lacks -r requirements.lock"),
        ("environment.yml", r" *- -e \.\n", "", r"lacks -e \."),
        ("environment.yml", r"(dm-reverb==[^;]*);.*(  #)", r"\1\2", "dm-reverb.* in environment"),
        ("requirements.lock", r"tqdm==\S+", "tqdm==1.0", "is tqdm==1.0 in requirements.lock"),
        ("requirements.lock", r"tqdm==.*\n", "", r"tqdm.* \(missing\) in requirements.lock"),
        ("requirements.lock", r"(tqdm==)", r"tqdm==1.0\n\1", "tqdm stands twice in lock"),
        ("requirements.lock", r"(dm-reverb==[^;]*);.*", r"\1", "dm-reverb.* in requirements.lock"),
        ("requirements.lock", r"tqdm==.*", "tqdm @ https://x.example/t.whl", "has an address"),
        ("requirements.lock", r"^", "# --index-url https://x.example\n", "is an address"),
        ("pyproject.toml", r"tqdm==[^\"]+", "tqdm==1.0", "tqdm==1.0 is tqdm==4"),
        ("pyproject.toml", r"tqdm==[^\"]+", "tqdm>=4", "is not pinned exactly"),
        ("pyproject.toml", r"tqdm==[^\"]+", "tqdm==4.*", "is not pinned exactly"),
        ("pyproject.toml", r" *\"tqdm==.*\n", "", "tqdm is only in environment.yml"),
        ("pyproject.toml", r"(ray==)[^\"]+", r"\g<1>1.0", "ray==1.0 is ray=="),
        ("pyproject.toml", r"(and-cuda\]==)[^\"]+", r"\g<1>2.15.0", "gpu names"),
    ],
)
def test_a_drift_is_found(tmp_path, file, old, new, expected):
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path)
    text, count = re.subn(old, new, (tmp_path / file).read_text(), count=1)
    assert count == 1
    (tmp_path / file).write_text(text)
    assert any(re.search(expected, problem) for problem in problems(tmp_path)), problems(tmp_path)


# --- the environment that runs this test


def applicable() -> dict[str, str]:
    """The locked versions that this platform is meant to have."""
    requirements = map(Requirement, read_lock(ROOT / "requirements.lock"))
    return {
        canonicalize_name(r.name): str(r.specifier).removeprefix("==")
        for r in requirements
        if r.marker is None or r.marker.evaluate()
    }


def unmet(name: str, versions: dict[str, str]) -> list[str]:
    """What the installed distribution `name` needs and `versions` does not hold."""
    needs = [Requirement(line) for line in metadata.requires(name) or []]

    def met(need: Requirement) -> bool:
        version = versions.get(canonicalize_name(need.name))
        return version is not None and need.specifier.contains(version, prereleases=True)

    return [
        f"{name} needs {need.name}{need.specifier}"
        for need in needs
        if need.marker is None or need.marker.evaluate({"extra": ""})
        if not met(need)
    ]


def test_what_is_installed_is_what_is_locked():
    installed: dict[str, str] = {}
    for found in metadata.distributions():
        # The first one counts: pkg_resources adds copies of setuptools' own at the end of the path.
        installed.setdefault(canonicalize_name(found.name), found.version)
    wrong = {
        name: (version, installed.get(name))
        for name, version in applicable().items()
        if installed.get(name) != version
    }
    assert wrong == {}, "locked and installed differ: run make setup"


def test_the_lock_is_complete_and_fits_together():
    versions = applicable()
    assert [problem for name in versions for problem in unmet(name, versions)] == []


def test_an_incomplete_lock_is_found():
    versions = applicable()
    assert unmet("pandas", {**versions, "numpy": "1.0"})
    del versions["numpy"]
    assert [problem for problem in unmet("pandas", versions) if "numpy" in problem]


# --- the code


def imported(source: str) -> set[str]:
    """The top-level names that Python source imports, wherever it does so."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


def notebook_source(path: Path) -> str:
    """The code cells of a notebook, without IPython's own lines."""
    cells = json.loads(path.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    lines = "\n".join(cell for cell in code if not cell.startswith("%%")).splitlines()
    return "\n".join(re.sub(r"^(\s*)[%!].*", r"\1pass", line) for line in lines)


@functools.cache
def providers() -> dict[str, set[str]]:
    """The distributions that each importable name is from; reading them all takes long."""
    found = metadata.packages_distributions()
    return {name: {canonicalize_name(one) for one in some} for name, some in found.items()}


@functools.cache
def own_names() -> set[str]:
    """What this repository itself has."""
    folders = (ROOT / "tests", ROOT / "scripts")
    files = {path.stem for folder in folders for path in folder.rglob("*.py")}
    return {"labkit", "benchmarks", "conftest"} | files


def undeclared(names: set[str], declared: set[str]) -> set[str]:
    """Imported names that come from no declared distribution."""
    third_party = names - sys.stdlib_module_names - own_names()
    return {name for name in third_party if not providers().get(name, set()) & declared}


@pytest.mark.parametrize(
    ("folder", "groups"),
    [
        ("labkit", {"main", "ray", "gymnasium", "export"}),
        ("notebooks", {"main", "ray"}),
        ("tests", {"main", "ray", "gymnasium", "export", "test"}),
        ("benchmarks", {"main", "ray"}),
        ("scripts", {"main", "ray", "test"}),
    ],
)
def test_what_is_imported_is_declared(folder, groups):
    stated = read_pyproject(ROOT / "pyproject.toml")
    declared = {pinned(line)[0] for group in groups for line in stated[group]}
    found = {}
    for path in (ROOT / folder).rglob("*.py"):
        if path.stem in PEERS:
            continue
        found[path.name] = undeclared(imported(path.read_text()), declared)
    for path in (ROOT / folder).glob("*.ipynb"):
        found[path.name] = undeclared(imported(notebook_source(path)), declared)
    assert {file: names for file, names in found.items() if names} == {}


def test_an_undeclared_import_is_found():
    source = "import os, reverb\ndef f():\n    from yaml.nodes import Node\nfrom . import config\n"
    assert imported(source) == {"os", "reverb", "yaml"}
    assert undeclared(imported(source), {"dm-reverb"}) == {"yaml"}
