"""What a run directory records: `config.json`, and `metrics.csv`.

`config.json` has every hyperparameter, the environment, the versions of packages and the commit.
`metrics.csv` has one row for each log or evaluation; a new name in a row becomes a column. A power
failure can leave a file whose end is missing or full of NULs, and a spreadsheet saves it with other
separators: every row that is whole is read.

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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import pandas as pd

from labkit.config import SACConfig
from labkit.environments.make import environment_name
from labkit.errors import ParameterError, storage
from labkit.runtime import installed_version
from labkit.training.checkpoint import named, steps, write_atomically

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

CONFIG, METRICS = "config.json", "metrics.csv"
FORMAT = 1
PACKAGES = ("tensorflow", "tf-agents", "dm-reverb", "pybullet", "gym", "gymnasium", "mujoco")
STEPS = ["env_step", "gradient_step"]  # whole numbers
PER_EPISODE = ["eval_returns", "eval_lengths", "eval_distances"]  # one number for each episode
FIRST, LAST = [*STEPS, "wall_seconds"], ["eval_return", *PER_EPISODE]  # losses: in between


# --- config.json


def commit() -> str | None:
    """The git commit of labkit's checkout, with `-dirty` behind it if a tracked file has changes.

    None for an installed package, or if git does not answer.
    """
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():  # else git would search the folders above
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, cwd=checkout, timeout=5, check=True, capture_output=True)
        return done.stdout.decode().strip()
    return None


def read_content(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the `config.json` of a run directory holds.

    Raises:
        ParameterError: it is missing, damaged, or of another format.
    """
    file = Path(path) / CONFIG
    with named(file):
        content = json.loads(file.read_text())
        version, _ = content["format"], dict(content["config"])
        if version != FORMAT:
            what = f"{file} has format {version!r}; this labkit reads format {FORMAT}"
            raise ParameterError(what)
    return content


def read_config(path: str | os.PathLike[str]) -> SACConfig:
    """The configuration of a run directory.

    Raises:
        ParameterError: `config.json` is missing, damaged, or of another format.
    """
    fields = read_content(path)["config"]
    try:
        return SACConfig.parse(fields)
    except ParameterError as error:
        raise ParameterError(f"{Path(path) / CONFIG} is damaged: {error}") from None


def describe(env: "PyEnvironment") -> dict[str, Any]:
    """Name, spaces and time limit of an environment, for JSON.

    The name is the registered id, or the class of an environment that is not registered.
    """
    checked = env.gym
    action = checked.action_space
    return {
        "name": environment_name(env),
        "observation shape": list(checked.observation_space.shape),
        "action shape": list(action.shape),
        "action bounds": [action.low.ravel().tolist(), action.high.ravel().tolist()],
        "max_episode_steps": checked.max_episode_steps,
    }


def differences(path: Path, found: Mapping[str, Any]) -> str:
    """How an environment, as `describe` returns it, differs from that of a run; empty if nowhere.

    Raises:
        ParameterError: see `read_content`.
    """
    theirs = read_content(path).get("environment") or found
    return "; ".join(
        f"{name}: {theirs.get(name)} there and {value} here"
        for name, value in found.items()
        if theirs.get(name) != value
    )


def write_config(path: Path, config: SACConfig, environment: Mapping[str, Any] | None) -> None:
    """Writes `config.json`, with the environment that `describe` returned."""
    content = {
        "format": FORMAT,
        "config": attrs.asdict(config),
        "environment": environment,
        "versions": {name: installed_version(name) for name in PACKAGES},
        "commit": commit(),
    }
    write_atomically(path / CONFIG, json.dumps(content, indent=2) + "\n")


# --- metrics.csv


def _read(file: Path) -> tuple[list[str], list[list[str]], int]:
    """The names of the columns, the cells of each whole row, and how many rows are damaged.

    A row is whole if it has a number, or nothing, for each column. Rejects a file that is missing,
    has no header, or of which no row can be read.
    """
    with named(file):
        data = file.read_bytes()
    text = data[: data.rfind(b"\n") + 1].decode("utf-8-sig", errors="replace")
    header, *lines = text.splitlines() or [""]
    separator = max(",;\t", key=header.count)  # a spreadsheet may use another one,
    decimal = "," if separator != "," else "."  # and with it a decimal comma
    names = [name.strip('" ') for name in header.split(separator)]
    if missing := [name for name in FIRST if name not in names]:
        raise ParameterError(f"{file} is damaged: it lacks the column {missing[0]}")
    rows = []
    for line in lines:
        row = [cell.strip('" ').replace(decimal, ".") for cell in line.split(separator)]
        with contextlib.suppress(ValueError, OverflowError):
            _ = [float(word) for cell in row for word in cell.split()]
            for place in map(names.index, STEPS):
                row[place] = f"{float(row[place]):.0f}"
            if len(row) == len(names):
                rows.append(row)
    if len(lines) > 1 and not rows:
        what = f"none of its rows is one of numbers, such as {lines[0][:60]!r}"
        raise ParameterError(f"{file} is damaged: {what} (was it saved by a spreadsheet?)")
    return names, rows, len(lines) - len(rows)


