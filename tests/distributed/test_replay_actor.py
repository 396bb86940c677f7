"""The actor that hosts the replay table: a real Reverb server, in this process and without Ray."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

import labkit
from labkit.distributed import replay_actor
from labkit.errors import StalledError
from labkit.replay.reverb_replay import ReverbReplay
from labkit.replay.server import free_port
from labkit.replay.transitions import Layout, Transition
from labkit.training import checkpoint

LAYOUT = Layout(2, 1)


def save_checkpoint(folder, step: int, rows: int) -> str:
    """A checkpoint whose table has so many rows; returns its name."""
    table = ReverbReplay(LAYOUT, 100, folder.with_name(f"table-{step}"))
    for t in range(rows):
        table.write(Transition([t, t], [t], t, 1, [t, t]))
    saved = checkpoint.save(folder, step, [np.ones(1)], {}, table)
    table.close()
    return saved.name


@pytest.fixture
def actor(tmp_path):
    """An actor that is not running yet."""
    config = labkit.SACConfig(replay_buffer_capacity=100, batch_size=32, recent_transitions=0)
    context = SimpleNamespace(
        config=config,
        checkpoints=tmp_path / "checkpoints",
        server_address=f"localhost:{free_port()}",
    )
    made = replay_actor.ReplayActor(context, LAYOUT)
    yield made
    if made._table is not None:
        made._table.close()


def test_the_table_is_that_of_the_checkpoint_that_the_learner_resumes(actor):
    """The learner may complete a checkpoint after its successor's table was loaded."""
    folder = actor._context.checkpoints
    first = save_checkpoint(folder, 100, rows=10)
    threading.Thread(target=actor.run, daemon=True).start()
    start = actor.attach(first)
    assert actor.status()["inserts"] == 10
    second = save_checkpoint(folder, 200, rows=20)
    restore, ready = actor._table.restore, []
    actor._table.restore = lambda path: (ready.append(actor._ready.is_set()), restore(path))
    assert actor.attach(second) == start, "the same process"
    assert (actor.status()["inserts"], actor.status()["restored"]) == (20, 20)
    assert ready == [False], "its server does not answer while the table is loaded"

    # From its first snapshot on, the table belongs to whatever is the newest checkpoint.
    actor._table.write(Transition([0, 0], [0], 0, 1, [0, 0]))
    assert actor.save(str(folder / "partial"), start)
    actor.attach(second)
    assert actor.status()["inserts"] == 21
    assert not actor.save(str(folder / "other"), "of another start")


def test_the_learner_waits_for_a_table_that_is_being_loaded(actor, monkeypatch):
    monkeypatch.setattr(replay_actor, "DISK_SECONDS", 0.2)
    monkeypatch.setattr(replay_actor, "START_SECONDS", 0.2)
    assert set(actor.status()) == {"process", "cpu_seconds"}
    with pytest.raises(StalledError, match=r"^the replay table was not loaded within 0\.2 s: does"):
        actor.attach("")


def test_a_second_snapshot_replaces_one_that_is_still_being_written(actor, tmp_path):
    """A learner that was killed leaves its call; its successor asks for a snapshot of the same."""
    threading.Thread(target=actor.run, daemon=True).start()
    start = actor.attach("")
    for t in range(7):
        actor._table.write(Transition([t, t], [t], t, 1, [t, t]))
    actor._table.flush()
    save, entered, go_on = actor._table.save, threading.Event(), threading.Event()

    def slow(target):
        entered.set()
        go_on.wait(60)
        save(target)

    actor._table.save = slow
    target = str(tmp_path / "snapshot")
    first, second = (threading.Thread(target=actor.save, args=(target, start)) for _ in range(2))
    first.start()
    assert entered.wait(60)
    actor._table.save = save
    second.start()
    second.join(0.5)
    assert second.is_alive(), "it waits for the first one"
    go_on.set()
    first.join(60)
    second.join(60)
    again = ReverbReplay(LAYOUT, 100, tmp_path / "again")
    again.restore(tmp_path / "snapshot")
    assert again.size() == 7
    again.close()
