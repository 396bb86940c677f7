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
    """Writes one checkpoint, then deletes all but the newest `KEPT`.

    Args:
        folder: the run's `checkpoints/`.
        step: gradient steps done; names the checkpoint.
        arrays: the agent's variables, in the order of `agent.state_variables`.
        state: numbers and text for `state.json`.
        replay: the replay table, which writes its own files.

    Returns:
        The checkpoint's directory.

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
        for old in steps(folder)[:-KEPT]:
            _delete(folder / f"{old:09d}")
    except (OSError, RuntimeError, IndexError) as error:  # Reverb raises the last for a full disk
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise StorageError(
            f"no checkpoint could be written to {folder} at gradient step {step} ({reason})"
        ) from None
    return final


def _delete(checkpoint: Path) -> None:
    """Renames a checkpoint, then deletes it: a half-deleted one would look complete."""
    deleted = checkpoint.with_name("deleted")
    shutil.rmtree(deleted, ignore_errors=True)
    if checkpoint.exists():
        checkpoint.rename(deleted)
        shutil.rmtree(deleted, ignore_errors=True)


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def steps(folder: Path) -> list[int]:
    """The gradient steps of every complete checkpoint, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit())


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint, or None."""
    done = steps(folder)
    return folder / f"{done[-1]:09d}" if done else None


def load(checkpoint: Path) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Reads a checkpoint's arrays and state.

    Raises:
        ParameterError: a file is missing, truncated or of another format; names the file.
    """
    for name in ("state.json", "agent.npz", "replay"):
        if not (checkpoint / name).exists():
            raise ParameterError(f"{checkpoint / name} is missing: this checkpoint cannot be used")
    try:
        state = json.loads((checkpoint / "state.json").read_text())
        version = state["format"]
    except (ValueError, KeyError, TypeError):
        raise ParameterError(
            f"{checkpoint / 'state.json'} is damaged: it is not the JSON that labkit writes"
        ) from None
    if version != FORMAT:
        raise ParameterError(
            f"{checkpoint / 'state.json'} has format {version}; this labkit reads format {FORMAT}"
        )
    try:
        with np.load(checkpoint / "agent.npz", allow_pickle=False) as file:
            arrays = [file[name] for name in sorted(file.files)]
    except Exception as error:  # zipfile, zlib, struct and numpy each raise another one
        raise ParameterError(f"{checkpoint / 'agent.npz'} is damaged: {error}") from None
    return arrays, state


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
