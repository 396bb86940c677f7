"""Ctrl-C, the kernel's stop button and SIGTERM end a run after its present iteration."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

# `labkit.cli.run` is in another process than the training and cannot signal it: it makes this file.
FILE_VARIABLE = "LABKIT_STOP"


class StopRequest:
    """Whether somebody asked the run to end."""

    def __init__(self, when_asked: Callable[[], Any] = lambda: None) -> None:
        self._asked = False
        self._when_asked = when_asked
        self._file = os.environ.get(FILE_VARIABLE)
        self._looked = 0.0

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler: the first is a request, the second an order."""
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        self._when_asked()
        print("stopping after this iteration; once more to stop at once", file=sys.stderr)

    def __bool__(self) -> bool:
        now = time.monotonic()
        if self._file and not self._asked and now - self._looked > 0.5:
            self._looked = now
            self._asked = Path(self._file).exists()
        return self._asked


@contextlib.contextmanager
def stop_request(when_asked: Callable[[], Any] = lambda: None) -> Iterator[StopRequest]:
    """Gives a `StopRequest` that SIGINT and SIGTERM set, and puts the old handlers back after.

    Outside the main thread signals cannot be handled; only the file is looked at there.

    Args:
        when_asked: is called once, at the first signal.
    """
    request = StopRequest(when_asked)
    old = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            old[number] = signal.signal(number, request.handle)
    try:
        yield request
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
