"""The output of the training's cell: live in a front end, drawn once under papermill and nbval."""

import base64
import os
import re
import subprocess
import sys

import pytest
from jupyter_client.manager import start_new_kernel
from test_signals import PREPARE, execute

from labkit.config import SACConfig
from labkit.plotting import curves, style
from labkit.training import live_plot, progress
from labkit.training.run import Run

# Three evaluations (first, interim, final), and rows of losses at 10 and 20.
SHORT = PREPARE.replace('"num_iterations": 10**6', '"log_interval": 10')
EAGER = "from labkit.training import live_plot, progress; live_plot.SECONDS_BETWEEN_FIGURES = 0; "
EAGER += "live_plot.LARGEST_SHARE = 1e9; progress.SECONDS_BETWEEN_UPDATES = 0"


@pytest.fixture
def start(tmp_path):
    """`start(**variables)`: a kernel with these additional environment variables."""
    started = []

    def begin(**variables):
        clean = {k: v for k, v in os.environ.items() if k not in progress.FRONT_ENDS}
        kernel = start_new_kernel(60, cwd=str(tmp_path), env={**clean, **variables})
        started.append(kernel)
        return kernel

    yield begin
    for manager, client in started:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def train(kernel):
    """Displays of the training's cell, each (message type, display id, data, metadata)."""
    execute(kernel, SHORT)
    execute(kernel, EAGER)
    messages = execute(kernel, "labkit.train(config, run, made);")
    shown = [m for m in messages if m["msg_type"] in ("display_data", "update_display_data")]
    return [
        (m["msg_type"], m["content"]["transient"]["display_id"], m["content"]["data"],
         m["content"]["metadata"])
        for m in shown
    ]  # fmt: skip


def saved(displays):
    """The outputs in the saved notebook: the last state of each display, in order of creation."""
    return list({name: (data, details) for _, name, data, details in displays}.values())


def check_saved_outputs(displays):
    (line, _), (figure, details) = saved(displays)
    assert re.fullmatch(r"training: 20 it in .* s(, .* it/s)?", line["text/plain"])
    assert base64.b64decode(figure["image/png"]).startswith(b"\x89PNG")
    assert len(figure["image/png"]) < 200_000
    assert "Gradient steps/s, along gradient steps." in details["image/png"]["alt"]


def test_in_jupyterlab_one_figure_and_one_line_are_replaced_in_place(start):
    displays = train(start(JPY_SESSION_NAME="notebook.ipynb"))
    kinds = [kind for kind, *_ in displays]
    assert kinds.count("display_data") == 2, "one line, one figure: nothing scrolls"
    lines = [data["text/plain"] for _, _, data, _ in displays if "image/png" not in data]
    assert any(re.match(r"training: +\d+%\|", line) for line in lines)
    assert any(line.startswith("evaluation: ") for line in lines)
    figures = [data["image/png"] for _, _, data, _ in displays if "image/png" in data]
    assert len(set(figures)) >= 3, "it is redrawn when metrics are added"
    check_saved_outputs(displays)


def test_under_papermill_and_nbval_both_appear_once(start):
    displays = train(start())
    assert [kind for kind, *_ in displays] == ["display_data"] * 2
    check_saved_outputs(displays)


def test_plain_python_shows_nothing(tmp_path):
    code = SHORT.split("made = ")[0] + "\nlabkit.train(config, run, make_env=Target)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) <= 2, (
        done.stdout
    )  # the location of the checkpoints; a note


def test_slow_drawing_is_repeated_less_often(tmp_path, monkeypatch):
    import time

    run = Run.create(tmp_path, SACConfig())
    run.log(env_step=1, gradient_step=1, wall_seconds=1.0, critic_loss=1.0)
    monkeypatch.setattr(live_plot, "watched", lambda: True)
    monkeypatch.setattr(live_plot.Display, "put", lambda *_: None)
    monkeypatch.setattr(
        curves, "training_figure", lambda _: time.sleep(0.3) or style.NotebookFigure()
    )
    plot = live_plot.LivePlot(run)
    begin = time.monotonic()
    plot.show(None, {})
    assert plot._next_drawing - begin >= 0.3 / live_plot.LARGEST_SHARE


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_text("x")])
def test_lost_or_damaged_metrics_are_left_to_the_training(tmp_path, monkeypatch, damage):
    run = Run.create(tmp_path, SACConfig())
    run.log(env_step=1, gradient_step=1, wall_seconds=1.0, critic_loss=1.0)
    damage(tmp_path / "metrics.csv")
    shown = []
    monkeypatch.setattr(live_plot, "watched", lambda: True)
    monkeypatch.setattr(live_plot, "in_kernel", lambda: True)
    monkeypatch.setattr(live_plot.Display, "put", lambda _, data, *more: shown.extend(data))
    with live_plot.LivePlot(run) as plot:
        plot.show(None, {})
    assert set(shown) == {"text/plain"}, "there is nothing to draw"