def read_metrics(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The whole rows of a run's `metrics.csv`; damaged ones are left out.

    Returns:
        A table of numbers, NaN where a row has none. The columns `PER_EPISODE` hold tuples of
        floats, one number for each episode.

    Raises:
        ParameterError: the file is missing, its header is damaged, or none of its rows is whole.
    """
    names, rows, _ = _read(Path(path) / METRICS)
    columns: dict[str, Any] = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    for name, cells in columns.items():
        if name in PER_EPISODE:
            columns[name] = pd.Series([tuple(map(float, c.split())) for c in cells], dtype=object)
        else:
            columns[name] = np.array([float(cell or "nan") for cell in cells])
    return pd.DataFrame(columns).astype(dict.fromkeys(STEPS, int))


def _write(file: Path, names: list[str], rows: Iterable[list[str]]) -> None:
    stream = io.StringIO()
    csv.writer(stream).writerows([names, *rows])
    if not file.exists() or file.read_bytes() != stream.getvalue().encode():
        write_atomically(file, stream.getvalue())


def create(path: Path) -> None:
    """Writes a `metrics.csv` without rows. Raises OSError: the disk is full or gone."""
    _write(path / METRICS, [*FIRST, *LAST], [])


def is_empty(path: Path) -> bool:
    """Whether a directory has no row of metrics. Raises ParameterError: see `read_metrics`."""
    file = path / METRICS
    return not file.exists() or not file.read_bytes().strip(b"\0 \r\n") or not _read(file)[1]


def append(path: Path, values: Mapping[str, Any]) -> None:
    """Appends one row; a name that the file does not have becomes a column.

    Raises:
        StorageError: the disk is full or gone.
    """
    file = path / METRICS
    with storage(file):
        with contextlib.suppress(FileNotFoundError), file.open(newline="") as stream:
            names = stream.readline().strip().split(",")
            if set(values) <= set(names):
                return _append(file, names, values)
        old, rows, _ = _read(file) if file.exists() else ([], [], 0)
        between = [n for n in dict.fromkeys([*old, *values]) if n not in (*FIRST, *LAST)]
        names = [*FIRST, *between, *LAST]
        cells = [dict(zip(old, row, strict=True)) for row in rows]
        _write(file, names, [[row.get(name, "") for name in names] for row in cells])
        _append(file, names, values)
    return None


def _append(file: Path, names: list[str], values: Mapping[str, Any]) -> None:
    cells = dict(values)
    for name in set(PER_EPISODE) & set(cells):
        cells[name] = " ".join(f"{number:.6g}" for number in cells[name])
    with file.open("a", newline="") as stream:
        csv.writer(stream).writerow([cells.get(name, "") for name in names])


def cut(path: Path, step: int) -> list[str]:
    """Keeps the whole rows up to gradient step `step`.

    With -1, none is kept: the former file becomes `metrics-1.csv`, or the next number.

    Returns:
        What was lost or set aside, one line each.
    """
    file, told = path / METRICS, []
    with storage(file):
        if step < 0 and not is_empty(path):
            names = (path / f"metrics-{number}.csv" for number in itertools.count(1))
            aside = file.rename(next(name for name in names if not name.exists()))
            told.append(f"{path} has no checkpoint: it begins anew; its former rows are in {aside}")
        if not file.exists() or not file.read_bytes().strip(b"\0 \r\n"):
            told += [f"{file} was removed or emptied: it begins again here"] if step > 0 else []
            create(path)
        columns, rows, damaged = _read(file)
        if damaged:
            told.append(f"{file} has {damaged} damaged rows, which are left out")
        place = columns.index("gradient_step")
        _write(file, columns, [row for row in rows if int(row[place]) <= step])
    return told


def has_begun(path: Path) -> bool:
    """Whether a run directory has a checkpoint or a row of metrics."""
    return bool(steps(path / "checkpoints")) or not is_empty(path)


def is_finished(path: Path, config: SACConfig) -> bool:
    """Whether the run in `path` has the final evaluation after `config.num_iterations`.

    Raises:
        ParameterError: see `read_metrics`.
    """
    if is_empty(path):
        return False
    table = read_metrics(path)
    last = table[table.gradient_step == config.num_iterations]
    return bool((last.eval_returns.map(len) >= config.num_eval_episodes).any())
