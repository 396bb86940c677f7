"""One writer for a run directory: lock files that name the process that holds them.

A lock lives as long as its process: a killed one leaves none, and a cell that runs again in the
same kernel finds its own.
"""

import fcntl
import os
from pathlib import Path

from labkit.errors import ParameterError
from labkit.parameters import invalid

TRAINING = "lock"  # of the process that trains
LAUNCHER = "launcher.lock"  # of `labkit run`, which writes the executed notebook

_HELD: dict[Path, int] = {}  # lock file → descriptor


def hold(folder: Path, name: str, note: str = "") -> None:
    """Takes the lock `name` of a directory for this process; its first line is the process's id.

    `note` is its second line.

    Raises:
        ParameterError: another process holds it; names that process.
        OSError: the file cannot be written.
    """
    key = folder.resolve() / name
    if key in _HELD:
        return
    descriptor = _try(folder, name)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n{note}".encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    _HELD[key] = descriptor


def release(folder: Path, name: str) -> None:
    """Gives up a lock; the file stays."""
    descriptor = _HELD.pop(folder.resolve() / name, None)
    if descriptor is not None:
        os.close(descriptor)


def check_free(folder: Path, name: str) -> None:
    """Rejects a directory whose lock `name` another process holds.

    Raises:
        ParameterError: names that process.
    """
    if (folder / name).exists() and folder.resolve() / name not in _HELD:
        os.close(_try(folder, name))


def note(folder: Path, name: str) -> str:
    """The note in a lock file; empty if there is none."""
    file = folder / name
    return file.read_text().partition("\n")[2] if is_lock(file) else ""


def is_lock(file: Path) -> bool:
    """Whether a file is one that `hold` wrote, or the empty one of version 0.1."""
    try:
        content = file.read_bytes()
    except OSError:
        return False
    return not content or content.partition(b"\n")[0].isdigit()


def _try(folder: Path, name: str) -> int:
    """The descriptor of a lock file that this process has just locked."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder / name, flags, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _taken(folder, os.pread(descriptor, 20, 0), descriptor) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _taken(folder: Path, holder: bytes, descriptor: int) -> ParameterError:
    os.close(descriptor)
    pid = holder.partition(b"\n")[0]
    who = f" (process {pid.decode()} is)" if pid.isdigit() else ""
    return invalid("run_dir", str(folder), f"a run that no other process is writing to{who}")
