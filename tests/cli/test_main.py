"""The command `labkit`: help that loads nothing heavy, exit statuses, and `labkit doctor`."""

import subprocess
import sys

import pytest
from small_notebook import labkit

from labkit.cli import doctor
from labkit.errors import DivergedError, ParameterError

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


@pytest.mark.parametrize(
    ("error", "status"), [(ParameterError("`seed` is wrong"), 2), (DivergedError("a NaN"), 1)]
)
def test_a_named_error_is_one_line_and_an_exit_status(monkeypatch, error, status):
    def fail():
        raise error

    monkeypatch.setattr(doctor, "run_checks", fail)
    done = labkit("doctor")
    assert (done.exit_code, done.stdout) == (status, "")
    assert done.stderr == f"{type(error).__name__}: {error}\n"


# --- labkit doctor


def test_every_check_passes_on_this_machine():
    done = labkit("doctor")
    lines = done.stdout.splitlines()
    assert done.exit_code == 0, done.stdout
    assert [line.split()[1] for line in lines[1:-1]] == [c.__name__ for c in doctor.CHECKS]
    assert lines[-1] == "everything works here"


def test_what_fails_is_named(monkeypatch, tmp_path):
    def disk():
        raise OSError("no space left\non device")

    (tmp_path / "requirements.lock").write_text(
        "# a comment with ==\nattrs==1.0\nnot-there==2.0; sys_platform == 'linux'\n"
    )
    monkeypatch.setattr(doctor, "LOCK", tmp_path / "requirements.lock")
    monkeypatch.setattr(doctor, "RAY_TASK", "import time; time.sleep(60)")
    monkeypatch.setattr(doctor, "RAY_SECONDS", 0.5)
    found = {"attrs": "26.1.0", "ray": "2"}
    monkeypatch.setattr(doctor, "installed_version", found.get)
    checks = (doctor.versions, doctor.reverb, doctor.ray, disk)
    monkeypatch.setattr(doctor, "CHECKS", checks)
    done = labkit("doctor")
    _, versions, reverb, ray, failed, summary = done.stdout.splitlines()
    assert done.exit_code == 1
    assert "not 1.0; not-there is missing, not 2.0" in versions
    assert "note   reverb     not installed (it has builds for Linux x86-64): use replay" in reverb
    assert ray.strip().startswith("note   ray ")
    assert failed == "  fails  disk       OSError: no space left"
    assert summary == "2 of 4 checks fail"
