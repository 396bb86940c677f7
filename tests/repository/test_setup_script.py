"""Tests of scripts/setup.sh and the Makefile with a fake Python that records its calls."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = [
    "bash",
    "make",
    "dirname",
    "cksum",
    "cat",
    "cp",
    "cut",
    "grep",
    "head",
    "mkdir",
    "rm",
    "seq",
]
TOOLS += ["tail", "touch"]

# A fake python3.11. `-m venv DIR` copies it there, so that the environment's Python is fake, too.
FAKE = """#!/bin/bash
echo "$*" >> '{calls}'
case "$1 $2" in
    "-c import sys"*) exit {not_311} ;;
    "-m venv") {venv} ;;
    "-m pip") {pip} ;;
    "-m ensurepip") {ensurepip} ;;
    "-m labkit.cli.main") exit 3 ;;
esac
"""
MAKE_VENV = 'mkdir -p "$3/bin" && cp "$0" "$3/bin/python"'
# Debian 12's message without python3-venv; it leaves an incomplete environment behind.
DEBIAN = (
    'mkdir -p "$3/bin"; echo "The virtual environment was not created successfully because '
    'ensurepip is not available.  On Debian/Ubuntu systems, you need to install the python3-venv"; '
    "exit 1"
)


class Checkout:
    """A copy of the files that set-up reads, and a PATH with only a few tools."""

    def __init__(self, root: Path):
        self.root = root / "a checkout"  # set-up must work in a folder with a space
        self.bin = root / "bin"
        self.calls_file = root / "calls"
        self.venv = self.root / ".venv"
        (self.root / "scripts").mkdir(parents=True)
        self.bin.mkdir()
        shutil.copy(ROOT / "scripts/setup.sh", self.root / "scripts")
        shutil.copy(ROOT / "Makefile", self.root)
        (self.root / "requirements.lock").write_text("setuptools==80.0\nwheel==0.1\ntqdm==4.0\n")
        (self.root / "pyproject.toml").write_text("[project]\n")
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))

    def fake(self, path, *, version=(3, 11), venv=MAKE_VENV, pip=":", ensurepip=":"):
        """Writes a fake Python to `path`, relative to the folder on PATH."""
        path = self.bin / path
        path.parent.mkdir(parents=True, exist_ok=True)
        text = FAKE.format(
            calls=self.calls_file,
            not_311=int(version != (3, 11)),
            venv=venv,
            pip=pip,
            ensurepip=ensurepip,
        )
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def run(self, *command, cwd=None, **environment):
        self.calls_file.write_text("")
        return subprocess.run(
            command,
            cwd=cwd or self.root,
            env={"PATH": str(self.bin), "HOME": os.environ.get("HOME", "/"), **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def setup(self, **environment):
        return self.run(str(self.root / "scripts/setup.sh"), cwd=self.bin, **environment)

    def calls(self):
        """Python's command lines in the last run, without the version checks."""
        lines = self.calls_file.read_text().splitlines()
        return [line for line in lines if not line.startswith("-c ")]


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def assert_lists_alternatives(result, headline):
    assert result.returncode == 1
    assert result.stdout == ""
    first, *rest = result.stderr.splitlines()
    assert headline in first
    for way in (
        "python3-venv",
        "python3.11-venv",
        "conda env create -f environment.yml",
        "uv venv --python 3.11 .venv",
        "PYTHON=/path/to/python3.11",
    ):
        assert sum(way in line for line in rest) == 1, result.stderr
    assert len(rest) == 5


# --- which Python


def test_no_python_at_all(checkout):
    assert_lists_alternatives(checkout.setup(), "labkit needs Python 3.11")
    assert not checkout.venv.exists()


def test_no_python_3_11(checkout):
    checkout.fake("python3", version=(3, 12))
    checkout.fake("python3.11", version=None)  # like a pyenv shim without its Python
    assert_lists_alternatives(checkout.setup(), "labkit needs Python 3.11")
    assert not checkout.venv.exists()


def test_python3_is_used_if_it_is_3_11(checkout):
    checkout.fake("python3")
    assert checkout.setup().returncode == 0


def test_the_named_python_comes_first(checkout):
    checkout.fake("python3.11", venv="exit 1")
    named = checkout.fake("elsewhere/python")
    assert checkout.setup(PYTHON=str(named)).returncode == 0


def test_a_named_python_that_is_not_3_11(checkout):
    checkout.fake("python3.11")
    named = checkout.fake("elsewhere/python", version=(3, 12))
    result = checkout.setup(PYTHON=str(named))
    assert_lists_alternatives(result, f"found none as {named}.")


def test_venv_is_missing(checkout):
    checkout.fake("python3.11", venv=DEBIAN)
    result = checkout.setup()
    assert_lists_alternatives(result, "python3.11 cannot make virtual environments")
    assert not checkout.venv.exists()  # otherwise `uv venv`, one of the alternatives, would fail


def test_venv_fails_for_another_reason(checkout):
    checkout.fake("python3.11", venv="echo No space left on device; exit 1")
    result = checkout.setup()
    assert result.returncode == 1
    assert "No space left on device" in result.stderr
    assert "python3-venv" not in result.stderr


# --- what is installed, and when set-up repeats it


