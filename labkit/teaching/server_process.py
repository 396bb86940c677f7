"""A Reverb server in a separate process, which always ends with the process that started it.

    with labkit.teaching.server_process.start([table], port=9999) as server:
        client = server.client()

`labkit.teaching.serve` runs in that process; it is also a command for a terminal.
"""

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from multiprocessing import connection
from pathlib import Path
from typing import Any

from labkit.errors import START_SECONDS, ParameterError
from labkit.replay.server import check_port, free_port

STOP_SECONDS = 5.0  # for each of: closed pipe, SIGTERM, SIGKILL


class ServerDiedError(RuntimeError):
    """A server process ended without being stopped; the contents of its tables are lost."""


class ServerProcess:
    """A running server, as `start` makes it.

    It ends with `stop`, with its `with` block, when this object is garbage-collected, and when the
    process that started it ends in any way.
    """

    def __init__(self, process: subprocess.Popen, port: int):
        self.port, self.pid = port, process.pid
        self._process = process
        # A finalizer runs once, at the latest when the interpreter exits.
        self._finalizer = weakref.finalize(self, _end, process)

    @property
    def address(self) -> str:
        """`host:port`, for `reverb.Client` and datasets."""
        return f"localhost:{self.port}"

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def client(self) -> Any:
        """A new `reverb.Client` of this server; see `check` for the error if it has ended."""
        import reverb

        self.check()
        return reverb.Client(self.address)

    def check(self) -> None:
        """Raises a `ServerDiedError` if the server was stopped, or ended; it names the signal."""
        status = self._process.poll()
        if status is None:
            return
        who = f"the Reverb server on port {self.port}"
        if not self._finalizer.alive:
            raise ServerDiedError(f"{who} was stopped; start a new one")
        how = f"{signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        raise ServerDiedError(f"{who} ended ({how}); the contents of its tables are lost")

    def stop(self) -> None:
        """Stops the process, by force if necessary; a second call does nothing."""
        self._finalizer()

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _end(process: subprocess.Popen) -> None:
    """Closes the pipe, then terminates, then kills; returns when the process has ended."""
    if process.stdin is not None:
        process.stdin.close()
    for stop in (lambda: None, process.terminate, process.kill):
        stop()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
            return


def start(
    tables: Sequence[Any], port: int = 0, limit_seconds: float = START_SECONDS
) -> ServerProcess:
    """Starts a server with copies of these tables in a new process, and waits until it answers.

    Args:
        tables: `reverb.Table`s. The new process makes its own from their descriptions; the given
            ones stay empty. Table extensions are not copied.
        port: 0 takes a free one.
        limit_seconds: time limit for the first answer.

    Raises:
        ParameterError: the port is taken or out of range.
        ServerDiedError: the process ended instead of answering, or did not answer in time.
    """
    port = check_port(port or free_port())
    root = str(Path(__file__).resolve().parents[2])  # labkit may only be on sys.path, not installed
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    log = tempfile.TemporaryFile()  # noqa: SIM115  (the process holds it for life)
    process = subprocess.Popen(
        [sys.executable, "-m", "labkit.teaching.serve", "--port", str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,  # an interrupted kernel sends SIGINT to its whole group
    )
    assert process.stdin is not None
    assert process.stdout is not None
    described = [base64.b64encode(table.internal_table.info()).decode() for table in tables]
    try:
        process.stdin.write(json.dumps(described).encode() + b"\n")
        process.stdin.flush()
        # Not `readline` at once: it has no time limit.
        answered = connection.wait([process.stdout.fileno()], limit_seconds)
        answer = process.stdout.readline() if answered else b""
    except OSError:
        answer = b""
    if answer.strip() != f"serving on port {port}".encode():
        process.kill()
        _end(process)
        log.seek(0)
        reason = (log.read().decode(errors="replace").strip() or "no reason given").splitlines()[-1]
        if reason.startswith("ParameterError: "):
            raise ParameterError(reason.removeprefix("ParameterError: "))
        raise ServerDiedError(f"no server on port {port} within {limit_seconds:g} s: {reason}")
    return ServerProcess(process, port)
