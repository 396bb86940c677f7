"""Stop requests: Ctrl-C, the stop button and SIGTERM end a run after the current iteration."""

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

# `labkit run` is not the process that trains and cannot signal it: it creates this file instead.
FILE_VARIABLE = "LABKIT_STOP"


class StopRequest:
    """Whether the run was asked to end."""

    def __init__(self, on_request: Callable[[], Any] = lambda: None) -> None:
        self._requested, self._announced = False, True
        self._on_request = on_request
        self._file = os.environ.get(FILE_VARIABLE)
        self._checked_at = 0.0

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler: the first signal is a request, the second interrupts at once."""
        if self._requested:
            raise KeyboardInterrupt
        self._requested, self._announced = True, False
        self._on_request()

    def __bool__(self) -> bool:
        if not self._announced:  # the handler itself may run where output is hidden
            self._announced = True
            print(
                "stopping after this iteration; interrupt once more to stop at once",
                file=sys.stderr,
            )
        now = time.monotonic()
        if self._file and not self._requested and now - self._checked_at > 0.5:
            self._checked_at = now
            self._requested = Path(self._file).exists()
        return self._requested

    def interrupt(self) -> None:
        """Ends a warm-up, during which there is nothing to save yet.

        Raises:
            KeyboardInterrupt: the run was asked to end; `labkit run` prints this as one line.
        """
        if self:
            raise KeyboardInterrupt("before training began")


@contextlib.contextmanager
def stop_request(on_request: Callable[[], Any] = lambda: None) -> Iterator[StopRequest]:
    """Yields a `StopRequest` that SIGINT and SIGTERM set; restores the old handlers afterwards.

    `on_request` is called once, at the first signal. Outside the main thread signals cannot be
    handled; only the file counts there.
    """
    request = StopRequest(on_request)
    in_main_thread = threading.current_thread() is threading.main_thread()
    handled = (signal.SIGINT, signal.SIGTERM) if in_main_thread else ()
    old = {number: signal.signal(number, request.handle) for number in handled}
    try:
        yield request
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
