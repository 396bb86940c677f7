"""The run directory: the configuration and the results of a run in plain files.

    config.json    every hyperparameter; the format's version; the versions of the packages; the
                   git commit and the CPU model of this start, and of earlier ones if they differ
    environment.json    see `environment_record`
    metrics.csv    one row for each log or evaluation
    events/        the same for TensorBoard
    policy/        the deterministic policy as a SavedModel
    checkpoints/   see `checkpoint`
    ray.json, parameters.npz, failures.log    only on Ray: see `ray_summary`; the newest weights of
                   the actor; see `failure_log`
    videos/        MP4
    lock, launcher.lock    which processes write: the one that trains, and `labkit run`

A run uses a new or empty directory, or resumes the run of the same configuration in it. Nothing is
written to a directory with other files and no config.json, or through a symbolic link.
"""

import contextlib
import csv
import importlib.util
import itertools
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pandas as pd

from labkit.config import SACConfig, check_config
from labkit.environments.make import check_name
from labkit.errors import ParameterError, StorageError, storage
from labkit.parameters import check_no_wildcards, invalid
from labkit.runtime import installed_version
from labkit.sac.rollout import Evaluation
from labkit.training import checkpoint, metrics, provenance, resuming, run_lock
from labkit.training import directory_contents as contents
from labkit.training.config_file import FORMAT
from labkit.training.config_file import read_config as read_config  # many modules read runs here
from labkit.training.files import flush_to_disk, write_atomically
from labkit.training.metrics import COLUMNS, PER_EPISODE
from labkit.training.metrics import read as read_metrics

RAY_SUMMARY = "ray.json"  # of a run that `labkit.train_on_ray` made
# In a checkout: the run whose policy the notebooks and `labkit watch` show. It is the best of
# three runs with 300 000 env steps, a target entropy of -8 and otherwise labkit's defaults.
TRACKED_POLICY = Path("results/minitaur/best-300000")
PACKAGES = (
    "tensorflow",
    "tf-agents",
    "dm-reverb",
    "pybullet",
    "gym",
    "gymnasium",
    "mujoco",
    "numpy",
)


