"""The run directory: the configuration and the results of a run in plain files.

    config.json    every hyperparameter; the environment, the versions of the packages, the commit
    metrics.csv    one row for each log or evaluation
    events/        the same for TensorBoard
    policy/        the deterministic policy as a SavedModel
    checkpoints/   see `checkpoint`
    lock           held by the process that writes; its number

A run uses a new or empty directory, or resumes the run of the same configuration in it.
"""

import contextlib
import importlib.util
import itertools
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import filelock
import pandas as pd

from labkit.config import FREE_TO_CHANGE, SACConfig, check_config
from labkit.environments.make import check_name
from labkit.errors import ParameterError, storage
from labkit.parameters import check_no_wildcards, from_notebook, invalid
from labkit.training import checkpoint, records
from labkit.training.records import CONFIG, AnyPath, differences, has_begun

if TYPE_CHECKING:
    from labkit.sac.rollout import Evaluation

# In a checkout: the run whose policy the notebooks and `labkit watch` show. It is the best of
# three runs with 300 000 env steps, a target entropy of -8 and otherwise labkit's defaults.
TRACKED_POLICY = Path("results/minitaur/best-300000")
LOCK, LOCAL = "lock", {"executor": "local"}
_HELD: dict[Path, filelock.BaseFileLock] = {}  # until this process ends


@attrs.define
class Run:
    """A run directory that is being written.

    `on_metrics` gets each row of metrics as a dictionary, once it is written.
    """

    path: Path = attrs.field(converter=Path)
    config: SACConfig
    on_metrics: Callable[[dict[str, Any]], Any] | None = attrs.field(default=None, repr=False)

    def write_config(self, environment: Mapping[str, Any] | None = None) -> None:
        """Writes `config.json`; see `records.write_config`."""
        records.write_config(self.path, self.config, environment)

    def check_environment(self, found: Mapping[str, Any]) -> None:
        """Records the environment of a run without a checkpoint; rejects another one later.

        `found` is what `describe` returned, and the executor: "local" or "ray".
        """
        if checkpoint.latest(self.path / "checkpoints") is None:
            self.write_config(found)
        elif differing := differences(self.path, found):
            raise invalid("run_dir", str(self.path), f"a run of the same environment ({differing})")

    def log(self, **values: Any) -> None:
        """Appends a row to `metrics.csv`: a number for each name, or several for `PER_EPISODE`.

        Raises StorageError if the disk is full or gone.
        """
        records.append(self.path, values)
        if self.on_metrics is not None:
            self.on_metrics(values)

    def log_evaluation(
        self, evaluation: "Evaluation", *, env_step: int, gradient_step: int, wall_seconds: float
    ) -> None:
        """Appends an evaluation, as `log` does: its mean return and every episode's numbers."""
        self.log(
            env_step=env_step,
            gradient_step=gradient_step,
            wall_seconds=round(wall_seconds, 3),
            eval_return=evaluation.mean_return,
            eval_returns=evaluation.returns,
            eval_lengths=evaluation.lengths,
            eval_distances=evaluation.distances,
        )

    def metrics(self) -> pd.DataFrame:
        """All rows so far; see `read_metrics`."""
        return records.read_metrics(self.path)


def check_free(path: Path) -> None:
    """Rejects a directory to which another process writes."""
    if (path / LOCK).exists():
        _acquire(path).release()


