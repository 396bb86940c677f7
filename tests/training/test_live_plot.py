"""The training's cell: redrawn where somebody looks on, one figure and one line everywhere else."""

import base64
import math
import os
import re
import subprocess
import sys

import pandas as pd
import pytest
from jupyter_client.manager import start_new_kernel
from test_signals import PREPARE, execute

from labkit.config import SACConfig
from labkit.plotting import style
from labkit.training import live_plot, progress, run_directory

# Three evaluations (first, between, last), and rows of losses at 10 and 20.
SHORT = PREPARE.replace('"num_iterations": 10**6', '"log_interval": 10')
EAGER = "from labkit.training import live_plot, progress; live_plot.SECONDS_BETWEEN_FIGURES = 0; "
EAGER += "live.LARGEST_SHARE = 1e9; progress.SECONDS_BETWEEN_UPDATES = 0"


@pytest.fixture
def start(tmp_path):
    """`start(**variables)`: a kernel with these environment variables on top."""
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
    """The displays of the training's cell: (message type, display id, data, metadata) each."""
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
    """What the saved notebook keeps: the last of each display, in the order in which they began."""
    return list({name: (data, details) for _, name, data, details in displays}.values())


def check_what_is_kept(displays):
    (line, _), (figure, details) = saved(displays)
    assert re.fullmatch(r"training: 20 it in .* s, .* it/s", line["text/plain"])
    assert base64.b64decode(figure["image/png"]).startswith(b"\x89PNG")
    assert len(figure["image/png"]) < 200_000
    assert "Iterations/s, along gradient steps." in details["image/png"]["alt"]


def test_in_jupyterlab_one_figure_and_one_line_are_replaced_in_place(start):
    displays = train(start(JPY_SESSION_NAME="notebook.ipynb"))
    kinds = [kind for kind, *_ in displays]
    assert kinds.count("display_data") == 2, "one line, one figure: nothing scrolls"
    lines = [data["text/plain"] for _, _, data, _ in displays if "image/png" not in data]
    assert any(re.match(r"training: +\d+%\|", line) for line in lines)
    assert any(line.startswith("evaluation: ") for line in lines)
    figures = [data["image/png"] for _, _, data, _ in displays if "image/png" in data]
    assert len(set(figures)) >= 3, "it is drawn anew as metrics come"
    check_what_is_kept(displays)


def test_under_papermill_and_nbval_they_come_once(start):
    displays = train(start())
    assert [kind for kind, *_ in displays] == ["display_data"] * 2
    check_what_is_kept(displays)


def test_plain_python_shows_nothing(tmp_path):
    code = SHORT.split("made = ")[0] + "\nlabkit.train(config, run, make_env=Target)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) <= 2, done.stdout  # the checkpoints' place; a note


def rows():
    """Two logs with an evaluation of two seconds between them."""
    nothing = {"collect_return": math.nan, "eval_return": math.nan, "eval_returns": ()}
    losses = {"critic_loss": 1.0, "actor_loss": -2.0, "alpha": 0.02}
    return pd.DataFrame([
        {**nothing, "gradient_step": 0, "wall_seconds": 1.0,
         "eval_return": 1.5, "eval_returns": (1.0, 2.0)},
        {**nothing, **losses, "gradient_step": 100, "wall_seconds": 2.0, "collect_return": 0.5},
        {**nothing, "gradient_step": 100, "wall_seconds": 4.0,
         "eval_return": 3.0, "eval_returns": (3.0,)},
        {**nothing, **losses, "gradient_step": 150, "wall_seconds": 5.0, "collect_return": 0.7},
    ])  # fmt: skip


def test_iterations_per_second_leave_evaluations_out():
    assert live_plot.iterations_per_second(rows()) == ([100.0, 150.0], [100.0, 50.0])


def test_the_figure_shows_the_numbers():
    figure = live_plot.training_figure(rows())
    returns, critic, actor, alpha, speed = figure.axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in returns.lines}
    assert lines["evaluation, greedy"] == [[0, 1.5], [100, 3.0]]
    assert lines["collected, with noise"] == [[100, 0.5], [150, 0.7]]
    assert critic.lines[0].get_ydata().tolist() == [1, 1]
    assert actor.lines[0].get_ydata().tolist() == [-2, -2]
    assert alpha.lines[0].get_ydata().tolist() == [0.02, 0.02]
    assert speed.lines[0].get_ydata().tolist() == [100, 50]
    for row in range(1, 4):  # the first seconds of a run
        assert style.png_of(live_plot.training_figure(rows().iloc[:row]))


def test_a_slow_drawing_comes_less_often(tmp_path, monkeypatch):
    import time

    run = run_directory.Run.create(tmp_path, SACConfig())
    run.log(env_step=1, gradient_step=1, wall_seconds=1.0, critic_loss=1.0)
    monkeypatch.setattr(live_plot, "watched", lambda: True)
    monkeypatch.setattr(live_plot.Display, "put", lambda *_: None)
    monkeypatch.setattr(
        live_plot, "training_figure", lambda _: time.sleep(0.3) or style.NotebookFigure()
    )
    view = live_plot.View(run)
    begin = time.monotonic()
    view.show(None, {})
    assert view._next - begin >= 0.3 / live_plot.LARGEST_SHARE
