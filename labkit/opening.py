"""Which directory a run may use: a new one, or an unfinished run of the same configuration."""

import fcntl
import importlib.util
import itertools
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import attrs

from labkit import checkpoint, environments
from labkit.config import FREE_TO_CHANGE, ParameterError, SACConfig, refuse
from labkit.runs import Run, read_config, read_metrics


def locate(run_dir: str | os.PathLike, config: SACConfig, resume: str = "auto") -> Path:
    """Which directory a run will use; nothing is changed in a directory that holds one.

    Args:
        run_dir: relative to the working directory, or absolute; empty means a new numbered
            directory under `runs/`.
        config: what is to be run.
        resume: 'auto' goes on with an unfinished run of the same configuration, or with one that
            is asked for more iterations; 'never' takes
            another directory, `run_dir` with a number behind it, where `run_dir` holds a run.

    Raises:
        ParameterError: the directory cannot be written, is damaged, or holds a run that is
            finished or of another configuration; Reverb is asked for and not installed.
    """
    if resume not in ("auto", "never"):
        raise refuse("resume", resume, "'auto' or 'never'")
    if config.replay == "reverb" and importlib.util.find_spec("reverb") is None:
        raise refuse("replay", config.replay, "'tf_uniform' here, for Reverb is not installed")
    try:
        path = Path(run_dir).expanduser() if str(run_dir) else _next_number(Path("runs"))
        if resume == "never":
            path = _beside(path)
        if (path / "config.json").exists():
            check_resumable(path, config)
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


def _beside(path: Path) -> Path:
    numbered = (path.with_name(f"{path.name}-{i}") for i in itertools.count(2))
    free = (p for p in itertools.chain([path], numbered) if not (p / "config.json").exists())
    return next(free)


def check_resumable(path: Path, config: SACConfig) -> None:
    """Refuses a directory whose run is finished, damaged, or of another configuration.

    A run may be asked to go on for more iterations than before; for fewer, as long as it has not
    taken more yet.

    Raises:
        ParameterError: names the file that is damaged, or each field that differs.
    """
    theirs = read_config(path)
    names = [f.name for f in attrs.fields(SACConfig) if f.name not in FREE_TO_CHANGE]
    differing = [
        f"{name} is {getattr(theirs, name)!r} there and {getattr(config, name)!r} here"
        for name in names
        if getattr(theirs, name) != getattr(config, name) and name != "num_iterations"
    ]
    if differing:
        raise ParameterError(
            f"run_dir = {str(path)!r} is refused: it holds a run of another configuration "
            f"({'; '.join(differing)}), which is never overwritten; allowed is a new directory"
        )
    if is_finished(path, config):
        raise ParameterError(
            f"run_dir = {str(path)!r} is refused: it holds a run that is finished, which is never "
            "overwritten; allowed is a new directory, or '' for the next number under runs/"
        )
    taken = max(checkpoint.steps(path / "checkpoints"), default=0)
    if taken > config.num_iterations:
        raise refuse(
            "num_iterations", config.num_iterations, f"{taken} or more, as many as {path} has taken"
        )


def is_finished(path: Path, config: SACConfig) -> bool:
    """Whether the run in `path` has the final evaluation after `config.num_iterations`.

    It may have gone on since.
    """
    table = read_metrics(path)
    at_end = table.eval_returns[table.gradient_step == config.num_iterations]
    return bool((at_end.map(len) >= config.num_eval_episodes).any())


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
    """Checks a notebook's parameters, then opens its run directory: `start_run(globals())`.

    Args:
        namespace: name → value; the fields of `SACConfig`, `run_dir` and `resume` are taken from
            it, everything else is left alone.

    Raises:
        ParameterError: one line, before TensorFlow or an environment does any work.
    """
    names = [field.name for field in attrs.fields(SACConfig)]
    config = SACConfig.parse({name: namespace[name] for name in names if name in namespace})
    environments.check_name(config.env_name)
    return open_run(namespace.get("run_dir", ""), config, namespace.get("resume", "auto"))


def open_run(run_dir: str | os.PathLike, config: SACConfig, resume: str = "auto") -> "Run":
    """Opens a new run, or an unfinished one of the same configuration; see `locate`.

    Raises:
        ParameterError: see `locate`; also when another process writes to the run.
    """
    path = locate(run_dir, config, resume)
    _lock(path)
    if (path / "config.json").exists():
        run = Run(path, config)
        run.write_config()
        return run
    return Run.create(path, config)


# Locks live as long as this process: a killed one leaves none behind, and a cell that is run
# again in the same kernel finds its own.
_LOCKS: dict[Path, TextIO] = {}


def _lock(path: Path) -> None:
    if path.resolve() in _LOCKS:
        return
    file = (path / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ParameterError(
            f"run_dir = {str(path)!r} is refused: another process is writing to this run"
        ) from None
    _LOCKS[path.resolve()] = file
