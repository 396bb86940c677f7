"""Notebook 04: a failure on purpose, and its figures."""

import threading
from types import SimpleNamespace

import books
import numpy as np
import pandas as pd

from labkit.lessons import ray as lesson

# What the source document teaches: the cell that explains it, and the cell that runs it.
CONCEPTS = {
    "ray.init, with a limit of its memory": ("picture-answer", "connect"),
    "tasks, references and ray.get": ("tasks-text", "tasks"),
    "ray.wait": ("wait-text", "wait"),
    "num_gpus and max_calls of the learner": ("gpu-text", "gpu"),
    "the model: actor, critics, targets": ("sac-text", "model"),
    "a gradient step of SAC": ("sync-text", "update"),
    "get_weights and set_weights, with the targets' sync": ("sync-text", "model"),
    "parameter server: push, pull, copies": ("server-text", "sol-2"),
    "its weights in a file": ("server-text", "copy"),
    "replay as an actor": ("replay-text", "sol-3"),
    "rollout: warm-up, pull before an episode, o = o2": ("worker-text", "worker"),
    "a time limit is no termination": ("worker-text", "worker"),
    "training: batches, steps, push": ("learner-text", "learner"),
    "testing the newest weights": ("learner-text", "evaluator"),
    "start of all parts, then ray.wait": ("together-text", "together"),
    "several learners": ("two-text", "two"),
    "LunarLanderContinuous, in one process and in many": ("labkit-text", "on-ray"),
}


def test_every_concept_has_a_cell_that_explains_it_and_one_that_ran():
    cells = {cell.id: cell for cell in books.read("04").cells}
    for explained, ran in CONCEPTS.values():
        assert cells[explained].cell_type == "markdown"
        assert cells[ran].execution_count


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
