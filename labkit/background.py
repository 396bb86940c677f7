"""One thread that does one thing after another, and that nobody has to wait for."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Background:
    """Like a `ThreadPoolExecutor` of one, but a task that hangs does not keep the process alive.

    A thread that waits inside TensorFlow or Reverb cannot be interrupted; Python's own executors
    would join it when their block ends, and again when the interpreter exits.

    Args:
        name: of the thread, for debuggers.
    """

    def __init__(self, name: str):
        self._tasks: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, function, arguments = task
            try:
                future.set_result(function(*arguments))
            except BaseException as error:
                future.set_exception(error)

    def submit(self, function: Callable, *arguments: Any) -> Future:
        """Runs `function` after what was submitted before; returns its future."""
        future: Future = Future()
        self._tasks.put((future, function, arguments))
        return future

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, *error: Any) -> None:
        self._tasks.put(None)  # the thread ends after its present task
