"""Waits on real tables that hold back: an under-filled one, full queues, a ratio, no server."""

import threading
import time

import numpy as np
import pytest
import reverb

from labkit.errors import StalledError
from labkit.replay import reverb_replay
from labkit.teaching import rate_limiter
from labkit.teaching.rate_limiter import LimiterState

QUICK = {"notice_seconds": 0.2, "limit_seconds": 0.6}


@pytest.fixture
def client():
    """A server with one table of each kind, new for each test."""
    uniform, fifo = reverb.selectors.Uniform, reverb.selectors.Fifo
    ratio = reverb.rate_limiters.SampleToInsertRatio(3.0, 3, 3.0)
    tables = [
        reverb.Table("two", uniform(), fifo(), 100, reverb.rate_limiters.MinSize(2)),
        reverb.Table("ratio", uniform(), fifo(), 100, ratio),
        reverb.Table.queue("queue", 3),
    ]
    server = reverb_replay.start_server(tables)
    yield reverb.Client(f"localhost:{server.port}")
    server.stop()


def write(client, table, count):
    """A writer with `count` items, not flushed."""
    writer = client.trajectory_writer(1)
    for value in range(count):
        writer.append(np.int64(value))
        writer.create_item(table, 1.0, writer.history[-1:])
    return writer


def test_a_table_below_its_minimum_size_is_named_until_the_time_limit(client, capsys):
    client.insert(np.int64(0), {"two": 1.0})
    begin = time.monotonic()
    with pytest.raises(StalledError) as caught:
        rate_limiter.sample(client, "two", **QUICK)
    assert 0.5 < time.monotonic() - begin < 25
    why = "'two' holds 1 item, its rate limiter requires 2 before it may be sampled"
    assert str(caught.value) == f"gave up waiting to sample after 0.6 s: {why}"
    assert capsys.readouterr().out == f"waiting to sample for 0.2 s: {why}\n"
    assert rate_limiter.limiter_state(client, "two").samples == 0  # no request was left


def test_a_busy_program_prints_the_reason_before_the_error(client, capsys):
    """The time limit may have passed already when it runs again."""
    with pytest.raises(StalledError, match=r"after 0\.1 s"):
        rate_limiter.sample(client, "two", notice_seconds=0.1, limit_seconds=0.1)
    assert capsys.readouterr().out.startswith("waiting to sample for 0.1 s: 'two' holds 0 items")


def test_a_limit_below_the_time_of_the_notice_holds(client):
    begin = time.monotonic()
    with pytest.raises(StalledError, match=r"after 0\.2 s"):
        rate_limiter.wait_for(
            lambda: next(client.sample("two")), client, "two", notice_seconds=9, limit_seconds=0.2
        )
    assert time.monotonic() - begin < 8


def test_the_time_limit_holds_for_a_request_that_another_client_was_faster_with(
    client, monkeypatch, capsys
):
    """The look at the table allowed it, but it is blocked: here because the look was of another."""
    look = rate_limiter.limiter_state
    client.insert(np.int64(0), {"queue": 1.0})
    monkeypatch.setattr(rate_limiter, "limiter_state", lambda client, _: look(client, "queue"))
    begin = time.monotonic()
    with pytest.raises(StalledError, match="gave up waiting to sample"):
        rate_limiter.sample(client, "two", notice_seconds=0.2, limit_seconds=0.6)
    assert 0.5 < time.monotonic() - begin < 20


def test_a_full_queue_is_named_and_its_items_stay_queued(client, capsys):
    writer = write(client, "queue", 4)
    with pytest.raises(StalledError, match="'queue' has counted 3 inserts and 0 samples"):
        rate_limiter.flush(writer, client, "queue", **QUICK)
    assert "1 sample must come first" in capsys.readouterr().out
    assert [s.data[0].item() for s in rate_limiter.sample(client, "queue")] == [0]
    rate_limiter.flush(writer, client, "queue")
    assert [s.data[0].item() for s in rate_limiter.sample(client, "queue", 3)] == [1, 2, 3]
    writer.close()


def test_a_wait_that_ends_says_nothing(client, capsys):
    client.insert(np.int64(7), {"two": 1.0})
    timer = threading.Timer(0.3, lambda: client.insert(np.int64(7), {"two": 1.0}))
    timer.start()
    [sample] = rate_limiter.sample(client, "two", notice_seconds=5, limit_seconds=10)
    assert sample.data[0].item() == 7
    assert capsys.readouterr().out == ""
    timer.join()


def test_a_ratio_holds_both_sides_and_says_what_must_come_first(client):
    writer = write(client, "ratio", 5)
    with pytest.raises(StalledError, match="above 12: 3 samples must come first"):
        rate_limiter.flush(writer, client, "ratio", **QUICK)
    rate_limiter.sample(client, "ratio", 3)
    rate_limiter.flush(writer, client, "ratio")
    rate_limiter.sample(client, "ratio", 6)
    with pytest.raises(StalledError, match="below 6: 1 insert must come first"):
        rate_limiter.sample(client, "ratio", **QUICK)
    writer.close()


def test_any_blocking_call_can_be_waited_for(client, capsys):
    with pytest.raises(StalledError, match="'two' holds 0 items"):
        rate_limiter.wait_for(lambda: next(client.sample("two")), client, "two", **QUICK)
    assert "waiting to sample" in capsys.readouterr().out
    assert rate_limiter.wait_for(lambda: 5, client, "two") == 5
    with pytest.raises(ZeroDivisionError):
        rate_limiter.wait_for(lambda: 1 / 0, client, "two")


def test_what_no_limiter_explains_is_said(client):
    for _ in range(2):
        client.insert(np.int64(0), {"two": 1.0})
    assert "would allow the next sample" in rate_limiter.diagnose(client, "two", "sample")
    assert rate_limiter.diagnose(client, "three", "sample").endswith("'queue', 'ratio', 'two'")


def test_no_server_is_said_soon():
    nobody = reverb.Client("localhost:1")
    begin = time.monotonic()
    with pytest.raises(StalledError, match="no Reverb server answers at localhost:1"):
        rate_limiter.sample(nobody, "two", limit_seconds=30)
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize(("inserts", "samples"), [(2, 0), (3, 0), (3, 2), (3, 3), (5, 0), (5, 9)])
def test_the_diagnosis_agrees_with_the_formula(inserts, samples):
    """The rule of reverb/cc/rate_limiter.cc, for a table from which nothing was removed."""
    limiter = LimiterState("t", inserts, 100, inserts, samples, 3.0, 6.0, 12.0, 3)
    may_sample = inserts >= 3 and 3 * inserts - samples - 1 >= 6
    may_insert = inserts + 1 <= 3 or 3 * (inserts + 1) - samples <= 12
    assert bool(rate_limiter.blocks_sample(limiter)) != may_sample
    assert bool(rate_limiter.blocks_insert(limiter)) != may_insert
