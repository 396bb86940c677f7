"""What a person sees of a training, and the stop button: in a real kernel, a terminal, a script."""

import base64
import io
import re
import time
from pathlib import Path

import pytest
from jupyter_client.manager import start_new_kernel

from labkit.training import progress
from labkit.training.records import read_metrics

TESTS = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
PREPARE = f"""
import sys; sys.path[:0] = {TESTS!r}
import labkit
from labkit.plotting import curves
from labkit.training import progress
from test_local import Target
from small import SMALL
progress.SECONDS_BETWEEN_FIGURES = progress.SECONDS_BETWEEN_UPDATES = 0
progress.LARGEST_SHARE = 1e9
config = labkit.SACConfig(**{{**SMALL, "env_name": "Target", "num_iterations": 10**6}})
run = labkit.open_run("", config)
"""
SHORT = PREPARE.replace('"num_iterations": 10**6', '"log_interval": 10')


@pytest.fixture
def kernel(tmp_path):
    manager, client = start_new_kernel(60, cwd=str(tmp_path))
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def execute(kernel, code, interrupt_when=None):
    """Runs a cell; `interrupt_when()` presses the stop button once. Its outputs, all of them."""
    manager, client = kernel
    asked, found, deadline = client.execute(code), [], time.monotonic() + 200
    while time.monotonic() < deadline:
        if interrupt_when and interrupt_when():
            manager.interrupt_kernel()
            interrupt_when = None
        if not client.iopub_channel.msg_ready():
            time.sleep(0.05)
            continue
        message = client.get_iopub_msg(timeout=1)
        if message["parent_header"].get("msg_id") != asked:
            continue
        found.append(message)
        if message["content"].get("execution_state") == "idle":
            assert all(m["msg_type"] != "error" for m in found), found
            return found
    raise AssertionError(f"not idle in time, alive: {manager.is_alive()}: {found[-3:]}")


def printed(messages):
    return "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream")


def displays(kernel):
    """Displays of the training's cell, each (message type, display id, data, metadata)."""
    execute(kernel, SHORT)
    messages = execute(kernel, "labkit.train(config, run, Target);")
    shown = [m for m in messages if m["msg_type"] in ("display_data", "update_display_data")]
    parts = [(m["msg_type"], m["content"]) for m in shown]
    return [(kind, c["transient"]["display_id"], c["data"], c["metadata"]) for kind, c in parts]


@pytest.mark.thorough
def test_one_figure_and_one_line_are_replaced_in_place(kernel):
    """JupyterLab shows each state; papermill and the saved notebook keep the last one."""
    shown = displays(kernel)
    kinds = [kind for kind, *_ in shown]
    assert kinds.count("display_data") == 3, "the warm-up, the training, one figure"
    lines = [data["text/plain"] for _, _, data, _ in shown if "image/png" not in data]
    assert any(line.startswith("evaluation: ") for line in lines)
    figures = [data["image/png"] for _, _, data, _ in shown if "image/png" in data]
    assert len(set(figures)) >= 3, "it is redrawn when metrics are added"
    _, (line, _), (figure, details) = {name: (d, m) for _, name, d, m in shown}.values()
    assert re.match(r"training: 100%\|.*\| 20/20 \[.* it(/s)?, last return=", line["text/plain"])
    assert base64.b64decode(figure["image/png"]).startswith(b"\x89PNG")
    assert len(figure["image/png"]) < 200_000
    assert "along gradient steps." in details["image/png"]["alt"]


@pytest.mark.thorough
def test_interrupted_the_cell_returns_and_run_all_resumes(kernel, tmp_path):
    metrics = tmp_path / "runs" / "0001" / "metrics.csv"
    train = "labkit.train(config, run, Target); print('it returned at', len(run.metrics()))"
    lengths = [0]
    for _ in range(2):
        text = printed(execute(kernel, PREPARE))
        assert ("runs/0001 is an unfinished run" in text) == (len(lengths) > 1)
        enough = lengths[-1] + 20
        found = execute(kernel, train, lambda n=enough: len(metrics.read_text().split()) > n)
        assert "stopped at gradient step" in printed(found)
        assert "it returned at" in printed(found)
        lengths.append(len(read_metrics(metrics.parent)))
    assert lengths[2] > lengths[1] > 5
    table = read_metrics(metrics.parent)
    steps = table.gradient_step[table.critic_loss.notna()].tolist()
    assert steps == sorted(set(steps)), "a step was logged twice"


def test_silent_without_a_terminal(capfd):
    with progress.progress("work", 3, "it") as ticker:
        ticker.advance(3, last_return="+1")
    assert capfd.readouterr() == ("", "")


def test_a_terminal_has_one_bar(monkeypatch):
    written = io.StringIO()
    written.isatty = lambda: True
    monkeypatch.setattr(progress.sys, "stderr", written)
    with progress.progress("training", 10_000, "it") as ticker:
        for _ in range(10_000):
            ticker.advance(last_return="+12.3")
    states = written.getvalue().split("\r")
    assert 2 <= len(states) < 100, "it is fast enough to be called at every step"
    assert re.match(r"training: 100%.*10000/10000 .*last return=\+12\.3\]\n", states[-1])
