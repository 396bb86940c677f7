"""Ends processes that Ray leaves running, even if the process that started Ray was killed.

A killed process cannot clean up. So a small second process waits on a pipe that closes when the
first one ends, in whatever way. Run as a program, this file is that process; it imports only the
standard library, so that it starts at once.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

SECONDS_TO_END = 20.0
POLL_SECONDS = 0.2


@contextlib.contextmanager
def reaper(folder: str) -> Iterator[None]:
    """Ends all processes that use `folder`, and deletes it, after the block or this process ends.

    `folder` is Ray's temporary folder, absolute; every process of Ray logs into it.
    """
    watcher = subprocess.Popen(
        [sys.executable, "-I", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # not reached by Ctrl-C in a terminal, or by its end
        text=True,
    )
    assert watcher.stdin is not None
    watcher.stdin.write(f"{os.getpid()} {folder}\n")
    watcher.stdin.flush()
    try:
        yield
    finally:
        watcher.stdin.close()
        try:
            watcher.wait(2 * SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            watcher.kill()


def end_processes(folder: str, owner: int) -> int:
    """Kills processes with `folder` in their command line or open files; returns how many.

    Ray changes the command lines of its workers, but their logs stay open. The process that started
    Ray, `owner`, has open logs too, and so do its other children: these are not killed.
    """
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if int(process.name) not in (os.getpid(), owner) and _uses(process, folder, owner):
                os.kill(int(process.name), signal.SIGKILL)
                found += 1
    return found


def _uses(process: Path, folder: str, owner: int) -> bool:
    if folder.encode() in (process / "cmdline").read_bytes():
        return True
    files = []
    for file in (process / "fd").iterdir():
        with contextlib.suppress(OSError):  # closed since
            files.append(os.readlink(file))
    return any(f.startswith(folder) and not f.endswith(f"_{owner}.log") for f in files)


def _wait_and_end() -> None:
    """The program: reads owner and folder as one line; the pipe closes when the owner ends."""
    owner, folder = sys.stdin.readline().rstrip("\n").split(" ", 1)
    sys.stdin.read()
    deadline = time.monotonic() + SECONDS_TO_END
    while time.monotonic() < deadline:
        found = end_processes(folder, int(owner))
        shutil.rmtree(folder, ignore_errors=True)
        if not found and not Path(folder).exists():  # one may have written while it ended
            return
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    _wait_and_end()
