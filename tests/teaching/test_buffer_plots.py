"""The figures of notebook 02 show the data that they are given."""

from collections import Counter

import numpy as np

from labkit.teaching import buffer_plots
from labkit.teaching.buffer_benchmark import Measurement


def test_windows_figure_draws_every_slot_and_window():
    counts = Counter({(5, 6): 100, (6, 7): 90, (7, 8): 110})
    rows = np.array([[8, 5, 6, 7]])
    figure = buffer_plots.windows([buffer_plots.BufferWindows("ring", rows, 1, 4, counts)])
    slots, bars = figure.axes
    assert len(slots.patches) == 4 + 3
    heights = [patch.get_height() for patch in bars.patches[:3]]
    assert heights == [100, 90, 110]
    colors = [patch.get_facecolor() for patch in bars.patches[:3]]
    assert colors[0] == colors[1] != colors[2]  # 7→8 joins two episodes
    assert {"5", "6", "7", "8", "next write"} <= {text.get_text() for text in slots.texts}
    png, metadata = figure._repr_png_()
    assert len(png) > 10_000
    assert metadata["alt"] == "Figure. Ring. Shows times drawn."


def test_speeds_figure_shows_the_numbers():
    measured = {
        "one": Measurement(17_000.0, 2.0e5, 48.0, 0.153),
        "two": Measurement(900.0, 1.0e4, 0.0, 1.0),
    }
    figure = buffer_plots.speeds(measured)
    dots = [axes.lines[0].get_xdata().tolist() for axes in figure.axes]
    assert dots[:2] == [[17_000.0, 900.0], [2.0e5, 1.0e4]]
    texts = [[text.get_text() for text in axes.texts] for axes in figure.axes]
    assert texts == [["17 000", "900"], ["200 000", "10 000"], ["48", "0"], ["0.15", "1"]]
