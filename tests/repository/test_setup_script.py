"""scripts/setup.sh with a fake Python that records its calls; `make` on top of it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ["bash", "make", "dirname", "cksum", "cat", "cp", "cut", "grep", "head", "mkdir", "rm"]
# `-m venv DIR` copies it there, so that the environment's Python is fake, too.
FAKE = """#!/bin/bash
echo "$*" >> '{calls}'
case "$1 $2" in
    "-c import sys"*) exit {wrong_version} ;;
    "-m venv") {venv} ;;
    "-m pip") {pip} ;;
    "-m labkit.cli.main") exit 3 ;;
esac
"""
MAKE_VENV = 'mkdir -p "$3/bin" && cp "$0" "$3/bin/python"'
# Debian 12 without python3-venv leaves an incomplete environment behind.
DEBIAN = 'mkdir -p "$3/bin"; echo "ensurepip is not available"; exit 1'
INSTALL_LABKIT = "-m pip install --no-deps --no-build-isolation -e ."


class Checkout:
    """A copy of the files that set-up reads, and a PATH with only a few tools."""

    def __init__(self, folder: Path):
        self.root, self.bin = folder / "a checkout", folder / "bin"
        self.calls_file, self.venv = folder / "calls", self.root / ".venv"
        (self.root / "scripts").mkdir(parents=True)
        self.bin.mkdir()
        shutil.copy(ROOT / "scripts/setup.sh", self.root / "scripts")
        shutil.copy(ROOT / "Makefile", self.root)
        (self.root / "requirements.lock").write_text("setuptools==80.0\nwheel==0.1\ntqdm==4.0\n")
        (self.root / "pyproject.toml").write_text("[project]\n")
        for tool in [*TOOLS, "seq", "tail", "touch"]:
            (self.bin / tool).symlink_to(shutil.which(tool))

    def fake(self, path, *, version=(3, 11), venv=MAKE_VENV, pip=":"):
        """Writes a fake Python to `path`, relative to the folder on PATH."""
        path = self.bin / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        wrong = int(version != (3, 11))
        path.write_text(FAKE.format(calls=self.calls_file, wrong_version=wrong, venv=venv, pip=pip))
        path.chmod(0o755)
        return path

    def run(self, *command, **environment):
        """Runs a command; returns its result and Python's calls but for the checks of versions."""
        self.calls_file.write_text("")
        env = {"PATH": str(self.bin), "HOME": os.environ.get("HOME", "/"), **environment}
        done = subprocess.run(
            command, cwd=self.root, env=env, capture_output=True, text=True, timeout=60
        )
        calls = self.calls_file.read_text().splitlines()
        return done, [line for line in calls if not line.startswith("-c ")]

    def setup(self, **environment):
        return self.run(str(self.root / "scripts/setup.sh"), **environment)


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def test_a_second_call_does_nothing(checkout):
    checkout.fake("python3.11")
    done, calls = checkout.setup()
    assert done.returncode == 0, done.stderr
    assert calls[0] == "-m venv .venv"
    assert "-m pip install --no-compile --no-build-isolation -r requirements.lock" in calls
    assert calls[-1] == INSTALL_LABKIT
    done, _ = checkout.setup()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert checkout.calls_file.read_text() == ""


@pytest.mark.parametrize("fakes", [{}, {"version": (3, 12)}, {"venv": DEBIAN}])
def test_without_a_usable_python_there_is_a_list_of_ways_out(checkout, fakes):
    if fakes:
        checkout.fake("python3.11", **fakes)
    done, _ = checkout.setup()
    assert done.returncode == 1
    for way in ("python3-venv", "conda env create", "uv venv --python 3.11", "PYTHON=/path"):
        assert way in done.stderr
    assert not checkout.venv.exists(), "or `uv venv` would fail"


def test_a_changed_lock_replaces_the_environment_and_a_changed_pyproject_only_labkit(checkout):
    checkout.fake("python3.11")
    checkout.setup()
    (checkout.root / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert checkout.setup()[1] == [INSTALL_LABKIT]
    (checkout.venv / "left over").touch()
    (checkout.root / "requirements.lock").write_text("tqdm==5.0\nsetuptools==80.0\n")
    assert checkout.setup()[1][0] == "-m venv .venv"
    assert not (checkout.venv / "left over").exists()


@pytest.mark.parametrize("failure", ["{ seq 99; exit 1; }", "kill -9 $PPID"])
def test_after_a_failure_or_a_kill_it_starts_again(checkout, failure):
    checkout.fake("python3.11", pip=f'[ "$3" != install ] || {failure}')
    done, _ = checkout.setup()
    assert done.returncode != 0
    assert ".venv/setup.log has the complete output" in done.stderr or "kill" in failure
    (checkout.venv / "half a package").touch()
    checkout.fake("python3.11")
    assert checkout.setup()[0].returncode == 0
    assert not (checkout.venv / "half a package").exists()


def test_an_environment_of_another_python_is_kept(checkout):
    checkout.fake("python3.11")
    checkout.fake(checkout.venv / "bin/python", version=(3, 12))
    done, _ = checkout.setup()
    assert ".venv exists and is no Python 3.11 environment" in done.stderr
    assert (checkout.venv / "bin/python").exists()


def test_make_run_passes_arguments_on_and_fails_with_the_launcher(checkout):
    named = checkout.fake("elsewhere/python")
    done, calls = checkout.run("make", "run", f"PYTHON={named}", "ARGS=-p seed 3 -p x '(2, 3)'")
    notebook = "notebooks/03_sac_minitaur.ipynb"
    assert calls[-1] == f"-m labkit.cli.main run {notebook} -p seed 3 -p x (2, 3)"
    assert done.returncode != 0
