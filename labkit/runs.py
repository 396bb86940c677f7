"""The run directory: what a run was asked to do and what came of it, in plain files.

config.json    every hyperparameter, the format's version, the versions of the packages
metrics.csv    one row for each log or evaluation
events/        the same for TensorBoard
policy/        the greedy policy as a SavedModel
videos/        MP4
"""

import csv
import importlib.metadata
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pandas as pd

from labkit import environments
from labkit.config import ParameterError, SACConfig
from labkit.evaluation import Evaluation

FORMAT = 1
COLUMNS = [
    "env_step",
    "gradient_step",
    "wall_seconds",
    "critic_loss",
    "actor_loss",
    "alpha_loss",
    "alpha",
    "collect_return",
    "eval_return",
    "eval_returns",
    "eval_lengths",
    "eval_distances",
]
PER_EPISODE = COLUMNS[-3:]
PACKAGES = ("tensorflow", "tf-agents", "dm-reverb", "pybullet", "gym", "numpy")


def claim(run_dir: str | os.PathLike, default_root: str = "runs") -> Path:
    """Makes the run directory, or refuses one that holds a run or cannot be written.

    Args:
        run_dir: relative to the working directory, or absolute; empty means a new numbered
            directory under `default_root`.
        default_root: where numbered directories are made.

    Raises:
        ParameterError: the directory holds a run, is no directory, or cannot be written.
    """
    try:
        path = Path(run_dir).expanduser() if str(run_dir) else _next_number(Path(default_root))
        if (path / "config.json").exists():
            raise ParameterError(
                f"run_dir = {str(run_dir)!r} is refused: it holds a run already, which is never "
                "overwritten; allowed is a new directory, or '' for the next number under runs/"
            )
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (OSError, ValueError, TypeError) as error:
        if isinstance(error, ParameterError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise ParameterError(
            f"run_dir = {str(run_dir)!r} is refused: it cannot be written ({reason}); "
            "allowed is a directory that this process may create and write"
        ) from None
    return path


def _next_number(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    taken = [int(p.name) for p in root.iterdir() if re.fullmatch(r"\d{4,}", p.name)]
    number = max(taken, default=0) + 1
    while True:  # another run may take the same number at the same moment
        try:
            (root / f"{number:04d}").mkdir()
            return root / f"{number:04d}"
        except FileExistsError:
            number += 1


def start_run(namespace: Mapping[str, Any]) -> "Run":
    """Checks a notebook's parameters, then makes its run directory: `start_run(globals())`.

    Args:
        namespace: name → value; the fields of `SACConfig` and `run_dir` are taken from it,
            everything else is left alone.

    Raises:
        ParameterError: one line, before TensorFlow or an environment does any work.
    """
    names = [field.name for field in attrs.fields(SACConfig)]
    config = SACConfig.parse({name: namespace[name] for name in names if name in namespace})
    environments.check_name(config.env_name)
    return Run.create(claim(namespace.get("run_dir", "")), config)


@attrs.define
class Run:
    """A run directory that is being written."""

    path: Path
    config: SACConfig

    @classmethod
    def create(cls, path: Path, config: SACConfig) -> "Run":
        """Writes `config.json` and the header of `metrics.csv` into a claimed directory."""
        run = cls(Path(path), config)
        with (run.path / "metrics.csv").open("w", newline="") as file:
            csv.writer(file).writerow(COLUMNS)
        content = {
            "format": FORMAT,
            "config": attrs.asdict(config),
            "versions": {name: _version(name) for name in PACKAGES},
        }
        partial = run.path / "config.json.partial"
        partial.write_text(json.dumps(content, indent=2) + "\n")
        partial.replace(run.path / "config.json")
        return run

    def log(self, **values: float) -> None:
        """Appends one row to `metrics.csv`; columns that are not given stay empty."""
        self._append(values)

    def log_evaluation(
        self, evaluation: Evaluation, *, env_step: int, gradient_step: int, wall_seconds: float
    ) -> None:
        """Appends an evaluation: its mean return and every episode's numbers."""
        episodes = {
            "eval_returns": evaluation.returns,
            "eval_lengths": evaluation.lengths,
            "eval_distances": evaluation.distances,
        }
        self._append(
            {
                "env_step": env_step,
                "gradient_step": gradient_step,
                "wall_seconds": round(wall_seconds, 3),
                "eval_return": evaluation.mean_return,
                **{name: " ".join(f"{x:.6g}" for x in xs) for name, xs in episodes.items()},
            }
        )

    def _append(self, values: dict[str, Any]) -> None:
        unknown = set(values) - set(COLUMNS)
        if unknown:
            raise ValueError(f"metrics.csv has no column {sorted(unknown)}")
        with (self.path / "metrics.csv").open("a", newline="") as file:
            csv.writer(file).writerow([values.get(name, "") for name in COLUMNS])

    def metrics(self) -> pd.DataFrame:
        """All rows so far; see `read_metrics`."""
        return read_metrics(self.path)


def read_metrics(path: str | os.PathLike) -> pd.DataFrame:
    """`metrics.csv` of a run directory; `eval_returns` and its like as tuples of floats."""
    table = pd.read_csv(
        Path(path) / "metrics.csv", dtype=dict.fromkeys(PER_EPISODE, str), na_values=[""]
    )
    for name in PER_EPISODE:
        table[name] = [
            () if pd.isna(text) else tuple(float(x) for x in text.split()) for text in table[name]
        ]
    return table


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
