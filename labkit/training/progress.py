"""Progress of a long task: in a terminal, in a cell, or in the terminal of `labkit run`."""

import contextlib
import io
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from labkit.parameters import grouped
from labkit.training.files import write_atomically

# `labkit run` executes the notebook in a kernel, whose output is a cell, not the terminal: the
# kernel writes its progress to this file, and the command draws the bar.
FILE_VARIABLE = "LABKIT_PROGRESS"
SECONDS_BETWEEN_UPDATES = 0.5
WIDTH = 100  # characters of a bar
# Front ends that show a cell's output while it runs set one of these: Jupyter's server, VS Code,
# Colab, Kaggle. papermill, nbval and nbconvert set none and keep the last output only.
FRONT_ENDS = ("JPY_SESSION_NAME", "VSCODE_PID", "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE")


class Sink:
    """Shows one line and replaces it; the base shows nothing."""

    def show(self, bar: tqdm, facts: dict[str, Any]) -> None:
        """Shows the bar."""

    def end(self, summary: str) -> None:
        """Leaves the summary, one line of text, or nothing."""


class _FileSink(Sink):
    def show(self, bar: tqdm, facts: dict[str, Any]) -> None:
        state = {"label": bar.desc, "done": bar.n, "total": bar.total, "unit": bar.unit}
        self._write(**state, facts=facts)

    def end(self, summary: str) -> None:
        self._write(label=None)

    def _write(self, **state: Any) -> None:
        # If its directory was removed, the training continues without a progress file.
        with contextlib.suppress(OSError):
            write_atomically(Path(os.environ[FILE_VARIABLE]), json.dumps(state))


class _CellSink(Sink):
    """One display that is updated in place, so that the saved notebook keeps one clean line."""

    def __init__(self) -> None:
        self._display = Display()

    def show(self, bar: tqdm, facts: dict[str, Any]) -> None:
        if watched():  # else there is only the summary
            self._display.put({"text/plain": str(bar)})

    def end(self, summary: str) -> None:
        self._display.put({"text/plain": summary})


class Display:
    """An output of the running cell; each `put` replaces the previous one."""

    def __init__(self) -> None:
        self._handle: Any = None

    def put(self, data: dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
        """Shows `data`, by MIME type, in place of the previous output."""
        from IPython.display import display

        options = {"raw": True, "metadata": metadata or {}}
        if self._handle is None:
            self._handle = display(data, display_id=True, **options)
        else:
            self._handle.update(data, **options)


class _TerminalSink(Sink):
    def show(self, bar: tqdm, facts: dict[str, Any]) -> None:
        # A longer line would wrap, and each update would leave one behind.
        bar.ncols = min(WIDTH, shutil.get_terminal_size().columns - 1)
        sys.stderr.write("\r\033[K" + str(bar))
        sys.stderr.flush()

    def end(self, summary: str) -> None:
        sys.stderr.write("\r\033[K" + summary + "\n")


def in_kernel() -> bool:
    """Whether this code runs in a notebook's cell."""
    with contextlib.suppress(ImportError):
        from IPython import get_ipython

        return getattr(get_ipython(), "kernel", None) is not None
    return False


def watched() -> bool:
    """Whether a front end shows this kernel's cells while they run."""
    return in_kernel() and any(os.environ.get(name) for name in FRONT_ENDS)


class Ticker:
    """Counts finished units; fast enough to be called at every step."""

    def __init__(self, label: str, total: int, unit: str, sinks: list[Sink], done: int = 0):
        options = {"file": io.StringIO(), "ncols": WIDTH}  # it only formats; the sinks show it
        self._bar = tqdm(total=total, unit=unit, desc=label, initial=done, **options)
        self._sinks, self._shown, self._started = sinks, 0.0, time.monotonic()

    def advance(self, count: int = 1, **facts: Any) -> None:
        """Adds `count`; `facts` such as `last_return='+3.2'` follow the bar."""
        self._bar.n += count
        now = time.monotonic()
        if now - self._shown >= SECONDS_BETWEEN_UPDATES:
            self._shown = now
            self.refresh(**facts)

    def refresh(self, **facts: Any) -> None:
        """Shows the present state."""
        text = {key.replace("_", " "): str(value) for key, value in facts.items()}
        self._bar.set_postfix(text, refresh=False)
        for sink in self._sinks:
            sink.show(self._bar, text)

    def summary(self) -> str:
        """For example `training: 100 000 it in 13 min 20 s, 125 it/s`."""
        bar, seconds = self._bar, time.monotonic() - self._started
        done = f"{bar.desc}: {grouped(bar.n)} {bar.unit} in"
        if seconds < SECONDS_BETWEEN_UPDATES:  # too short for a rate
            return f"{done} less than {SECONDS_BETWEEN_UPDATES:g} s"
        minutes, rest = divmod(round(seconds), 60)
        spent = f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
        rate = (bar.n - bar.initial) / seconds
        pace = f"{rate:.3g}" if rate < 100 else grouped(round(rate))
        return f"{done} {spent}, {pace} {bar.unit}/s"

    def close(self) -> None:
        """Leaves the summary and ends the bar."""
        for sink in self._sinks:
            sink.end(self.summary())
        self._bar.disable = True


@contextlib.contextmanager
def progress(
    label: str, total: int, unit: str, done: int = 0, cell: Sink | None = None
) -> Iterator[Ticker]:
    """Shows a task's progress: in the cell, the terminal, or the progress file.

    `label` names the task, such as 'training', and `unit` what it counts, such as 'it' or
    'episodes'. There are `total` in all, `done` of them before a resume. In a notebook, `cell`
    shows the progress; None shows a line.
    """
    sinks: list[Sink] = [_FileSink()] if os.environ.get(FILE_VARIABLE) else []
    if in_kernel():
        sinks.append(cell or _CellSink())
    elif sys.stderr.isatty():
        sinks.append(_TerminalSink())
    ticker = Ticker(label, total, unit, sinks, done)
    ticker.refresh()
    try:
        yield ticker
    finally:
        ticker.close()


class Phases:
    """Progress displays one after another, for the phases of a run."""

    def __init__(self) -> None:
        self._stack, self._label, self._done = contextlib.ExitStack(), "", 0
        self._ticker: Any = None

    def __enter__(self) -> "Phases":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def show(
        self, label: str, total: int, unit: str, done: int, before: int = 0, **facts: Any
    ) -> None:
        """Shows that `done` of `total` are done; a new label ends the previous display.

        `before` of them were done in earlier starts of the run, and do not count as speed.
        """
        if label != self._label:
            self._stack.close()
            self._ticker = self._stack.enter_context(progress(label, total, unit, before))
            self._label, self._done = label, before
        self.reached(label, done, **facts)

    def reached(self, label: str, done: int, **facts: Any) -> None:
        """Shows the count of a phase, which may have ended, if it is still shown."""
        if label == self._label:
            self._ticker.advance(done - self._done, **facts)
            self._done = done
