"""A watchdog for environments: ends the process when a step or another of their methods hangs.

Physics that hangs holds Python's lock: nothing inside the process can interrupt or report it. A
second, tiny process watches a counter in shared memory that is odd while the environment works.
"""

import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NOTE = "ended_by_watchdog.txt"
START_SECONDS = 60  # until the second process answers
SUSPENDED_SECONDS = 5.0  # a watcher that wakes up so late was not running
KILLED = (
    "the environment did not return from a step, a reset, seed, close or its constructor within "
    "{limit:g} s; it hung in its own code, which nothing inside the process can interrupt, so the "
    "process was killed"
)


class Watchdog:
    """Watches one environment at a time; `limit` is in seconds, 0 for none.

    A step, a reset, `seed`, `close` or the constructor may take that long. The kill note `NOTE` is
    written to `folder` for the next start; None writes none.

    Raises:
        RunError: the second process did not start.
        StorageError: the folder for temporary files is full.
    """

    def __init__(self, limit: float = 0, folder: Path | None = None):
        self._count = 0
        self._child: subprocess.Popen | None = None
        if limit:
            # Not at the top: the second process runs this file without labkit.
            from labkit.errors import RunError, storage

            with tempfile.NamedTemporaryFile(buffering=0) as file:
                with storage(Path(file.name)):
                    file.write(bytes(8))  # not truncate: the first write to a hole may be fatal
                self._shared = mmap.mmap(file.fileno(), 8)
                # Started while the file has its name; -I -S: nothing but the standard library.
                arguments = [
                    str(os.getpid()),
                    str(limit),
                    file.name,
                    str(folder / NOTE) if folder else "",
                ]
                command = [sys.executable, "-I", "-S", __file__, *arguments]
                pipe = subprocess.PIPE
                self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe)
                answer = self._child.stdout.fileno()  # type: ignore[union-attr]  # opened above
                if not select.select([answer], [], [], START_SECONDS)[0] or not os.read(answer, 1):
                    self.close()
                    raise RunError(
                        f"the watchdog of the environment did not start within {START_SECONDS} s; "
                        "environment_timeout=0 trains without it"
                    )

    def turn(self) -> None:
        """Is called before and after each step, each reset, `seed`, `close` and the constructor."""
        if self._child is not None:
            self._count += 1
            struct.pack_into("q", self._shared, 0, self._count)

    def close(self) -> None:
        """Ends the watching process; may be called twice."""
        if self._child is not None:
            # Not by closing its input alone: what the environment forked may hold that open, too.
            self._child.kill()
            self._child.communicate()
            self._child = None


def read_kill_note(folder: Path) -> str:
    """The kill note that a watchdog wrote to `folder`, or an empty string; removes the note."""
    note = folder / NOTE
    text = note.read_text(errors="replace").strip() if note.exists() else ""
    note.unlink(missing_ok=True)
    return text


def _stopped(pid: int) -> bool:
    """Whether the process is suspended, by SIGSTOP or a debugger."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def _watch(pid: int, limit: float, shared: str, note: str) -> None:
    """The watching process; it ends when its parent does, which closes standard input."""
    with open(shared, "rb") as file:
        counter = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
    os.write(1, b".")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C in a terminal is for the parent
    last, since = 0, time.monotonic()
    pause, awake = min(1.0, limit / 4), since
    while os.getppid() == pid and not select.select([0], [], [], pause)[0]:
        now, before, awake = struct.unpack_from("q", counter)[0], awake, time.monotonic()
        suspended = awake - before > pause + SUSPENDED_SECONDS  # with this process, as by Ctrl-Z
        if now != last or now % 2 == 0 or suspended or _stopped(pid):
            last, since = now, time.monotonic()
        elif time.monotonic() - since > limit:
            text = KILLED.format(limit=limit)
            try:
                if note:
                    Path(note).write_text(text + "\n")
            except OSError:
                pass  # another machine of a Ray cluster has no run directory
            finally:
                os.write(2, f"labkit: {text}\n".encode())
                os.kill(pid, signal.SIGKILL)
            return


if __name__ == "__main__":
    _watch(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4])
