"""Notebook 04: a failure on purpose, and its figures."""

import threading
from types import SimpleNamespace

import numpy as np
import pandas as pd

from labkit.lessons import ray as lesson


def test_an_actor_is_killed_once_after_the_first_losses(monkeypatch):
    calls, once = [], threading.Event()
    names = ["1a learner", "2b rollout worker 1", "3c rollout worker 11"]
    ray = SimpleNamespace(
        is_initialized=lambda: True,
        util=SimpleNamespace(list_named_actors=lambda: names),
        get_actor=lambda name: name,
        kill=lambda name, no_restart: (calls.append((name, no_restart)), once.set()),
    )
    monkeypatch.setattr(lesson, "ray", ray)
    table = pd.DataFrame({"gradient_step": [0, 50, 100]})
    run = SimpleNamespace(metrics=lambda: table[:1])
    with lesson.kill_once(run, "rollout worker 1"):
        assert not once.wait(0.3), "no losses yet"
        run.metrics = lambda: table
        assert once.wait(20)
    assert calls == [("2b rollout worker 1", False)]


def test_figures():
    seconds = np.arange(9.0)
    arrived = {"worker 0": 100 * seconds, "worker 1": 50 * np.minimum(seconds, 4)}
    figure = lesson.throughput(pd.DataFrame(arrived, index=seconds), {"killed": 4.0})
    assert figure.axes[0].lines[1].get_ydata().tolist() == [50, 50, 50, 25, 0, 0, 0]
    assert "replay" in {text.get_text() for text in lesson.processes().axes[0].texts}
