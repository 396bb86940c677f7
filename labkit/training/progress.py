"""What a person sees of a long task, and how it is stopped.

In a terminal there is a bar. In JupyterLab, VS Code and Colab a line, and for a training a figure,
are updated in place while the cell runs; under papermill and nbval they appear once, at the end.
"""

import base64
import contextlib
import io
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from tqdm import tqdm

from labkit.errors import ParameterError
from labkit.parameters import grouped
from labkit.plotting import curves, style
from labkit.training.run import Run

SECONDS_BETWEEN_UPDATES = 0.5
SECONDS_BETWEEN_FIGURES = 5.0
LARGEST_SHARE = 0.02  # of the time that drawing may take; a slow machine draws less often
WIDTH = 100  # characters of a bar
# Front ends that show a cell's output while it runs set one of these: Jupyter's server, VS Code,
# Colab, Kaggle. papermill, nbval and nbconvert set none and keep the last output only.
FRONT_ENDS = ("JPY_SESSION_NAME", "VSCODE_PID", "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE")

Show = Callable[[str, bool], None]  # gets the line of a task, and whether it is the last one


def in_kernel() -> bool:
    """Whether this code runs in a notebook's cell."""
    with contextlib.suppress(ImportError):
        from IPython import get_ipython

        return getattr(get_ipython(), "kernel", None) is not None
    return False


def watched() -> bool:
    """Whether a front end shows this kernel's cells while they run."""
    return in_kernel() and any(os.environ.get(name) for name in FRONT_ENDS)


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

    def line(self, text: str, last: bool) -> None:
        """Shows a line; where nobody watches, only the last one."""
        if last or watched():
            self.put({"text/plain": text})


def _terminal(text: str, last: bool) -> None:
    sys.stderr.write("\r\033[K" + text + "\n" * last)
    sys.stderr.flush()


class Ticker:
    """Counts finished units; fast enough to be called at every step."""

    def __init__(self, label: str, total: int, unit: str, done: int = 0, cell: Show | None = None):
        options = {"file": io.StringIO(), "ncols": WIDTH}  # it only formats; `_show` prints
        self.bar = tqdm(total=total, unit=unit, desc=label, initial=done, **options)
        self._show: Show | None = _terminal if sys.stderr.isatty() else None
        if in_kernel():
            self._show = cell or Display().line
        self._shown, self._started = 0.0, time.monotonic()
        self.advance(0)

    def advance(self, count: int = 1, **facts: Any) -> None:
        """Adds `count`; `facts` such as `last_return='+3.2'` follow the bar."""
        self.bar.n += count
        now = time.monotonic()
        if self._show and now - self._shown >= SECONDS_BETWEEN_UPDATES:
            self._shown = now
            text = {key.replace("_", " "): str(value) for key, value in facts.items()}
            self.bar.set_postfix(text, refresh=False)
            # A longer line would wrap in a terminal, and each update would leave one behind.
            self.bar.ncols = min(WIDTH, shutil.get_terminal_size().columns - 1)
            self._show(str(self.bar), False)

    def close(self) -> None:
        """Leaves a summary, such as `training: 100 000 it in 13 min 20 s, 125 it/s`."""
        bar, seconds = self.bar, time.monotonic() - self._started
        bar.disable = True
        minutes, rest = divmod(round(seconds), 60)
        spent = f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
        rate = (bar.n - bar.initial) / seconds
        pace = f"{rate:.3g}" if rate < 100 else grouped(round(rate))
        if self._show:
            text = f"{bar.desc}: {grouped(bar.n)} {bar.unit} in {spent}, {pace} {bar.unit}/s"
            self._show(text, True)


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


class Phases:
    """Progress displays one after another, for the phases of a run."""

    def __init__(self) -> None:
        self._ticker: Ticker | None = None

    def __enter__(self) -> "Phases":
        return self

    def __exit__(self, *error: object) -> None:
        if self._ticker:
            self._ticker.close()

    def show(
        self, label: str, total: int, unit: str, done: int, before: int = 0, **facts: Any
    ) -> None:
        """Shows that `done` of `total` are done; a new label ends the previous display.

        `before` of them were done in earlier starts of the run, and do not count as speed.
        """
        if self._ticker is None or self._ticker.bar.desc != label:
            self.__exit__()
            self._ticker = Ticker(label, total, unit, before)
        self.reached(label, done, **facts)

    def reached(self, label: str, done: int, **facts: Any) -> None:
        """Shows the count of a phase, which may have ended, if it is still shown."""
        if self._ticker and self._ticker.bar.desc == label:
            self._ticker.advance(done - self._ticker.bar.n, **facts)


class LivePlot:
    """Shows a training in its cell: a line, and the figure of its metrics.

    A context manager around the training; progress displays call `line` and `aside`.
    """

    def __init__(self, run: Run):
        self._run = run
        self._line, self._figure = Display(), Display()
        self._summary = "training: stopped before its first iteration"
        self._drawn, self._next_drawing = 0, 0.0

    def line(self, text: str, last: bool) -> None:
        """Updates the line, and the figure when it is due; the last line is kept for the end."""
        if last:
            self._summary = text
        self.aside(text, last)

    def aside(self, text: str, last: bool) -> None:
        """Updates both for another task, of which no line stays."""
        if not last and watched():
            self._line.line(text, last)
            if time.monotonic() >= self._next_drawing:
                self._draw()

    def __enter__(self) -> "LivePlot":
        return self

    def __exit__(self, *error: object) -> None:
        if in_kernel():
            self._line.line(self._summary, True)
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

    def __init__(self, on_request: Callable[[], Any] = lambda: None) -> None:
        self._requested = self._announced = False
        self._on_request = on_request

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler: the first signal is a request, the second interrupts at once."""
        if self._requested:
            raise KeyboardInterrupt
        self._requested = True
        self._on_request()

    def __bool__(self) -> bool:
        if self._requested and not self._announced:  # the handler may run where output is hidden
            self._announced = True
            what = "stopping after this iteration; interrupt once more to stop at once"
            print(what, file=sys.stderr)
        return self._requested


@contextlib.contextmanager
def stop_request(on_request: Callable[[], Any] = lambda: None) -> Iterator[StopRequest]:
    """Yields a `StopRequest` that SIGINT and SIGTERM set; restores the old handlers afterwards.

    `on_request` is called once, at the first signal. Only the main thread can handle signals.
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
