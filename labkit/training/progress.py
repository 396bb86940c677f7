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
import uuid
from collections.abc import Callable
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
    shell = "IPython" in sys.modules and sys.modules["IPython"].get_ipython()
    return getattr(shell, "kernel", None) is not None


class Display:
    """An output of the running cell; each `put` replaces the previous one."""

    def __init__(self) -> None:
        self._id, self._shown = uuid.uuid4().hex, False

    def put(self, data: dict[str, Any], **metadata: Any) -> None:
        """Shows `data`, by MIME type, in place of the previous output."""
        from IPython.display import display

        display(data, raw=True, metadata=metadata, display_id=self._id, update=self._shown)
        self._shown = True

    def line(self, text: str) -> None:
        """Shows a line."""
        self.put({"text/plain": text})


class progress(tqdm):
    """Shows a task's progress in the cell or the terminal, inside a `with` statement.

    `label` names the task, such as 'training', and `unit` what it counts, such as 'it' or
    'episodes'. There are `total` in all, `done` of them before a resume. In a notebook, `cell`
    shows the progress; None shows a line.
    """

    def __init__(self, label: str, total: int, unit: str, done: int = 0, cell: Show | None = None):
        self.label = label
        self._show = (cell or Display().line) if in_kernel() else None
        # In a cell, tqdm only formats. Without a terminal, it prints nothing.
        options: dict[str, Any] = {"disable": None, "dynamic_ncols": True}
        if self._show:
            options = {"file": io.StringIO(), "ascii": False, "ncols": WIDTH}
        options |= {"mininterval": SECONDS_BETWEEN_UPDATES, "miniters": 0}
        super().__init__(total=total, unit=f" {unit}", desc=label, initial=done, **options)

    def display(self, *arguments: Any, **options: Any) -> None:
        """Redraws the bar; tqdm calls it at the start, when an update is due, and at the end."""
        if self._show:
            self._show(str(self))
        else:
            super().display(*arguments, **options)

    def advance(self, count: int = 1, **facts: Any) -> None:
        """Adds `count`; `facts` such as `last_return='+3'` follow the bar."""
        if facts:
            text = {key.replace("_", " "): str(value) for key, value in facts.items()}
            self.set_postfix(text, refresh=False)
        self.update(count)


class Phases(contextlib.ExitStack):
    """Progress displays one after another, for the phases of a run."""

    bar: Any = None

    def show(
        self, label: str, total: int, unit: str, done: int, before: int = 0, **facts: Any
    ) -> None:
        """Shows that `done` of `total` are done; a new label ends the previous display.

        `before` of them were done in earlier starts of the run, and do not count as speed.
        """
        if self.bar is None or self.bar.label != label:
            self.close()
            self.bar = self.enter_context(progress(label, total, unit, before))
        self.bar.advance(done - self.bar.n, **facts)


class LivePlot(contextlib.AbstractContextManager["LivePlot"]):
    """Shows a training in its cell: a line, which its progress displays update, and a figure."""

    def __init__(self, run: Run):
        self._run = run
        self._line, self._figure = Display(), Display()
        self._summary = "training: stopped before its first iteration"
        self._drawn, self._next_drawing = 0, 0.0

    def line(self, text: str) -> None:
        """Updates the line, and the figure when it is due; the training's own line stays."""
        self._summary = text if text.startswith("training") else self._summary
        self._line.line(text)
        if time.monotonic() >= self._next_drawing:
            self._draw()

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


class StoppedError(Exception):
    """What was being done was asked to end."""


class StopRequest:
    """Whether the run was asked to end: by SIGINT or SIGTERM, inside its `with` statement.

    Only the main thread can handle signals. The old handlers are restored at the end.
    """

    def __init__(self) -> None:
        self._requested = self._announced = False

    def __enter__(self) -> "StopRequest":
        in_main_thread = threading.current_thread() is threading.main_thread()
        handled = (signal.SIGINT, signal.SIGTERM) if in_main_thread else ()
        self._old = {number: signal.signal(number, self.handle) for number in handled}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

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

    def check(self) -> None:
        """Raises a StoppedError if there was a request."""
        if self:
            raise StoppedError
