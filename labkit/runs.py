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
import shutil
from pathlib import Path
from typing import Any

import attrs
import pandas as pd

from labkit.config import ParameterError, SACConfig
from labkit.errors import storage
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
        run.write_config()
        return run

    def write_config(self) -> None:
        """Writes `config.json`; a half-written one is never seen."""
        content = {
            "format": FORMAT,
            "config": attrs.asdict(self.config),
            "versions": {name: _version(name) for name in PACKAGES},
        }
        partial = self.path / "config.json.partial"
        partial.write_text(json.dumps(content, indent=2) + "\n")
        partial.replace(self.path / "config.json")

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
        file = self.path / "metrics.csv"
        with storage(file), file.open("a", newline="") as stream:
            csv.writer(stream).writerow([values.get(name, "") for name in COLUMNS])

    def metrics_bytes(self) -> int:
        """How long `metrics.csv` is now; a checkpoint remembers it."""
        return (self.path / "metrics.csv").stat().st_size

    def forget_metrics_after(self, length: int | None) -> None:
        """Cuts `metrics.csv` to `length` bytes, None to its header: what came later is redone."""
        with (self.path / "metrics.csv").open("r+b") as file:
            file.truncate(len(file.readline()) if length is None else length)

    def metrics(self) -> pd.DataFrame:
        """All rows so far; see `read_metrics`."""
        return read_metrics(self.path)


def copy_records(source: Path, target: Path) -> None:
    """Copies what is small and worth keeping of a run: configuration, metrics, Ray's summary."""
    target.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "metrics.csv", "ray.json"):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)


def read_metrics(path: str | os.PathLike) -> pd.DataFrame:
    """`metrics.csv` of a run directory; `eval_returns` and its like as tuples of floats.

    Raises:
        ParameterError: the file is missing or damaged, or lacks a column.
    """
    file = Path(path) / "metrics.csv"
    try:
        table = pd.read_csv(file, dtype=dict.fromkeys(PER_EPISODE, str), na_values=[""])
    except (OSError, ValueError) as error:
        raise ParameterError(f"{file} cannot be read: {error}") from None
    missing = [name for name in COLUMNS if name not in table]
    if missing:
        raise ParameterError(f"{file} is damaged: it lacks the column {missing[0]}")
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


def read_config(path: Path) -> SACConfig:
    """The configuration of a run directory.

    Raises:
        ParameterError: `config.json` is missing, damaged, or of another format.
    """
    file = path / "config.json"
    try:
        content = json.loads(file.read_text())
        version, fields = content["format"], content["config"]
    except OSError as error:
        raise ParameterError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ParameterError(f"{file} is damaged: it is not the JSON that labkit writes") from None
    if version != FORMAT:
        raise ParameterError(f"{file} has format {version!r}; this labkit reads format {FORMAT}")
    try:
        return SACConfig.parse(fields)
    except (ParameterError, TypeError, AttributeError) as error:
        raise ParameterError(f"{file} is damaged: {error}") from None
