"""Shows a training while it runs: one figure and one progress line, updated in place.

In JupyterLab, VS Code and Colab both are updated while the cell runs. Under papermill and nbval
they appear once, at the end. In plain Python neither appears.
"""

import base64
import contextlib
import time

from tqdm import tqdm

from labkit.errors import ParameterError
from labkit.plotting import run_plots, style
from labkit.training import run_directory
from labkit.training.progress import Display, Sink, in_kernel, watched

SECONDS_BETWEEN_FIGURES = 5.0
LARGEST_SHARE = 0.02  # of the time that drawing may take; a slow machine draws less often


class LivePlot(Sink):
    """Draws a run's `metrics.csv` during the training, and leaves the final figure and summary.

    A context manager around the training; the progress display calls `show` and `end`.
    """

    def __init__(self, run: run_directory.Run):
        self._run = run
        self._line, self._figure = Display(), Display()
        self._summary = "training: stopped before its first iteration"
        self._drawn_bytes, self._next_drawing = 0, 0.0
        self.aside: Sink = _EvaluationLine(self)

    def show(self, bar: tqdm, facts: dict[str, str]) -> None:
        """Updates the line, and the figure when it is due; called at most twice a second."""
        if watched():
            self._line.put({"text/plain": str(bar)})
            if time.monotonic() >= self._next_drawing:
                self._draw()

    def end(self, summary: str) -> None:
        """Stores the line that the cell shows at the end."""
        self._summary = summary

    def __enter__(self) -> "LivePlot":
        return self

    def __exit__(self, *error: object) -> None:
        if in_kernel():
            self._line.put({"text/plain": self._summary})
            self._draw()

    def _draw(self) -> None:
        """Replaces the figure if the metrics have grown since it was drawn.

        A `metrics.csv` that is missing or damaged is left to the training, which repairs it or
        says what is wrong.
        """
        begin = time.monotonic()
        with contextlib.suppress(OSError, ParameterError):
            size = self._run.metrics_bytes()
            if size != self._drawn_bytes and len(metrics := self._run.metrics()):
                figure = run_plots.training_figure(metrics)
                png = base64.b64encode(style.png_of(figure)).decode()
                alt = {"image/png": {"alt": style.describe(figure)}}
                self._figure.put({"image/png": png, "text/plain": "the training so far"}, alt)
                self._drawn_bytes = size
        spent = time.monotonic() - begin
        self._next_drawing = begin + max(SECONDS_BETWEEN_FIGURES, spent / LARGEST_SHARE)


class _EvaluationLine(Sink):
    """Shows the progress of an evaluation on the training's line; its summary is not kept."""

    def __init__(self, plot: LivePlot):
        self._plot = plot

    def show(self, bar: tqdm, facts: dict[str, str]) -> None:
        self._plot.show(bar, facts)