@attrs.define
class Run:
    """A run directory that is being written.

    It remembers its lock file: if the file is replaced or removed, nothing more is written. What
    was lost or begins again is told to `notify`, one line each.
    """

    _path: Path = attrs.field(converter=Path)  # as it was given
    config: SACConfig
    notify: Callable[[str], None] = attrs.field(default=print, repr=False, eq=False)
    _absolute: Path = attrs.field(init=False, repr=False, eq=False)
    _lock: run_lock.Identity | None = attrs.field(init=False, repr=False, eq=False)

    @_absolute.default
    def _absolute_now(self) -> Path:
        return self._path.absolute()

    @property
    def path(self) -> Path:
        """The directory as it was given; absolute once the working directory has changed."""
        return self._path if self._absolute_now() == self._absolute else self._absolute

    @_lock.default
    def _lock_now(self) -> run_lock.Identity | None:
        return run_lock.identity(self.path, run_lock.TRAINING)

    def check_lock(self) -> None:
        """Checks that the directory is still the one that was opened.

        Raises:
            StorageError: it was removed, or another process has made it anew.
        """
        if self._lock_now() != self._lock:
            what = "it, or the lock file in it, was removed or replaced since this run was opened"
            raise StorageError(f"{self.path} cannot be written ({what})")

    @classmethod
    def create(cls, path: Path, config: SACConfig) -> "Run":
        """Writes the header of `metrics.csv`, then `config.json`, into a locked directory."""
        run = cls(Path(path), config)
        metrics.create(run.path)
        run.write_config()
        return run

    def write_config(self) -> None:
        """Writes `config.json`; keeps the commits and CPUs of earlier starts of the run.

        A run that resumes does this once all arguments are checked. A finished run, of which
        nothing is left to train, keeps what it was made with.
        """
        file = self.path / "config.json"
        before = json.loads(file.read_text()) if file.exists() else None
        made_with = {
            "versions": {name: installed_version(name) for name in PACKAGES},
            **provenance.with_earlier(provenance.describe(), before),
        }
        taken = max(checkpoint.steps(self.path / "checkpoints"), default=0)
        finished = resuming.is_finished(self.path, self.config)
        finished = finished and taken >= self.config.num_iterations
        if before is not None and finished:
            made_with = {name: before[name] for name in made_with if name in before}
        content = {"format": FORMAT, "config": attrs.asdict(self.config), **made_with}
        text = json.dumps(content, indent=2) + "\n"
        write_atomically(file, text, durable=True)

    def _keep_header(self) -> None:
        """Begins `metrics.csv` again if somebody has removed or emptied it; says what is lost."""
        self.check_lock()
        file = self.path / metrics.FILE
        with storage(file):
            if metrics.is_lost(self.path):
                metrics.create(self.path)
                what = f"{file} was removed or emptied: its rows are lost, and it begins again here"
                self.notify(what)

    def log(self, **values: float | str) -> None:
        """Appends one row to `metrics.csv`; columns that are not given stay empty.

        Raises:
            StorageError: the disk is full or gone; see also `check_lock`.
        """
        unknown = set(values) - set(COLUMNS)
        if unknown:
            raise ValueError(f"metrics.csv has no column {sorted(unknown)}")
        self._keep_header()
        file = self.path / metrics.FILE
        with storage(file), file.open("a", newline="") as stream:
            csv.writer(stream).writerow([values.get(name, "") for name in COLUMNS])

    def log_evaluation(
        self, evaluation: Evaluation, *, env_step: int, gradient_step: int, wall_seconds: float
    ) -> None:
        """Appends an evaluation: its mean return and every episode's numbers.

        Raises:
            StorageError: see `log`.
        """
        per_episode = (evaluation.returns, evaluation.lengths, evaluation.distances)
        texts = [" ".join(f"{x:.6g}" for x in numbers) for numbers in per_episode]
        self.log(
            env_step=env_step,
            gradient_step=gradient_step,
            wall_seconds=round(wall_seconds, 3),
            eval_return=evaluation.mean_return,
            **dict(zip(PER_EPISODE, texts, strict=True)),
        )

    def metrics_bytes(self) -> int:
        """Size of `metrics.csv` now."""
        return (self.path / metrics.FILE).stat().st_size

    def sync_metrics(self) -> int:
        """Waits until `metrics.csv` is on the disk; its size, which a checkpoint stores.

        Raises:
            StorageError: the disk is full or gone; see also `check_lock`.
        """
        self._keep_header()
        file = self.path / metrics.FILE
        with storage(file):
            flush_to_disk(file)
            return self.metrics_bytes()

    def cut_metrics(self, length: int | None, step: float = math.inf) -> str:
        """Removes the rows that will be repeated; see `metrics.cut` and `check_lock`."""
        self.check_lock()
        return metrics.cut(self.path, length, step)

    def set_metrics_aside(self) -> Path:
        """Begins with no rows and keeps the present ones; see `metrics.set_aside`, `check_lock`."""
        self.check_lock()
        return metrics.set_aside(self.path)

    def set_policy_aside(self) -> None:
        """Renames `policy/` to `policy-1/`, or the next number; `notify` gets the new path.

        Raises:
            StorageError: see `check_lock`; or it cannot be renamed.
        """
        self.check_lock()
        policy = self.path / "policy"
        names = (self.path / f"policy-{number}" for number in itertools.count(1))
        aside = next(name for name in names if not name.exists())
        if policy.exists():
            with storage(policy):
                policy.rename(aside)
            self.notify(f"its policy is in {aside}")

    def metrics(self) -> pd.DataFrame:
        """All rows so far; see `read_metrics`."""
        return read_metrics(self.path)


def check_replay(config: SACConfig) -> None:
    """Rejects a replay table that this machine cannot have.

    Raises:
        ParameterError: Reverb is needed and not installed.
    """
    if config.replay == "reverb" and importlib.util.find_spec("reverb") is None:
        raise invalid("replay", config.replay, "'tf_uniform' here, where Reverb is not installed")


