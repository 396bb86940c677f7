"""The command `labkit`: help texts that load nothing heavy, and exit statuses."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

import labkit
from labkit.cli import doctor, watch
from labkit.cli.main import main
from labkit.errors import DivergedError, ParameterError

COMMANDS = ("doctor", "export", "run", "sweep", "watch")
HEAVY = ("tensorflow", "tf_agents", "reverb", "papermill", "gym", "pandas", "matplotlib")


def test_the_group_lists_its_commands():
    shown = CliRunner().invoke(main, ["--help"])
    assert shown.exit_code == 0
    listed = shown.output.split("Commands:\n")[1].splitlines()
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert not any(line.endswith("...") for line in listed), "a short help text is cut"


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command):
    shown = CliRunner().invoke(main, [command, "--help"])
    assert shown.exit_code == 0
    assert shown.output.startswith(f"Usage: main {command}")
    assert ("Examples:" in shown.output) == (command != "doctor")


def test_version():
    shown = CliRunner().invoke(main, ["--version"])
    assert (shown.exit_code, shown.output) == (0, f"labkit, version {labkit.__version__}\n")


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_imports_no_heavy_package(arguments):
    command = [sys.executable, "-X", "importtime", "-m", "labkit.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("Usage: labkit ")
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert "labkit.config" in imported, "the list of imports is complete"
    assert not imported & set(HEAVY)


@pytest.mark.parametrize(
    ("error", "status"), [(ParameterError("`seed` is wrong"), 2), (DivergedError("a NaN"), 1)]
)
def test_a_named_error_is_one_line_and_an_exit_status(monkeypatch, error, status):
    def fail():
        raise error

    monkeypatch.setattr(doctor, "run_checks", fail)
    done = CliRunner().invoke(main, ["doctor"])
    assert (done.exit_code, done.stdout) == (status, "")
    assert done.stderr == f"{type(error).__name__}: {error}\n"


def test_any_other_error_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(watch, "tracked_policy", lambda: 1 / 0)
    assert isinstance(CliRunner().invoke(main, ["watch"]).exception, ZeroDivisionError)


@pytest.mark.parametrize("arguments", [["swep"], ["run"], ["run", "x.ipynb", "-p", "seed"]])
def test_a_wrong_usage_has_status_2(arguments):
    assert CliRunner().invoke(main, arguments).exit_code == 2


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_a_parameter_that_is_given_twice_is_named(command):
    arguments = [command, "x.ipynb", "-p", "seed", "1", "-p", "seed", "2"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.stderr == "ParameterError: `seed` is given twice, as '1' and as '2'\n"


def test_a_path_may_begin_with_the_home_directory(monkeypatch):
    monkeypatch.setenv("HOME", "/nowhere")
    done = CliRunner().invoke(main, ["watch", "--replay", "--out=~/clip.txt"])
    assert "got '/nowhere/clip.txt'" in done.stderr


@pytest.mark.parametrize("path", ["a" * 300, "~nobody-here/run"])
def test_a_path_that_the_system_refuses_is_one_line(path):
    done = CliRunner().invoke(main, ["export", path])
    assert done.exit_code == 2
    assert "is no path here" in done.stderr
