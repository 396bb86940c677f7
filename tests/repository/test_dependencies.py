"""pyproject.toml, requirements.lock, environment.yml, the code and .venv agree."""

import ast
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GROUPS = {"main": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
LOCK = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if line[0] != "#"]


def pins(lines: list[str]) -> dict[str, str]:
    """{"box2d": "==2.3; marker"} of `Box2D==2.3; marker`: what the files share."""
    requirements = list(map(Requirement, lines))
    assert all(re.fullmatch(r"==[^*,]+", str(r.specifier)) and not r.url for r in requirements)
    return {canonicalize_name(r.name): f"{r.specifier}; {r.marker}" for r in requirements}


def test_every_direct_dependency_is_locked_and_has_a_reason_in_environment_yml():
    direct = pins([line for name, lines in GROUPS.items() if name != "gpu" for line in lines])
    assert direct.items() <= pins(LOCK).items(), "run make lock"
    text = (ROOT / "environment.yml").read_text()
    (pip,) = (one["pip"] for one in yaml.safe_load(text)["dependencies"] if isinstance(one, dict))
    assert {"-r requirements.lock", "-e ."} <= set(pip)
    assert pins([line for line in pip if line[0] != "-"]) == direct
    lines = [line for line in text.splitlines() if "==" in line and "- " in line]
    assert [line for line in lines if not re.search(r"  +# \S", line)] == [], "its reason"
    assert pins(GROUPS["gpu"])["tensorflow"] == direct["tensorflow"]


def test_the_lock_names_no_address_and_is_what_is_installed():
    assert "://" not in (ROOT / "requirements.lock").read_text()
    wanted = {r.name: str(r.specifier)[2:] for r in map(Requirement, LOCK) if applies(r)}
    found = {name: metadata.version(name) for name in wanted}
    assert found == wanted, "locked and installed differ: run make setup"


def test_the_lock_is_complete_and_fits_together():
    locked = {canonicalize_name(r.name): str(r.specifier)[2:] for r in map(Requirement, LOCK)}
    missing = []
    for name in (r.name for r in map(Requirement, LOCK) if applies(r)):
        for need in filter(applies, map(Requirement, metadata.requires(name) or [])):
            version = locked.get(canonicalize_name(need.name))
            if version is None or not need.specifier.contains(version, prereleases=True):
                missing.append(f"{name} needs {need}, locked is {version}")
    assert missing == []


def applies(requirement: Requirement) -> bool:
    """Whether it is meant for this platform, without an extra."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def test_what_labkit_imports_is_declared():
    groups = ("main", "ray", "gymnasium", "export")
    declared = pins([line for group in groups for line in GROUPS[group]])
    providers, unknown = metadata.packages_distributions(), set()
    for path in (ROOT / "labkit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            for name in {name.split(".")[0] for name in names} - sys.stdlib_module_names:
                if not declared.keys() & set(map(canonicalize_name, providers.get(name, []))):
                    unknown |= {name}
    assert unknown <= {"labkit"}
