"""One writer for a run directory: lock files that name the process that holds them.

A lock lives as long as its process: a killed one leaves none, and a cell that runs again in the
same kernel finds its own. A lock belongs to the file, not to its path: if a directory was removed
and made again, its lock must be taken again. A forked child holds none of its parent's locks.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

from labkit.errors import ParameterError
from labkit.parameters import invalid

TRAINING = "lock"  # of the process that trains
LAUNCHER = "launcher.lock"  # of `labkit run`, which writes the executed notebook

Identity = tuple[int, int]  # device and inode: a file's as long as a descriptor of it is open

_HELD: dict[Identity, int] = {}  # lock file → descriptor, open until `release`
_TRAINED: dict[Identity, object] = {}  # lock file → the call of `training` that is active


def _forget() -> None:
    """Closes what a forked child inherited: the locks stay its parent's, and end with it."""
    for descriptor in _HELD.values():
        os.close(descriptor)
    _HELD.clear()
    _TRAINED.clear()


os.register_at_fork(after_in_child=_forget)


def identity(folder: Path, name: str) -> Identity | None:
    """Which file the lock `name` of a directory is now; None if there is none."""
    try:
        status = (folder / name).lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def hold(folder: Path, name: str, note: str = "") -> None:
    """Takes the lock `name` of a directory for this process; its first line is the process's id.

    `note` is its second line.

    Raises:
        ParameterError: another process holds it, or another thread trains; names the process.
        OSError: the file cannot be written.
    """
    held = identity(folder, name)
    if held is not None and held in _TRAINED:
        raise _trained(folder)
    if held is not None and held in _HELD:
        return
    descriptor = _try(folder, name)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n{note}".encode(), 0)
        status = os.fstat(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    _HELD[status.st_dev, status.st_ino] = descriptor


def release(folder: Path, name: str) -> None:
    """Gives up a lock; the file stays."""
    held = identity(folder, name)
    if held is not None and held in _HELD:
        os.close(_HELD.pop(held))


def check_free(folder: Path, name: str) -> None:
    """Rejects a directory whose lock `name` another process holds.

    Raises:
        ParameterError: names that process.
    """
    held = identity(folder, name)
    if held is not None and held not in _HELD:
        os.close(_try(folder, name))


@contextlib.contextmanager
def training(folder: Path) -> Iterator[None]:
    """While one thread trains in a directory, no other thread or process may.

    Raises:
        ParameterError: another one does; names its process.
    """
    check_free(folder, TRAINING)
    held, mine = identity(folder, TRAINING), object()
    if held is not None and _TRAINED.setdefault(held, mine) is not mine:
        raise _trained(folder)
    try:
        yield
    finally:
        if held is not None:
            _TRAINED.pop(held, None)  # absent in a child that was forked in between


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
    # A descriptor may outlive the process that the file names, in a child that it left behind.
    alive = pid.isdigit() and psutil.pid_exists(int(pid))
    who = f" (process {pid.decode()} is)" if alive else ""
    return invalid("run_dir", str(folder), f"a run that no other process is writing to{who}")


def _trained(folder: Path) -> ParameterError:
    who = f"process {os.getpid()}, this one, is"
    return invalid("run_dir", str(folder), f"a run that no other thread is training ({who})")
