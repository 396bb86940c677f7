"""Checkpoints: everything that a run needs to resume, in files that hold no code.

    checkpoints/000012000/agent.npz     networks, targets, α, Adam's moments, the step counter
    checkpoints/000012000/replay/       the replay table: items, order, priorities, counters
    checkpoints/000012000/state.json    counters, random generators, the sizes of the other files

They belong together: they are written to `partial`, which is renamed at the end, so that a crash
leaves the previous checkpoint. NPZ and ZLIB, which Reverb writes, have checksums of their own. NPZ
is read without pickle, and JSON holds numbers and text: loading somebody else's run cannot execute
anything.
"""

import contextlib
import itertools
import json
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from labkit.errors import ParameterError, RunError, StorageError, first_line
from labkit.replay.transitions import BatchSource, write_npz

FORMAT = 2
KEPT = 2
BLOCK = 2**16  # bytes that are read at once
AGENT, STATE = "agent.npz", "state.json"


def flush_to_disk(path: Path) -> None:
    """Waits until a file's content, or a directory's list of names, would outlast a power failure.

    Raises an OSError if the disk is full or gone.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():  # some shared folders cannot do this for a directory
            raise
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: str) -> None:
    """Writes a text file, or replaces it, in one rename that outlasts a power failure.

    Raises an OSError if the disk is full or gone; the file is as before.
    """
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        with partial.open("xb") as file:  # a new file: a symbolic link is not followed
            file.write(content.encode())
        flush_to_disk(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    flush_to_disk(path.parent)


def save(
    folder: Path, step: int, arrays: list[np.ndarray], state: dict[str, Any], replay: BatchSource
) -> Path:
    """Writes the checkpoint of gradient step `step`, then deletes all but the newest `KEPT`.

    `folder` is the run's `checkpoints/`, `arrays` the agent's variables in the order of
    `agent.state_variables`, `state` numbers and text. Returns the checkpoint's directory. Raises
    StorageError if the disk is full or gone, StalledError if the table does not answer in time.
    """
    partial, final = folder / "partial", folder / f"{step:09d}"
    try:
        if folder.is_symlink():
            raise OSError(f"{folder} is a symbolic link")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        write_npz(partial / AGENT, {f"{i:04d}": array for i, array in enumerate(arrays)})
        replay.save(partial / "replay")
        found = [file for file in sorted(partial.rglob("*")) if file.is_file()]
        files = {str(file.relative_to(partial)): file.stat().st_size for file in found}
        content = {"format": FORMAT, "step": step, "files": files, **state}
        text = json.dumps({**content, "crc": zlib.crc32(json.dumps(content).encode())})
        (partial / STATE).write_text(text)
        for file in (*partial.rglob("*"), partial):
            flush_to_disk(file)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        flush_to_disk(folder)
        flush_to_disk(folder.parent)
        for old in steps(folder)[:-KEPT]:  # renamed first: a half-deleted one would look complete
            (folder / f"{old:09d}").rename(partial)
            shutil.rmtree(partial)
    except RunError:
        raise
    except (OSError, RuntimeError, IndexError) as error:  # Reverb raises the last for a full disk
        reason = getattr(error, "strerror", None) or first_line(error)
        what = f"no checkpoint could be written to {folder} at gradient step {step}"
        raise StorageError(f"{what} ({reason})") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # it may be all that fills the disk
    return final


def steps(folder: Path) -> list[int]:
    """The gradient steps of every complete checkpoint, oldest first; other names do not count."""
    return sorted(int(path.name) for path in folder.glob("*") if re.fullmatch(r"\d{9,}", path.name))


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint, or None."""
    done = steps(folder)
    return folder / f"{done[-1]:09d}" if done else None