def choose_directory(
    run_dir: str | os.PathLike[str], config: SACConfig, resume: str = "auto"
) -> Path:
    """The directory that a run will use; an existing run in it is not changed.

    Args:
        run_dir: relative to the working directory, or absolute; empty means a new numbered
            directory under `runs/`.
        config: what is to be run.
        resume: 'auto' resumes a run of the same configuration; in a finished one nothing is left
            to train, unless there are more iterations. 'never' appends a number to `run_dir` if
            that holds anything.

    Raises:
        ParameterError: the directory cannot be written, is damaged, or holds a run of another
            configuration or files that are no run.
    """
    if not issubclass(type(run_dir), str | os.PathLike):  # a notebook gives any type
        allowed = "a path, as text (papermill takes 0001 for a number: write runs/0001)"
        raise invalid("run_dir", run_dir, allowed)
    if resume not in ("auto", "never"):
        raise invalid("resume", resume, "'auto' or 'never'")
    try:
        path = Path(run_dir).expanduser() if str(run_dir) else _next_number(Path("runs"))
        check_no_wildcards("run_dir", path)
        if resume == "never":
            numbered = (path.with_name(f"{path.name}-{i}") for i in itertools.count(2))
            path = next(p for p in itertools.chain([path], numbered) if not _is_taken(p))
        check_usable(path, config)
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as probe:
            probe.write(b"written to disk")
    except (OSError, ValueError, TypeError, RuntimeError) as error:  # the last for ~nobody
        if isinstance(error, ParameterError):
            raise
        reason = getattr(error, "strerror", None) or error
        allowed = f"a directory that this process can create and write ({reason})"
        raise invalid("run_dir", str(run_dir), allowed) from None
    return path


def check_usable(path: Path, config: SACConfig) -> None:
    """Rejects what is neither a new or empty directory nor a run that can be resumed.

    Raises:
        ParameterError: see `resuming.check_resumable`, and the checks of `directory_contents`.
    """
    if (path / "config.json").exists():
        resuming.check_resumable(path, config)
    else:
        contents.check_empty(path)
    contents.check_links(path)
    contents.check_kinds(path)


def _is_taken(path: Path) -> bool:
    return (path / "config.json").exists() or bool(contents.foreign_files(path))


def _next_number(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    taken = [int(p.name) for p in root.iterdir() if re.fullmatch(r"\d{4,}", p.name)]
    for number in itertools.count(max(taken, default=0) + 1):
        # Another run may take the same number at the same moment.
        with contextlib.suppress(FileExistsError):
            (root / f"{number:04d}").mkdir()
            break
    return root / f"{number:04d}"


def start_run(namespace: Mapping[str, Any], others: tuple[str, ...] = ()) -> Run:
    """Checks a notebook's parameters, then opens its run directory: `start_run(globals())`.

    The fields of `SACConfig`, `run_dir` and `resume` are used; `others` are the names of further
    parameters that the notebook reads itself.

    Raises:
        ParameterError: a wrong value or a mistyped name, in one line, before TensorFlow loads.
    """
    if not isinstance(namespace, Mapping):
        raise invalid("namespace", namespace, "the notebook's variables: start_run(globals())")
    config = SACConfig.from_notebook(namespace, ("run_dir", "resume", *others))
    check_name(config.env_name)
    return open_run(namespace.get("run_dir", ""), config, namespace.get("resume", "auto"))


def open_run(run_dir: str | os.PathLike[str], config: SACConfig, resume: str = "auto") -> Run:
    """Opens a new run, or an existing one of the same configuration; see `choose_directory`.

    Raises:
        ParameterError: see `choose_directory`; also if another process is writing to the run, or
            its checkpoints are damaged and none is whole.
        StorageError: the disk is full.
    """
    check_config(config)
    check_replay(config)
    path = choose_directory(run_dir, config, resume)
    with storage(path):
        run_lock.hold(path, run_lock.TRAINING)
        check_usable(path, config)  # again: another process may have used it in between
        contents.remove_leftovers(path)
        checkpoint.recover(path / "checkpoints")
        if not (path / "config.json").exists() or not resuming.has_begun(path):
            return Run.create(path, config)
        checkpoint.set_aside_damaged(path / "checkpoints")
    return Run(path, config)


@contextlib.contextmanager
def removed_if_rejected(run: Run) -> Iterator[None]:
    """Removes a run directory without rows and checkpoints if an argument is rejected."""
    try:
        yield
    except ParameterError:
        if run.metrics().empty and not checkpoint.steps(run.path / "checkpoints"):
            shutil.rmtree(run.path, ignore_errors=True)
        raise
