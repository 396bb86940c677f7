"""Checkpoints: everything that a run needs to resume, in files that hold no code.

    checkpoints/000012000/agent.npz     networks, targets, α, Adam's moments, the step counter
    checkpoints/000012000/state.json    counters, random generators, how much of metrics.csv counts
    checkpoints/000012000/replay/       the replay table: items, order, priorities, counters

The three belong together: they are written under another name and renamed at once, so that a crash
at any moment leaves the previous checkpoint. NPZ is read without pickle, and JSON holds numbers and
text: loading somebody else's run cannot execute anything.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from labkit.errors import ParameterError, StorageError
from labkit.replay.transitions import BatchSource

FORMAT = 1
KEPT = 2


def save(
    folder: Path, step: int, arrays: list[np.ndarray], state: dict[str, Any], replay: BatchSource
) -> Path:
    """Writes the checkpoint of gradient step `step`, then deletes all but the newest `KEPT`.

    `folder` is the run's `checkpoints/`, `arrays` the agent's variables in the order of
    `agent.state_variables`, `state` numbers and text. Returns the checkpoint's directory.

    Raises:
        StorageError: the disk is full, read-only or gone; the previous checkpoint is unchanged.
    """
    partial, final = folder / "partial", folder / f"{step:09d}"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        np.savez(partial / "agent.npz", **{f"{i:04d}": array for i, array in enumerate(arrays)})
        (partial / "state.json").write_text(json.dumps({"format": FORMAT, "step": step, **state}))
        replay.save(partial / "replay")
        for file in partial.rglob("*"):
            _flush_to_disk(file)
        deleted = folder / "deleted"
        shutil.rmtree(deleted, ignore_errors=True)
        if final.exists():  # of the same step: deleted once the new one exists
            final.rename(deleted)
        partial.rename(final)
        _flush_to_disk(folder)
        shutil.rmtree(deleted, ignore_errors=True)
        for old in steps(folder)[:-KEPT]:  # renamed first: a half-deleted one would look complete
            (folder / f"{old:09d}").rename(deleted)
            shutil.rmtree(deleted, ignore_errors=True)
    except (OSError, RuntimeError, IndexError) as error:  # Reverb raises the last for a full disk
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        what = f"no checkpoint could be written to {folder} at gradient step {step}"
        raise StorageError(f"{what} ({reason})") from None
    return final


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def steps(folder: Path) -> list[int]:
    """The gradient steps of every complete checkpoint, oldest first."""
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint, or None."""
    done = steps(folder)
    return folder / f"{done[-1]:09d}" if done else None


def load(checkpoint: Path) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Reads a checkpoint's arrays and state.

    Raises:
        ParameterError: a file is missing, truncated or of another format; names the file.
    """
    text, archive = checkpoint / "state.json", checkpoint / "agent.npz"
    for path in (text, archive, checkpoint / "replay"):
        if not path.exists():
            raise ParameterError(f"{path} is missing: this checkpoint cannot be used")
    try:
        state = json.loads(text.read_text())
        version = state["format"]
    except (ValueError, KeyError, TypeError):
        raise ParameterError(f"{text} is damaged: it is not the JSON that labkit writes") from None
    if version != FORMAT:
        raise ParameterError(f"{text} has format {version}; this labkit reads format {FORMAT}")
    try:
        with np.load(archive, allow_pickle=False) as arrays:
            return [arrays[name] for name in sorted(arrays.files)], state
    except Exception as error:  # zipfile, zlib, struct and numpy each raise another one
        raise ParameterError(f"{archive} is damaged: {error}") from None


def assign(variables: list[Any], arrays: list[np.ndarray], checkpoint: Path) -> None:
    """Restores the saved value of each variable, after checking all shapes.

    Raises:
        ParameterError: the checkpoint is of other networks.
    """
    ours = [tuple(v.shape) for v in variables]
    theirs = [array.shape for array in arrays]
    if ours != theirs:
        raise ParameterError(
            f"{checkpoint / 'agent.npz'} holds {len(theirs)} arrays of other shapes than this "
            f"agent's {len(ours)} variables"
        )
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)


def size_bytes(folder: Path) -> int:
    """Size of all checkpoints on disk, in bytes."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def summary(folder: Path) -> str:
    """One line for the end of a run: where its checkpoints are and how large they are."""
    megabytes = size_bytes(folder) / 1e6
    return f"the newest checkpoints are in {folder}: {megabytes:.0f} MB on disk"
