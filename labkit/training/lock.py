"""One writer for a run directory: a lock file with the number of the process that holds it."""

import os
from pathlib import Path

import filelock
import psutil

from labkit.parameters import invalid

FILE = "lock"
_HELD: dict[Path, filelock.BaseFileLock] = {}


def hold(path: Path) -> None:
    """Takes the lock of a directory until this process ends; rejects one that another holds."""
    _HELD[path.resolve()] = _acquire(path)
    (path / FILE).write_text(f"{os.getpid()}\n")


def is_held(path: Path) -> bool:
    """Whether this process has taken the lock of a directory."""
    return path.resolve() in _HELD


def check_free(path: Path) -> None:
    """Rejects a directory to which another process writes."""
    if (path / FILE).exists():
        _acquire(path).release()


def _acquire(path: Path) -> filelock.BaseFileLock:
    """Takes the lock of a directory; once more, if this process holds it already."""
    place = path.resolve()
    lock = _HELD.get(place)
    if lock is None or not lock.is_locked or not (path / FILE).exists():  # or it was removed
        lock = filelock.FileLock(place / FILE, blocking=False, thread_local=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        holder = (path / FILE).read_text(errors="replace").strip()
        # It may be on another machine, where the directory is shared.
        here = holder.isdigit() and psutil.pid_exists(int(holder))
        who = f" (process {holder} is)" if here else ""
        allowed = f"a run that no other process is writing to{who}"
        raise invalid("run_dir", str(path), allowed) from None
    return lock
