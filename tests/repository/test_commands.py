"""Each command of scripts/ and benchmarks/ can be imported and describes itself."""

import importlib
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
FILES = [*(ROOT / "scripts").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
COMMANDS = sorted(file for file in FILES if "@click." in file.read_text())


def test_there_are_commands():
    assert len(COMMANDS) > 15


@pytest.mark.parametrize("file", COMMANDS, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_command_describes_itself(file):
    name = file.stem if file.parent.name == "scripts" else f"benchmarks.{file.stem}"
    main = importlib.import_module(name).main
    shown = CliRunner().invoke(main, ["--help"], catch_exceptions=False)
    assert shown.exit_code == 0
    assert len(main.help) > 20, "what it does"
    commands = [main, *getattr(main, "commands", {}).values()]
    for option in (option for command in commands for option in command.params):
        hidden = isinstance(option, click.Argument) or option.hidden
        assert hidden or option.help, option.name
        # A number of runs, steps or seconds, or a seed, has a smallest value.
        number = isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
        assert hidden or not number or hasattr(option.type, "min"), option.name