def _acquire(path: Path) -> filelock.BaseFileLock:
    """Takes the lock of a directory; once more, if this process holds it already."""
    lock = _HELD.get(path.resolve())
    if lock is None or not (path / LOCK).exists():  # it was removed
        lock = filelock.FileLock(path.resolve() / LOCK, blocking=False, thread_local=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        holder = (path / LOCK).read_text(errors="replace").strip()
        allowed = f"a run that no other process is writing to (process {holder} is)"
        raise invalid("run_dir", str(path), allowed) from None
    return lock


def check_same(path: Path, theirs: SACConfig, ours: SACConfig, but: tuple[str, ...] = ()) -> None:
    """Rejects a run of another configuration; `FREE_TO_CHANGE` and `but` may differ."""
    there, here = attrs.asdict(theirs, recurse=False), attrs.asdict(ours, recurse=False)
    names = [n for n in here if there[n] != here[n] and n not in (*FREE_TO_CHANGE, *but)]
    if names:
        differing = "; ".join(f"{n} is {there[n]!r} there and {here[n]!r} here" for n in names)
        allowed = f"a new directory or a run of this configuration ({differing})"
        raise invalid("run_dir", str(path), allowed)


def check_links(path: Path) -> None:
    """Rejects a run directory with a symbolic link, which may lead out of it, and names it."""
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            if (link := Path(folder, name)).is_symlink():
                allowed = f"a directory without symbolic links, such as its {link.name}"
                raise invalid("run_dir", str(path), allowed)


def check_usable(path: Path, config: SACConfig) -> None:
    """Rejects what is neither a new or empty directory nor a run that `config` can resume.

    A run can be resumed with more iterations than before, or with fewer if it has not yet taken
    more than these. A finished one needs its checkpoint: without it, training would start anew.
    What a start left that ended before its first row and its first checkpoint may be used anew.
    """
    check_links(path)
    if not (path / CONFIG).exists():
        if found := _foreign_files(path):
            some = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
            allowed = f"a new or empty directory, or a run; it holds {some}, and no {CONFIG}"
            raise invalid("run_dir", str(path), allowed)
        return
    theirs = records.read_config(path)
    if not has_begun(path):
        return
    check_same(path, theirs, config, but=("num_iterations",))
    taken = max(checkpoint.steps(path / "checkpoints"), default=None)
    if taken is None and records.is_finished(path, theirs):
        allowed = "a new directory: a finished run is never overwritten, and without its "
        raise invalid("run_dir", str(path), allowed + "checkpoint this one cannot be opened")
    if taken is not None and taken > config.num_iterations:
        allowed = f"{taken} or more, the gradient steps that {path} has already taken"
        raise invalid("num_iterations", config.num_iterations, allowed)


def _foreign_files(path: Path) -> list[str]:
    """The names in a directory that are not of labkit; hidden files and notebooks do not count."""
    names = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
    return [n for n in names if not n.startswith(".") and not n.endswith(".ipynb") and n != LOCK]


def choose_directory(
    run_dir: AnyPath, config: SACConfig, resume: str = "auto", environment: dict[str, Any] = LOCAL
) -> Path:
    """The directory that a run will use; an existing run in it is not changed.

    An empty `run_dir` means the newest unfinished run under `runs/` of this configuration and of
    this `environment` (see `Run.check_environment`), else the next number there. `resume` 'auto'
    resumes a run of the same configuration; in a finished one nothing is left to train, unless
    there are more iterations. 'never' takes a new directory. Rejects one that cannot be written;
    see also `check_usable`.
    """
    if not issubclass(type(run_dir), str | os.PathLike):  # a notebook gives any type
        allowed = "a path, as text (papermill takes 0001 for a number: write runs/0001)"
        raise invalid("run_dir", run_dir, allowed)
    if resume not in ("auto", "never"):
        raise invalid("resume", resume, "'auto' or 'never'")
    path = Path(str(run_dir) or "runs")
    try:
        path = path.expanduser()
        check_no_wildcards("run_dir", path)
        if not str(run_dir):
            path = _numbered(path, config, resume, environment)
        elif resume == "never":
            numbered = (path.with_name(f"{path.name}-{i}") for i in itertools.count(2))
            every = itertools.chain([path], numbered)
            path = next(p for p in every if not (p / CONFIG).exists() and not _foreign_files(p))
        check_usable(path, config)
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError("it is not writable")
    except ParameterError:
        raise
    except (OSError, ValueError, RuntimeError) as error:  # the last for ~nobody
        reason = getattr(error, "strerror", None) or error
        allowed = f"a directory that this process can create and write ({reason})"
        raise invalid("run_dir", str(path), allowed) from None
    return path


def _numbered(root: Path, config: SACConfig, resume: str, environment: dict[str, Any]) -> Path:
    """The newest unfinished run under `root` that nobody writes to, with a message.

    Else the newest number, if its start was rejected or ended before the first row of metrics;
    else the next one.
    """
    numbers = [path for path in root.glob("*") if re.fullmatch(r"\d{4,}", path.name)]
    numbers.sort(key=lambda path: int(path.name), reverse=True)
    unfinished, unused = [], None
    for path in numbers if resume == "auto" else ():
        with contextlib.suppress(ParameterError):  # of another configuration, damaged, or in use
            check_links(path)
            check_free(path)
            if path == numbers[0] and path.resolve() not in _HELD and not has_begun(path):
                unused = path if (path / CONFIG).exists() else None
            check_same(path, records.read_config(path), config)
            check_usable(path, config)
            if not (records.is_finished(path, config) or differences(path, environment)):
                unfinished.append(path)
    # A start that ended before its first row comes after one that has something to resume.
    for path in sorted(unfinished, key=has_begun, reverse=True)[:1]:
        saved = checkpoint.latest(path / "checkpoints")
        reached = f"gradient step {int(saved.name)}" if saved else "its beginning"
        what = f"{path} is an unfinished run of this configuration: it resumes from {reached}"
        print(
            f"{what} (a new one: -p resume never, or labkit.open_run('', config, resume='never'))"
        )
        return path
    if unused:
        return unused
    number = int(numbers[0].name) if numbers else 0
    while True:  # another run may take the same number at the same moment
        path = root / f"{(number := number + 1):04d}"
        with contextlib.suppress(FileExistsError):
            path.mkdir(parents=True)
            return path


def check_replay(config: SACConfig) -> None:
    """Rejects a replay table that this machine cannot have."""
    if config.replay == "reverb" and importlib.util.find_spec("reverb") is None:
        raise invalid("replay", config.replay, "'tf_uniform' here, where Reverb is not installed")


def start_run(namespace: Mapping[str, Any], others: tuple[str, ...] = ()) -> Run:
    """Checks a notebook's parameters, then opens its run directory: `start_run(globals())`.

    The fields of `SACConfig`, `run_dir`, `resume` and `num_collectors` (more than 0 for Ray) are
    used; `others` are the names of further parameters that the notebook reads itself. Rejects a
    wrong value or a mistyped name in one line, before TensorFlow loads.
    """
    ours = ("run_dir", "resume", "num_collectors")
    config = SACConfig(**from_notebook(namespace, SACConfig.names(), (*ours, *others)))
    check_name(config.env_name)
    run_dir, resume, collectors = map(namespace.get, ours, ("", "auto", 0))
    return open_run(run_dir, config, resume, {"executor": "ray" if collectors else "local"})


def open_run(
    run_dir: AnyPath, config: SACConfig, resume: str = "auto", environment: dict[str, Any] = LOCAL
) -> Run:
    """Opens a new run, or an existing one of the same configuration; see `choose_directory`.

    Also rejects a run to which another process is writing, or of which no checkpoint is whole.
    Raises StorageError if the disk is full.
    """
    check_config(config)
    check_replay(config)
    path = choose_directory(run_dir, config, resume, environment)
    with storage(path):
        _HELD[path.resolve()] = _acquire(path)
        (path / LOCK).write_text(f"{os.getpid()}\n")
        check_usable(path, config)  # again: another process may have used it in between
        run = Run(path, config)
        if (path / CONFIG).exists() and has_begun(path):
            checkpoint.set_aside_damaged(path / "checkpoints")
        else:
            (path / CONFIG).unlink(missing_ok=True)
            run.write_config()
            records.create(path)
    return run
