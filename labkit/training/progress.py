"""What a person sees of a long task, and how it is stopped.

In a terminal there is a bar. In a notebook a line, and for a training a figure, are updated in
place while the cell runs; the saved notebook has the last state of each.
"""

import base64
import contextlib
import io
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from tqdm import tqdm

from labkit.errors import ParameterError
from labkit.plotting import curves, style
from labkit.training.run import Run

SECONDS_BETWEEN_UPDATES = 0.5
SECONDS_BETWEEN_FIGURES = 5.0
LARGEST_SHARE = 0.02  # of the time that drawing may take; a slow machine draws less often
WIDTH = 100  # characters of a bar

Show = Callable[[str], None]  # gets the line of a task


def in_kernel() -> bool:
    """Whether this code runs in a notebook's cell."""
    with contextlib.suppress(ImportError):
        from IPython import get_ipython

        return getattr(get_ipython(), "kernel", None) is not None
    return False


class Display:
    """An output of the running cell; each `put` replaces the previous one."""

    def __init__(self) -> None:
        self._handle: Any = None

    def put(self, data: dict[str, Any], **metadata: Any) -> None:
        """Shows `data`, by MIME type, in place of the previous output."""
        from IPython.display import display

        if self._handle is None:
            self._handle = display(data, display_id=True, raw=True, metadata=metadata)
        else:
            self._handle.update(data, raw=True, metadata=metadata)

    def line(self, text: str) -> None:
        """Shows a line."""
        self.put({"text/plain": text})


class Ticker:
    """Counts finished units; fast enough to be called at every step."""

    def __init__(self, label: str, total: int, unit: str, done: int = 0, cell: Show | None = None):
        self.label = label
        self._show = (cell or Display().line) if in_kernel() else None
        # In a cell, tqdm only formats. Without a terminal, it prints nothing.
        options: dict[str, Any] = {"disable": None, "dynamic_ncols": True}
        if self._show:
            options = {"file": io.StringIO(), "ascii": False, "ncols": WIDTH}
        seconds = SECONDS_BETWEEN_UPDATES
        self._bar = tqdm(
            total=total, unit=unit, desc=label, initial=done, mininterval=seconds, **options
        )
        self._shown = time.monotonic()

    def advance(self, count: int = 1, **facts: Any) -> None:
        """Adds `count`; `facts` such as `last_return='+3.2'` follow the bar."""
        if facts:
            text = {key.replace("_", " "): str(value) for key, value in facts.items()}
            self._bar.set_postfix(text, refresh=False)
        self._bar.update(count)
        now = time.monotonic()
        if self._show and now - self._shown >= SECONDS_BETWEEN_UPDATES:
            self._shown = now
            self._show(str(self._bar))

    def reached(self, done: int, **facts: Any) -> None:
        """As `advance`, up to `done` in all."""
        self.advance(done - self._bar.n, **facts)

    def close(self) -> None:
        """Leaves the last state of the bar, with the time and the speed."""
        if self._show:
            self._show(str(self._bar))
        self._bar.close()


@contextlib.contextmanager
def progress(
    label: str, total: int, unit: str, done: int = 0, cell: Show | None = None
) -> Iterator[Ticker]:
    """Shows a task's progress in the cell or the terminal.

    `label` names the task, such as 'training', and `unit` what it counts, such as 'it' or
    'episodes'. There are `total` in all, `done` of them before a resume. In a notebook, `cell`
    shows the progress; None shows a line.
    """
    with contextlib.closing(Ticker(label, total, unit, done, cell)) as ticker:
        yield ticker


class Phases(contextlib.ExitStack):
    """Progress displays one after another, for the phases of a run."""

    ticker: Ticker | None = None

    def show(
        self, label: str, total: int, unit: str, done: int, before: int = 0, **facts: Any
    ) -> None:
        """Shows that `done` of `total` are done; a new label ends the previous display.

        `before` of them were done in earlier starts of the run, and do not count as speed.
        """
        if self.ticker is None or self.ticker.label != label:
            self.close()
            self.ticker = self.enter_context(progress(label, total, unit, before))
        self.ticker.reached(done, **facts)


class LivePlot:
    """Shows a training in its cell: a line, and the figure of its metrics.

    A context manager around the training; progress displays call `line` and `aside`.
    """

    def __init__(self, run: Run):
        self._run = run
        self._line, self._figure = Display(), Display()
        self._summary = "training: stopped before its first iteration"
        self._drawn, self._next_drawing = 0, 0.0

    def line(self, text: str) -> None:
        """Updates the line, and the figure when it is due."""
        self._summary = text
        self.aside(text)

    def aside(self, text: str) -> None:
        """Updates both for another task, of which no line stays."""
        self._line.line(text)
        if time.monotonic() >= self._next_drawing:
            self._draw()

    def __enter__(self) -> "LivePlot":
        return self

    def __exit__(self, *error: object) -> None:
        if in_kernel():
            self._line.line(self._summary)
            self._draw()

    def _draw(self) -> None:
        """Replaces the figure if there are more rows than when it was drawn."""
        begin = time.monotonic()
        # A damaged or missing file is left to the training, which names it.
        with contextlib.suppress(OSError, ParameterError):
            if len(rows := self._run.metrics()) > self._drawn:
                figure = curves.training_figure(rows)
                png = base64.b64encode(style.png_of(figure)).decode()
                data = {"image/png": png, "text/plain": "the training so far"}
                self._figure.put(data, **{"image/png": {"alt": style.describe(figure)}})
                self._drawn = len(rows)
        spent = time.monotonic() - begin
        self._next_drawing = begin + max(SECONDS_BETWEEN_FIGURES, spent / LARGEST_SHARE)


class StopRequest:
    """Whether the run was asked to end."""

    def __init__(self) -> None:
        self._requested = self._announced = False

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler: the first signal is a request, the second interrupts at once."""
        if self._requested:
            raise KeyboardInterrupt
        self._requested = True

    def __bool__(self) -> bool:
        if self._requested and not self._announced:  # the handler may run where output is hidden
            self._announced = True
            what = "stopping after this iteration; interrupt once more to stop at once"
            print(what, file=sys.stderr)
        return self._requested


@contextlib.contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Yields a `StopRequest` that SIGINT and SIGTERM set; restores the old handlers afterwards.

    Only the main thread can handle signals.
    """
    request = StopRequest()
    in_main_thread = threading.current_thread() is threading.main_thread()
    handled = (signal.SIGINT, signal.SIGTERM) if in_main_thread else ()
    old = {number: signal.signal(number, request.handle) for number in handled}
    try:
        yield request
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
