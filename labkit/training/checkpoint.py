"""Checkpoints: everything that a run needs to resume, in files that hold no code.

    checkpoints/000012000/agent.npz     networks, targets, α, Adam's moments, the step counter
    checkpoints/000012000/state.json    counters, random generators, how much of metrics.csv counts
    checkpoints/000012000/replay/       the replay table: items, order, priorities, counters
    checkpoints/000012000/evaluations.npz   on Ray: the weights that wait for an evaluation, if any
    checkpoints/000012000/checksums.json    size and CRC-32 of each file above

They belong together: they are written to a directory with another name, which is renamed at the
end, so that a crash leaves the previous checkpoint. Replacing a checkpoint of the same step takes
two renames: a crash between them leaves the earlier one as `deleted` and the new one as `partial`,
and the next start renames both.
NPZ is read without pickle, and JSON holds numbers and text: loading somebody else's run cannot
execute anything.
"""

import contextlib
import itertools
import json
import re
import shutil
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from labkit.errors import ParameterError, RunError, StorageError, first_line, storage
from labkit.replay import npz
from labkit.replay.transitions import BatchSource
from labkit.training.files import flush_to_disk

FORMAT = 1
KEPT = 2
CHECKSUMS = "checksums.json"  # version 0.1 wrote none: its checkpoints are read without
EVALUATIONS = "evaluations.npz"
CONTENT = ("state.json", "agent.npz", "replay")
BLOCK = 2**20  # bytes


