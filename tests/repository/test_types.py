"""Type checkers see labkit's public names, and labkit itself is typed."""

import os
import re
import subprocess
import sys
import tokenize
import tomllib
from pathlib import Path

import pytest

import labkit

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = [
    "ActorPolicy",
    "ParameterError",
    "Run",
    "RunError",
    "SACConfig",
    "evaluate",
    "make_environment",
    "open_run",
    "quiet",
    "start_run",
    "train",
    "train_on_ray",
]
# A user's program, checked as labkit's own environment is set up: through py.typed. Types of
# packages other than labkit and attrs are skipped, which saves most of mypy's time.
SETTINGS = """
[mypy]
python_version = 3.11
follow_imports = skip
ignore_missing_imports = True
[mypy-labkit.*,attrs.*,attr.*]
follow_imports = silent
[mypy-matplotlib.*,numpy.*]
follow_imports_for_stubs = True
"""
LINES = {
    "wrong type": 'labkit.SACConfig(num_iterations="many")',
    "mistyped name": "labkit.SACConfig(gama=0.9)",
    "correct": 'labkit.SACConfig(env_name="Pendulum-v1", num_iterations=5, gamma=0.9)',
    "n_step": "reveal_type(labkit.SACConfig().n_step)",
    **{name: f"reveal_type(labkit.{name})" for name in PUBLIC},
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, str]:
    """What mypy reports for each of LINES, in one run; empty text where it reports nothing."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "mypy.ini").write_text(SETTINGS)
    (folder / "program.py").write_text("\n".join(["import labkit", *LINES.values(), ""]))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "program.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stderr == ""
    found = dict.fromkeys(LINES, "")
    for line in done.stdout.splitlines():
        number, report = re.fullmatch(r"program\.py:(\d+): (.*)", line).groups()
        found[list(LINES)[int(number) - 2]] += report
    return found


def test_a_wrong_type_in_the_configuration_is_an_error(reports):
    assert 'incompatible type "str"; expected "int"' in reports["wrong type"]


def test_a_mistyped_name_in_the_configuration_is_an_error(reports):
    assert 'Unexpected keyword argument "gama"' in reports["mistyped name"]


def test_a_correct_configuration_passes(reports):
    assert reports["correct"] == ""


def test_fields_have_their_resolved_types(reports):
    assert reports["n_step"] == 'note: Revealed type is "builtins.int"'


@pytest.mark.parametrize("name", PUBLIC)
def test_mypy_knows_the_type_of_every_public_name(reports, name):
    assert reports[name].startswith("note: Revealed type is ")
    assert reports[name] != 'note: Revealed type is "Any"'


def test_the_public_names_are_listed_and_load():
    assert sorted(labkit.__all__) == PUBLIC
    assert set(PUBLIC) <= set(dir(labkit))
    assert [name for name in PUBLIC if getattr(labkit, name, None) is None] == []


# --- labkit's own types


def test_every_function_of_labkit_must_be_typed():
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert mypy["packages"] == ["labkit"]
    assert mypy["disallow_untyped_defs"] is True
    assert mypy["warn_unused_ignores"] is True


def unexplained(path: Path) -> list[str]:
    """The `type: ignore` comments of a file that lack a code or a reason."""
    with path.open("rb") as file:
        comments = [t for t in tokenize.tokenize(file.readline) if t.type == tokenize.COMMENT]
    return [
        f"{path.name}:{comment.start[0]}: {comment.string}"
        for comment in comments
        if re.search(r"type:\s*ignore", comment.string)
        if not re.search(r"# type: ignore\[[a-z, -]+\]  # \w", comment.string)
    ]


def test_every_ignored_type_error_has_a_code_and_a_reason():
    found = [line for path in (ROOT / "labkit").rglob("*.py") for line in unexplained(path)]
    assert found == []


@pytest.mark.parametrize(
    ("comment", "accepted"),
    [
        ("# type: ignore[attr-defined]  # its stubs lack this", True),
        ("# type: ignore[misc, arg-type]  # called after a push", True),
        ("# type: ignore[attr-defined]", False),
        ("# type: ignore", False),
        ("# type: ignore  # because", False),
    ],
)
def test_an_unexplained_ignore_is_found(tmp_path, comment, accepted):
    file = tmp_path / "module.py"
    file.write_text(f"value = 1  {comment}\n")
    assert (unexplained(file) == []) is accepted
