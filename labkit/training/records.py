"""What a run directory records: `config.json`, and `metrics.csv`.

`config.json` has every hyperparameter, the environment, the versions of packages and the commit.
`metrics.csv` has one row for each log or evaluation; a new name in a row becomes a column. A power
failure can leave a file whose end is missing or full of NULs: every row that is whole is read.

`wall_seconds` are the seconds of training when a row was written, evaluations included. On Ray,
where training continues during an evaluation, its row has the seconds, env steps and gradient steps
of the weights that it evaluated, so that they may be lower than in the row before.
"""

import contextlib
import csv
import io
import itertools
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pandas as pd

from labkit.config import SACConfig
from labkit.environments.make import environment_name
from labkit.errors import ParameterError, storage
from labkit.runtime import installed_version
from labkit.training.checkpoint import named, read_json, steps, write_atomically

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

AnyPath = str | os.PathLike[str]
CONFIG, METRICS = "config.json", "metrics.csv"
FORMAT = 1
PACKAGES = ("tensorflow", "tf-agents", "dm-reverb", "pybullet", "gym", "gymnasium", "mujoco")
STEPS = ["env_step", "gradient_step"]  # whole numbers
PER_EPISODE = ["eval_returns", "eval_lengths", "eval_distances"]  # one number for each episode
FIRST, LAST = [*STEPS, "wall_seconds"], ["eval_return", *PER_EPISODE]  # losses: in between


def commit() -> str | None:
    """The git commit of labkit's checkout, with `-dirty` behind it if a tracked file has changes.

    None for an installed package, or if git does not answer.
    """
    root = Path(__file__).resolve().parents[2]
    command = ["git", f"--git-dir={root}/.git", f"--work-tree={root}"]  # else git looks above, too
    command += ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, timeout=5, check=True, capture_output=True, text=True)
        return done.stdout.strip()
    return None


def read_content(path: AnyPath) -> dict[str, Any]:
    """What `config.json` holds; rejects one that is missing, damaged, or of another format."""
    return read_json(Path(path) / CONFIG, FORMAT)


def read_config(path: AnyPath) -> SACConfig:
    """The configuration of a run directory; rejects a `config.json` as `read_content` does."""
    with named(Path(path) / CONFIG):
        fields = read_content(path)["config"]
    try:
        return SACConfig.parse(fields)
    except ParameterError as error:
        raise ParameterError(f"{Path(path) / CONFIG} is damaged: {error}") from None


def describe(env: "PyEnvironment") -> dict[str, Any]:
    """Name, spaces and time limit of an environment, for JSON.

    The name is the registered id, or the class of an environment that is not registered.
    """
    action = env.gym.action_space
    return {
        "name": environment_name(env),
        "observation shape": list(env.gym.observation_space.shape),
        "action shape": list(action.shape),
        "action bounds": [action.low.ravel().tolist(), action.high.ravel().tolist()],
        "max_episode_steps": env.gym.max_episode_steps,
    }


def differences(path: Path, found: Mapping[str, Any]) -> str:
    """How an environment, as `describe` returns it, differs from that of a run; else empty."""
    theirs = read_content(path).get("environment") or found
    return "; ".join(
        f"{name}: {theirs.get(name)} there and {value} here"
        for name, value in found.items()
        if theirs.get(name) != value
    )


def read_metrics(path: AnyPath) -> pd.DataFrame:
    """The whole rows of a run's `metrics.csv`; damaged ones are left out.

    Returns a table of numbers, NaN where a row has none. The columns `PER_EPISODE` hold tuples of
    floats, one number for each episode. `attrs["damaged"]` counts the rows that are left out.
    Raises ParameterError if the file is missing, or its header is damaged.
    """
    file = Path(path) / METRICS
    with named(file):
        *lines, unfinished = file.read_bytes().decode("utf-8-sig", errors="replace").split("\n")
        header = lines[0] if lines else ""
        separator = max(",;\t", key=header.count)  # a spreadsheet may have saved it
        columns = header.count(separator)
        whole = [x for x in lines if x.count(separator) == columns and "\0" not in x]
        text = "\n".join(whole).replace('"', "")
        table = pd.read_csv(
            io.StringIO(text if separator == "," else text.replace(",", ".")),
            sep=separator,
            converters=dict.fromkeys(PER_EPISODE, _numbers),
            float_precision="round_trip",
        )
        if missing := [name for name in FIRST if name not in table]:
            raise ValueError(f"it lacks the column {missing[0]}")
    for name in table.columns.difference(PER_EPISODE):
        table[name] = pd.to_numeric(table[name], errors="coerce")
    table = table.dropna(subset=STEPS, ignore_index=True)
    table.attrs["damaged"] = len(lines) - 1 - len(table)
    table.attrs["unfinished"] = bool(unfinished)
    return table.astype(dict.fromkeys(STEPS, int))