def check(saved: Path) -> None:
    """Rejects a checkpoint with a file that is not whole, by its size and its own checksums."""
    for name, size in read_state(saved)["files"].items():
        file = saved / name
        with named(file):
            if file.stat().st_size != size:
                raise ValueError(f"it has {file.stat().st_size} bytes, not {size}")
            if file.suffix == ".npz":
                with zipfile.ZipFile(file) as archive:
                    if bad := archive.testzip():
                        raise ValueError(f"the checksum of {bad} is another one")
            elif file.suffix == ".tfrecord":  # a ZLIB stream, which ends with a checksum
                stream = zlib.decompressobj()
                with file.open("rb") as opened:
                    while block := opened.read(BLOCK):
                        stream.decompress(block)
                if not stream.eof:
                    raise ValueError("its end is missing")


@contextlib.contextmanager
def named(file: Path) -> Iterator[None]:
    """Names a file in place of what Python or NumPy raises: it cannot be read, or is damaged."""
    try:
        yield
    except OSError as error:
        raise ParameterError(f"{file} cannot be read: {error.strerror or error}") from None
    except ParameterError:
        raise
    except Exception as error:  # zipfile, zlib, struct, numpy and TensorFlow each raise another one
        reason = f"it lacks {error}" if isinstance(error, KeyError) else first_line(error)
        raise ParameterError(f"{file} is damaged: {reason}") from None


def set_aside_damaged(folder: Path) -> None:
    """Renames damaged checkpoints, so that `latest` is the newest whole one; a line for each.

    Each is checked, from the newest on, until one is whole. Rejects checkpoints of which none is
    whole; then nothing is renamed.
    """
    damaged: dict[Path, ParameterError] = {}
    for step in reversed(steps(folder)):
        try:
            check(saved := folder / f"{step:09d}")
            break
        except ParameterError as error:
            damaged[saved] = error
    else:
        for first in damaged.values():
            raise ParameterError(f"{first}; {folder} holds no whole checkpoint to resume from")
    for bad, what in damaged.items():
        aside = bad.with_name(f"damaged-{bad.name}")
        shutil.rmtree(aside, ignore_errors=True)
        bad.rename(aside)
        print(f"{what}; it is now in {aside}, and the run resumes from gradient step {step}")


def read_json(file: Path, version: int) -> dict[str, Any]:
    """Reads a file of labkit; rejects one that is damaged or of another format than `version`."""
    with named(file):
        content = json.loads(file.read_text())
        if content["format"] != version:
            what = f"{file} has format {content['format']!r}; this labkit reads format {version}"
            raise ParameterError(what)
    return content


def read_state(saved: Path) -> dict[str, Any]:
    """Reads a checkpoint's `state.json`; rejects one that is damaged or of another format."""
    state = read_json(file := saved / STATE, FORMAT)
    with named(file):
        if state.pop("crc") != zlib.crc32(json.dumps(state).encode()):
            raise ValueError("its content differs from what was written")
    return state


def assign(variables: list[Any], saved: Path, partly: bool = False) -> None:
    """Restores the saved value of each variable; rejects a file that is damaged or of other shapes.

    `partly`: the checkpoint has further variables.
    """
    file = saved / AGENT
    with named(file), zipfile.ZipFile(file) as archive:
        names = sorted(archive.namelist())
        names = names[: len(variables)] if partly else names
        ours, theirs = [tuple(variable.shape) for variable in variables], []
        for name in names:  # shapes first: the data may be gigabytes
            with archive.open(name) as stream:
                np.lib.format.read_magic(stream)
                theirs.append(np.lib.format.read_array_header_1_0(stream)[0])
        for place, (found, wanted) in enumerate(itertools.zip_longest(theirs, ours)):
            if found != wanted:
                what = f"the {len(ours)} variables of this agent, got {len(theirs)} arrays"
                odd = f"number {place} has the shape {found}, not {wanted}"
                raise ParameterError(f"{file} must hold {what}: {odd}")
        for variable, name in zip(variables, names, strict=True):
            with archive.open(name) as stream:
                variable.assign(np.lib.format.read_array(stream, allow_pickle=False))


def summary(folder: Path) -> str:
    """One line for the end of a run: where its checkpoints are and how large they are."""
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
    megabytes = "less than 1" if size < 1 else f"{size:.0f}"
    return f"the newest checkpoints are in {folder}: {megabytes} MB on disk"
