"""The command `labkit`: help that loads nothing heavy, exit statuses, and `labkit doctor`."""

import subprocess
import sys

import pytest
from small_notebook import labkit

from labkit.cli import main as command

HEAVY = {"tensorflow", "tf_agents", "reverb", "papermill", "gym", "pandas", "matplotlib"}


def test_help_lists_the_commands_and_imports_no_heavy_package():
    command = [sys.executable, "-X", "importtime", "-m", "labkit.cli.main", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("Usage: labkit ")
    listed = done.stdout.split("Commands:\n")[1].splitlines()
    assert [line.split()[0] for line in listed] == ["doctor", "export", "run", "sweep", "watch"]
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert "labkit.errors" in imported, "the list of imports is complete"
    assert not imported & HEAVY


def test_a_named_error_is_one_line_in_a_terminal(tmp_path):
    command = [sys.executable, "-m", "labkit.cli.main", "watch", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("ParameterError: ")
    assert done.stderr.count("\n") == 1


# --- labkit doctor


@pytest.mark.thorough
def test_every_check_passes_on_this_machine():
    done = labkit("doctor")
    lines = done.stdout.splitlines()
    assert done.exit_code == 0, done.stdout
    assert [line.split()[:2] for line in lines[1:-1]] == [
        ["ok", c.__name__] for c in command.CHECKS
    ]
    assert lines[-1] == "everything works here"


def test_what_fails_is_named(monkeypatch):
    def disk():
        raise OSError("no space left\non device")

    monkeypatch.setattr(command, "installed_version", lambda _: None)
    monkeypatch.setattr(command, "CHECKS", (command.reverb, command.ray, disk))
    done = labkit("doctor")
    _, reverb, ray, failed, summary = done.stdout.splitlines()
    assert done.exit_code == 1
    assert "ok     reverb     not installed (it has builds for Linux x86-64): use replay" in reverb
    assert "ok     ray        not installed" in ray
    assert failed == "  fails  disk       OSError: no space left"
    assert summary == "1 of 3 checks fail"