def _numbers(cell: str) -> tuple[float, ...]:
    return tuple(float(word) for word in pd.to_numeric(cell.split(), errors="coerce"))


def _cell(numbers: Any) -> str:
    return " ".join(f"{number:.6g}" for number in numbers)


def _write(path: Path, table: pd.DataFrame) -> None:
    cells = {name: table[name].map(_cell) for name in PER_EPISODE}
    write_atomically(path / METRICS, table.assign(**cells).to_csv(index=False))


def create(path: Path) -> None:
    """Writes a `metrics.csv` without rows. Raises an OSError if the disk is full or gone."""
    _write(path, pd.DataFrame(columns=[*FIRST, *LAST]))


def is_empty(path: Path) -> bool:
    """Whether a directory has no row of metrics."""
    file = path / METRICS
    return not file.exists() or not file.read_bytes().strip(b"\0\r\n") or read_metrics(path).empty


def append(path: Path, values: Mapping[str, Any]) -> None:
    """Appends one row; a name that the file does not have becomes a column."""
    file = path / METRICS
    with storage(file):
        if not file.exists():  # somebody removed it
            create(path)
        with file.open(newline="") as stream:
            names = stream.readline().strip().split(",")
        if not set(values) <= set(names):
            table = read_metrics(path)
            between = [n for n in dict.fromkeys([*table, *values]) if n not in (*FIRST, *LAST)]
            names = [*FIRST, *between, *LAST]
            _write(path, table.reindex(columns=names))
        cells = {name: _cell(v) if name in PER_EPISODE else v for name, v in values.items()}
        with file.open("a", newline="") as stream:
            csv.DictWriter(stream, names, lineterminator="\n").writerow(cells)


def cut(path: Path, step: int) -> None:
    """Keeps the whole rows up to gradient step `step`; prints what was lost or set aside.

    With -1, none is kept: the former file becomes `metrics-1.csv`, or the next number.
    """
    file = path / METRICS
    with storage(file):
        if step < 0 and not is_empty(path):
            names = (path / f"metrics-{number}.csv" for number in itertools.count(1))
            aside = file.rename(next(name for name in names if not name.exists()))
            print(f"{path} has no checkpoint: it begins anew; its former rows are in {aside}")
        if is_empty(path):
            if step > 0:
                print(f"{file} was removed or emptied: it begins again here")
            create(path)
        table = read_metrics(path)
        if damaged := table.attrs["damaged"]:
            print(f"{file} has {damaged} damaged rows, which are left out")
        kept = table[table.gradient_step <= step]
        if damaged or table.attrs["unfinished"] or len(kept) < len(table):
            _write(path, kept)


def has_begun(path: Path) -> bool:
    """Whether a run directory has a checkpoint or a row of metrics."""
    return bool(steps(path / "checkpoints")) or not is_empty(path)


def is_finished(path: Path, config: SACConfig) -> bool:
    """Whether the run in `path` has the final evaluation after `config.num_iterations`."""
    if is_empty(path):
        return False
    table = read_metrics(path)
    last = table[table.gradient_step == config.num_iterations]
    return bool((last.eval_returns.map(len) >= config.num_eval_episodes).any())


def write_config(path: Path, config: SACConfig, environment: Mapping[str, Any] | None) -> None:
    """Writes `config.json`, unless the run is finished: it keeps what it was made with.

    `environment` is as `describe` returns it; None keeps the one that is recorded.
    """
    file = path / CONFIG
    before = read_content(path) if file.exists() else {}
    if before and is_finished(path, config):
        return
    content = {
        "format": FORMAT,
        "config": attrs.asdict(config),
        "environment": environment or before.get("environment"),
        "versions": {name: installed_version(name) for name in PACKAGES},
        "commit": commit(),
    }
    with storage(file):
        write_atomically(file, json.dumps(content, indent=2) + "\n")
