"""Ends what Ray leaves running, even when the process that started it was killed.

Nothing in a killed process can clean up. So a small one of its own waits beside it, on a pipe that
closes with it whatever ends it. Run as a program, this file is that process; it imports nothing
but the standard library, to start in an instant.
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
SECONDS_BETWEEN_LOOKS = 0.2


@contextlib.contextmanager
def reaper(folder: str) -> Iterator[None]:
    """Ends, after the block or this process, every process that uses `folder`, and deletes it.

    Args:
        folder: Ray's temporary one, absolute; every process of Ray logs into it.
    """
    waiting = subprocess.Popen(
        [sys.executable, "-I", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C in a terminal, or the end of it, is not for this one
        text=True,
    )
    assert waiting.stdin is not None
    waiting.stdin.write(f"{os.getpid()} {folder}\n")
    waiting.stdin.flush()
    try:
        yield
    finally:
        waiting.stdin.close()
        try:
            waiting.wait(2 * SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            waiting.kill()


def end_processes(folder: str, owner: int) -> int:
    """Kills what uses `folder`, by its command line or its open files; returns how many.

    Ray gives its workers other command lines once they run, but their logs stay open. So do those
    of the process that started Ray, `owner`, and of what it started beside Ray: they are left.
    """
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if int(process.name) not in (os.getpid(), owner) and _uses(process, folder, owner):
                os.kill(int(process.name), signal.SIGKILL)
                found += 1
    return found


def _uses(process: Path, folder: str, owner: int) -> bool:
    if folder.encode() in (process / "cmdline").read_bytes():
        return True
    files = [os.readlink(file) for file in (process / "fd").iterdir()]
    return any(f.startswith(folder) and not f.endswith(f"_{owner}.log") for f in files)


def _wait_and_end() -> None:
    """The program: who it waits for and the folder come as a line; the pipe ends with its owner."""
    owner, folder = sys.stdin.readline().rstrip("\n").split(" ", 1)
    sys.stdin.read()
    deadline = time.monotonic() + SECONDS_TO_END
    while time.monotonic() < deadline:
        found = end_processes(folder, int(owner))
        shutil.rmtree(folder, ignore_errors=True)
        if not found and not Path(folder).exists():  # what was dying may have written once more
            return
        time.sleep(SECONDS_BETWEEN_LOOKS)


if __name__ == "__main__":
    _wait_and_end()