def test_a_second_call_does_nothing(checkout):
    checkout.fake("python3.11")
    first = checkout.setup()
    assert first.returncode == 0
    assert checkout.calls() == [
        "-m venv .venv",
        "-m pip --version",
        "-m pip install -c requirements.lock -r .venv/build-tools.txt",
        "-m pip install --no-compile --no-build-isolation -r requirements.lock",
        "-m compileall -q -j 0 .venv/lib/python3.11/site-packages",
        "-m pip install --no-deps --no-build-isolation -e .",
    ]
    assert (checkout.venv / "build-tools.txt").read_text() == "setuptools==80.0\nwheel==0.1\n"

    second = checkout.setup()
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert checkout.calls_file.read_text() == ""


def test_a_changed_lock_replaces_the_environment(checkout):
    checkout.fake("python3.11")
    checkout.setup()
    (checkout.venv / "left over").touch()
    (checkout.root / "requirements.lock").write_text("tqdm==5.0\nsetuptools==80.0\n")
    assert checkout.setup().returncode == 0
    assert checkout.calls()[0] == "-m venv .venv"
    assert not (checkout.venv / "left over").exists()


def test_a_changed_pyproject_reinstalls_only_labkit(checkout):
    checkout.fake("python3.11")
    checkout.setup()
    (checkout.root / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert checkout.setup().returncode == 0
    assert checkout.calls() == ["-m pip install --no-deps --no-build-isolation -e ."]
    checkout.setup()
    assert checkout.calls() == []


def test_a_moved_checkout_gets_a_new_environment(checkout):
    checkout.fake("python3.11")
    checkout.setup()
    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))
    assert checkout.setup().returncode == 0
    assert checkout.calls()[0] == "-m venv .venv"


def test_a_failure_is_reported_and_repeated_next_time(checkout):
    checkout.fake("python3.11", pip='[ "$3" != install ] || { seq 99; exit 1; }')
    result = checkout.setup()
    assert result.returncode == 1
    assert "99\nSet-up failed; .venv/setup.log has the complete output" in result.stderr
    assert "80\n" not in result.stderr
    assert "\n80\n" in (checkout.venv / "setup.log").read_text()

    checkout.fake("python3.11")
    assert checkout.setup().returncode == 0
    assert checkout.calls()[0] == "-m venv .venv"
    assert checkout.setup().stderr == ""


def test_a_killed_set_up_starts_again(checkout):
    checkout.fake("python3.11", pip='[ "$3" != install ] || kill -9 $PPID')
    assert checkout.setup().returncode == -9
    (checkout.venv / "half a package").touch()

    checkout.fake("python3.11")
    assert checkout.setup().returncode == 0
    assert not (checkout.venv / "half a package").exists()


# --- an environment that this script did not make


NO_PIP = '[ -e "$0.pip" ]'


def test_an_environment_without_pip_gets_it_from_ensurepip(checkout):
    checkout.fake("../a checkout/.venv/bin/python", pip=NO_PIP, ensurepip='touch "$0.pip"')
    (checkout.venv / "mine").touch()
    assert checkout.setup().returncode == 0
    assert "-m ensurepip" in checkout.calls()
    assert (checkout.venv / "mine").exists()


def test_an_environment_without_pip_gets_it_from_uv(checkout):
    python = checkout.fake("../a checkout/.venv/bin/python", pip=NO_PIP, ensurepip="exit 1")
    uv = checkout.bin / "uv"
    uv.write_text(
        f"#!/bin/bash\n[ \"$*\" = 'pip install --python .venv/bin/python pip' ] "
        f"&& touch '{python}.pip'\n"
    )
    uv.chmod(0o755)
    assert checkout.setup().returncode == 0


def test_an_environment_without_pip_ensurepip_and_uv_is_an_error(checkout):
    checkout.fake("../a checkout/.venv/bin/python", pip=NO_PIP, ensurepip="exit 1")
    result = checkout.setup()
    assert result.returncode == 1
    assert ".venv has no pip" in result.stderr
    assert checkout.venv.exists()


def test_an_environment_of_another_python_is_kept(checkout):
    checkout.fake("python3.11")
    checkout.fake("../a checkout/.venv/bin/python", version=(3, 12))
    result = checkout.setup()
    assert result.returncode == 1
    assert ".venv exists and is no Python 3.11 environment" in result.stderr
    assert (checkout.venv / "bin/python").exists()


# --- make


def test_make_run_passes_arguments_on_and_fails_with_the_launcher(checkout):
    checkout.fake("python3.11")
    checkout.setup()
    result = checkout.run("make", "run", "ARGS=-p seed 3 -p layers '(256, 256)'")
    assert checkout.calls() == [
        "-m labkit.cli.main run notebooks/03_sac_minitaur.ipynb -p seed 3 -p layers (256, 256)"
    ]
    assert result.returncode != 0
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1  # make's message about the exit status


def test_make_uses_the_python_named_by_PYTHON(checkout):
    named = checkout.fake("elsewhere/python")
    assert checkout.run("make", "setup", f"PYTHON={named}").returncode == 0
    assert checkout.run("make", "test").returncode == 0
    side_by_side = "-n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder"
    assert checkout.calls() == [f"-m pytest {side_by_side}"]
