"""A kill on purpose, without Ray: what is killed, when, and how often."""

import threading
from types import SimpleNamespace

import pandas as pd
import pytest

from labkit.distributed import fault_injection

NAMES = ["labkit 01 ab learner", "labkit 01 ab rollout worker 1", "labkit 01 ab rollout worker 11"]
OTHERS = ["labkit 02 cd rollout worker 1", "labkit 02 cd evaluator"]  # of another process


@pytest.fixture
def killed(monkeypatch):
    """The kills, as (handle, no_restart); Ray is replaced."""
    calls, once = [], threading.Event()

    def kill(handle, no_restart):
        calls.append((handle, no_restart))
        once.set()

    listed = [{"name": name, "namespace": fault_injection.NAMESPACE} for name in OTHERS + NAMES]
    ray = SimpleNamespace(
        is_initialized=lambda: True,
        util=SimpleNamespace(list_named_actors=lambda all_namespaces: listed),
        get_actor=lambda name, namespace: (name, namespace),
        kill=kill,
    )
    monkeypatch.setattr(fault_injection, "ray", ray)
    monkeypatch.setattr(fault_injection, "prefix_of_job", lambda: "labkit 01 ")
    monkeypatch.setattr(fault_injection, "LOOK_SECONDS", 0.01)
    return SimpleNamespace(calls=calls, once=once)


def run_with(*steps):
    """A run that has logged losses at these gradient steps."""
    losses = [1.0] * len(steps)
    table = pd.DataFrame({"gradient_step": steps, "critic_loss": losses})
    return SimpleNamespace(metrics=lambda: table)


def test_one_actor_is_killed_once_and_may_be_restarted(killed):
    with fault_injection.kill_once(run_with(50, 100), "rollout worker 1") as at:
        assert killed.once.wait(20)
    assert killed.calls == [((NAMES[1], fault_injection.NAMESPACE), False)]
    assert at == [100]


def test_nothing_is_killed_before_there_are_losses_or_after_the_block(killed):
    run = run_with()
    with fault_injection.kill_once(run, "rollout worker 1") as at:
        assert not killed.once.wait(0.1)
    run.metrics = run_with(50).metrics  # losses, but only after the block
    assert not killed.once.wait(0.1)
    assert at == []
    assert killed.calls == []


def test_an_actor_that_does_not_exist_is_not_killed(killed):
    with fault_injection.kill_once(run_with(50), "evaluator") as at:
        assert not killed.once.wait(0.1)
    assert at == []