def save(
    folder: Path,
    step: int,
    arrays: list[np.ndarray],
    state: dict[str, Any],
    replay: BatchSource,
    evaluations: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Path:
    """Writes the checkpoint of gradient step `step`, then deletes all but the newest `KEPT`.

    `folder` is the run's `checkpoints/`, `arrays` the agent's variables in the order of
    `agent.state_variables`, `state` numbers and text, `evaluations` what `load_evaluations` is to
    return. Returns the checkpoint's directory.

    Raises:
        StorageError: the disk is full, read-only or gone; the previous checkpoint is unchanged.
        StalledError: the replay table did not take the last rows in time.
    """
    partial, final = folder / "partial", folder / f"{step:09d}"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        npz.write(partial / "agent.npz", {f"{i:04d}": array for i, array in enumerate(arrays)})
        if evaluations:
            npz.write(partial / EVALUATIONS, evaluations)
        (partial / "state.json").write_text(json.dumps({"format": FORMAT, "step": step, **state}))
        replay.save(partial / "replay")
        sums = {name: _checksum(partial / name) for name in _files(partial)}
        (partial / CHECKSUMS).write_text(json.dumps({"files": sums, "crc": _crc_of(sums)}))
        for file in (*partial.rglob("*"), partial):
            flush_to_disk(file)
        deleted = folder / "deleted"
        shutil.rmtree(deleted, ignore_errors=True)
        if final.exists():  # of the same step: deleted once the new one exists
            final.rename(deleted)
        partial.rename(final)
        flush_to_disk(folder)
        flush_to_disk(folder.parent)
        shutil.rmtree(deleted, ignore_errors=True)
        for old in steps(folder)[:-KEPT]:  # renamed first: a half-deleted one would look complete
            (folder / f"{old:09d}").rename(deleted)
            shutil.rmtree(deleted, ignore_errors=True)
    except RunError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    except (OSError, RuntimeError, IndexError) as error:  # Reverb raises the last for a full disk
        shutil.rmtree(partial, ignore_errors=True)  # it may be all that fills the disk
        reason = getattr(error, "strerror", None) or first_line(error)
        what = f"no checkpoint could be written to {folder} at gradient step {step}"
        raise StorageError(f"{what} ({reason})") from None
    return final


def interrupted(folder: Path) -> dict[int, Path]:
    """Whole checkpoints that a crash left under another name, by their gradient steps."""
    found: dict[int, Path] = {}
    for left in (folder / "deleted", folder / "partial"):  # of one step, the newer one counts
        if (left / CHECKSUMS).exists():
            with contextlib.suppress(ParameterError):
                check(left)
                found[int(read_state(left)["step"])] = left
    return {step: left for step, left in found.items() if step not in steps(folder)}


def recover(folder: Path) -> None:
    """Renames what is `interrupted`; only the process that writes the run may call this.

    Raises:
        StorageError: it cannot be renamed.
    """
    with storage(folder):
        for step, left in interrupted(folder).items():
            left.rename(folder / f"{step:09d}")


def _files(checkpoint: Path) -> list[str]:
    """The files of a checkpoint, relative to it, without the checksums."""
    found = [path for path in checkpoint.rglob("*") if path.is_file()]
    return sorted(str(path.relative_to(checkpoint)) for path in found if path.name != CHECKSUMS)


def _checksum(file: Path) -> list[int]:
    """Size and CRC-32: it finds accidents, at a quarter of the time that SHA-256 takes."""
    size = crc = 0
    with file.open("rb") as stream:
        while block := stream.read(BLOCK):
            size, crc = size + len(block), zlib.crc32(block, crc)
    return [size, crc]


def _crc_of(sums: dict[str, list[int]]) -> int:
    return zlib.crc32(json.dumps(sums).encode())


def check(checkpoint: Path, only: tuple[str, ...] = ()) -> None:
    """Compares every file of a checkpoint, or `only` these, with its checksums.

    Raises:
        ParameterError: a file is missing or damaged; names the first one.
    """
    manifest = checkpoint / CHECKSUMS
    if not manifest.exists():
        _check_complete(checkpoint)
        return
    try:
        content = json.loads(manifest.read_text())
        expected, crc = dict(content["files"]), content["crc"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        expected, crc = {}, None
    if _crc_of(expected) != crc:
        raise ParameterError(f"{manifest} is damaged: its content differs from what was written")
    for name in only or expected:
        file = checkpoint / name
        try:
            found = _checksum(file)
        except OSError as error:
            raise ParameterError(f"{file} cannot be read: {error.strerror}") from None
        if found != expected.get(name):
            raise ParameterError(f"{file} is damaged: its content differs from what was written")


def _check_complete(checkpoint: Path) -> None:
    for name in CONTENT:
        if not (checkpoint / name).exists():
            raise ParameterError(f"{checkpoint / name} is missing: this checkpoint cannot be used")


def set_aside_damaged(folder: Path) -> None:
    """Renames damaged checkpoints, so that `latest` is the newest whole one.

    Each is checked, from the newest on, until one is whole; a line is printed for each damaged one.

    Raises:
        ParameterError: there are checkpoints, but none is whole; nothing is renamed.
    """
    damaged: dict[int, str] = {}
    for step in reversed(steps(folder)):
        try:
            check(folder / f"{step:09d}")
            break
        except ParameterError as error:
            damaged[step] = str(error)
    else:
        for what in damaged.values():
            raise ParameterError(f"{what}; {folder} holds no whole checkpoint to resume from")
        return
    for bad, what in damaged.items():
        name = f"damaged-{bad:09d}"
        names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        aside = next(folder / free for free in names if not (folder / free).exists())
        (folder / f"{bad:09d}").rename(aside)
        print(f"{what}; it is now {aside}, and the run resumes from gradient step {step}")


@contextlib.contextmanager
def naming_damage(checkpoint: Path) -> Iterator[None]:
    """Names `state.json` when it lacks a key or holds a wrong value.

    Raises:
        ParameterError: in place of what Python raises.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, ParameterError):
            raise
        reason = f"it lacks {error}" if isinstance(error, KeyError) else first_line(error)
        raise ParameterError(f"{checkpoint / 'state.json'} is damaged: {reason}") from None


def steps(folder: Path) -> list[int]:
    """The gradient steps of every complete checkpoint, oldest first; other names do not count."""
    names = [path.name for path in folder.glob("*") if re.fullmatch("[0-9]{9,10}", path.name)]
    return sorted(int(name) for name in names if name == f"{int(name):09d}")


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint, or None."""
    done = steps(folder)
    return folder / f"{done[-1]:09d}" if done else None


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Reads a checkpoint's `state.json`.

    Raises:
        ParameterError: a file is missing, or this one is damaged or of another format.
    """
    text = checkpoint / "state.json"
    _check_complete(checkpoint)
    check(checkpoint, only=(text.name,))
    try:
        state = json.loads(text.read_text())
        version = state["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ParameterError(f"{text} is damaged: it is not the JSON that labkit writes") from None
    if version != FORMAT:
        raise ParameterError(f"{text} has format {version}; this labkit reads format {FORMAT}")
    return state


def load(checkpoint: Path) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Reads a checkpoint's arrays and state.

    Raises:
        ParameterError: a file is missing, truncated or of another format; names the file.
    """
    state, arrays = read_state(checkpoint), _read_arrays(checkpoint / "agent.npz")
    return [arrays[name] for name in sorted(arrays)], state


def load_evaluations(checkpoint: Path) -> dict[str, np.ndarray]:
    """The weights that waited for an evaluation, as `save` got them; empty if there were none.

    Raises:
        ParameterError: the file is damaged.
    """
    archive = checkpoint / EVALUATIONS
    return _read_arrays(archive) if archive.exists() else {}


def _read_arrays(archive: Path) -> dict[str, np.ndarray]:
    check(archive.parent, only=(archive.name,))
    try:
        with np.load(archive, allow_pickle=False) as arrays:
            return dict(arrays)
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
        pairs = enumerate(itertools.zip_longest(theirs, ours))
        place, (found, wanted) = next((n, pair) for n, pair in pairs if pair[0] != pair[1])
        raise ParameterError(
            f"{checkpoint / 'agent.npz'} must hold the {len(ours)} variables of this agent, got "
            f"{len(theirs)} arrays: number {place} has the shape {found}, not {wanted}"
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
