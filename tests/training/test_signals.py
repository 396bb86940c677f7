"""The stop button of a notebook: a real kernel, interrupted for real."""

import time
from pathlib import Path

import pandas as pd
import pytest
from jupyter_client.manager import start_new_kernel

TESTS = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
PREPARE = f"""
import sys; sys.path[:0] = {TESTS!r}
import labkit
from labkit.plotting import curves
from labkit.training import components
from test_local import Target
from conftest import SMALL
config = labkit.SACConfig(**{{**SMALL, "env_name": "Target", "num_iterations": 10**6}})
run = labkit.open_run("here", config)
made = components.build(config, Target)
components.warm_up(config, made)
"""
TRAIN = "labkit.train(config, run, made); print('it returned at', len(run.metrics()))"
LOOK = "figure = curves.learning_curve(run.metrics(), published=False); figure"


@pytest.fixture
def kernel(tmp_path):
    manager, client = start_new_kernel(startup_timeout=60, cwd=str(tmp_path))
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def execute(kernel, code, interrupt_when=None):
    """Runs a cell; `interrupt_when()` presses the stop button once. Its outputs, all of them."""
    manager, client = kernel
    asked, found, deadline = client.execute(code), [], time.monotonic() + 120
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
    alive = "alive" if manager.is_alive() else "dead"
    raise AssertionError(f"not idle after two minutes, the kernel is {alive}: {found[-3:]}")


def printed(messages):
    return "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream")


def test_interrupted_the_cell_returns_the_figures_work_and_it_goes_on(kernel, tmp_path):
    metrics = tmp_path / "here" / "metrics.csv"
    execute(kernel, PREPARE)
    lengths = [0]
    for _ in range(2):
        enough = lengths[-1] + 20
        text = printed(
            execute(kernel, TRAIN, lambda n=enough: len(metrics.read_text().splitlines()) > n)
        )
        assert "stopped at gradient step" in text
        assert "it returned at" in text
        lengths.append(len(metrics.read_text().splitlines()))
        kinds = [m["content"].get("data", {}) for m in execute(kernel, LOOK)]
        assert any("image/png" in data for data in kinds)
    assert lengths[2] > lengths[1] > 20
    table = pd.read_csv(metrics)
    steps = table.gradient_step[table.critic_loss.notna()].tolist()
    assert steps == sorted(set(steps)), "a step was logged twice"
