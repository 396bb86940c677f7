"""Notebook 01: a Reverb server as a process of its own, and waits that end and say why."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import reverb

from labkit.errors import ParameterError, StalledError
from labkit.replay import reverb_replay
from labkit.replay.server import check_port, free_port
from labkit.teaching import rate_limiter, server_process
from labkit.teaching.rate_limiter import LimiterState

QUICK = {"notice_seconds": 0.2, "limit_seconds": 0.6}


def table():
    """It differs from Reverb's defaults."""
    sampler, remover = reverb.selectors.Prioritized(0.8), reverb.selectors.MinHeap()
    limiter = reverb.rate_limiters.SampleToInsertRatio(3.0, 3, 4.0)
    return reverb.Table("described", sampler, remover, 123, limiter, max_times_sampled=4)


def test_the_process_serves_the_same_table_until_it_is_stopped():
    with server_process.start([table()]) as process:
        assert process.pid != os.getpid()
        there, here = process.client().server_info(timeout=10)["described"], table().info
        assert (there.max_size, there.max_times_sampled) == (123, 4)
        assert str(there.sampler_options) == str(here.sampler_options)
        assert str(there.rate_limiter_info) == str(here.rate_limiter_info)
        with pytest.raises(ParameterError, match=r"^`port` must be free: .* listens there, got"):
            server_process.start([table()], port=process.port)
    assert not process.alive
    check_port(process.port)


def test_a_killed_server_is_named():
    process = server_process.start([table()])
    os.kill(process.pid, signal.SIGKILL)
    while process.alive:
        time.sleep(0.01)
    with pytest.raises(server_process.ServerDiedError, match=r"ended \(SIGKILL\)"):
        process.client()
    process.stop()


def test_the_server_ends_with_its_parent_even_if_that_is_killed():
    program = (
        "import labkit, reverb, time\nfrom labkit.teaching import server_process\n"
        "process = server_process.start([reverb.Table.queue('q', 3)])\n"
        "print(process.pid, flush=True)\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    stat = Path(f"/proc/{int(parent.stdout.readline())}/stat")
    assert stat.exists()
    parent.kill()
    parent.communicate()
    for _ in range(300):
        if not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("it still runs")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--port", "80"], "ParameterError: `port` must be "),
        ([], "ParameterError: `tables` must be MODULE:FUNCTION"),
    ],
)
def test_a_mistake_in_the_command_is_one_line(arguments, line):
    command = [sys.executable, "-m", "labkit.teaching.serve", *arguments]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1


def test_a_module_with_tables_is_served(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import reverb\ndef make():\n    return [reverb.Table.stack('mine', 7)]\n"
    )
    port = free_port()
    command = [sys.executable, "-m", "labkit.teaching.serve", "--tables", "mine:make"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [*command, "--port", str(port)], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == f"serving on port {port}\n"
    assert reverb.Client(f"localhost:{port}").server_info(timeout=10)["mine"].max_size == 7
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 0


# --- waits


@pytest.fixture
def client():
    """A server with one table of each kind."""
    uniform, fifo = reverb.selectors.Uniform, reverb.selectors.Fifo
    two = reverb.Table("two", uniform(), fifo(), 100, reverb.rate_limiters.MinSize(2))
    server = reverb_replay.start_server([two, reverb.Table.queue("queue", 3)])
    yield reverb.Client(f"localhost:{server.port}")
    server.stop()


def test_a_table_below_its_minimum_size_is_named_until_the_time_limit(client, capsys):
    client.insert(np.int64(0), {"two": 1.0})
    with pytest.raises(StalledError) as caught:
        rate_limiter.sample(client, "two", **QUICK)
    why = "'two' holds 1 item, its rate limiter requires 2 before it may be sampled"
    assert str(caught.value) == f"gave up waiting to sample after 0.6 s: {why}"
    assert capsys.readouterr().out == f"waiting to sample for 0.2 s: {why}\n"
    client.insert(np.int64(0), {"two": 1.0})
    assert len(rate_limiter.sample(client, "two", **QUICK)) == 1


def test_a_full_queue_is_named_and_its_items_stay_queued(client, capsys):
    with client.trajectory_writer(1) as writer:
        for value in range(4):
            writer.append(np.int64(value))
            writer.create_item("queue", 1.0, writer.history[-1:])
        with pytest.raises(StalledError, match="'queue' has counted 3 inserts and 0 samples"):
            rate_limiter.flush(writer, client, "queue", **QUICK)
        assert "1 sample must come first" in capsys.readouterr().out
        assert [s.data[0].item() for s in rate_limiter.sample(client, "queue", 3)] == [0, 1, 2]


def test_no_server_is_said_soon():
    with pytest.raises(
        StalledError, match="no Reverb server with a table 'two' answers at localhost:1"
    ):
        rate_limiter.sample(reverb.Client("localhost:1"), "two", limit_seconds=30)


@pytest.mark.parametrize(("inserts", "samples"), [(2, 0), (3, 0), (3, 2), (3, 3), (5, 0), (5, 9)])
def test_the_diagnosis_agrees_with_the_formula(inserts, samples):
    """The rule of reverb/cc/rate_limiter.cc, for a table from which nothing was removed."""
    limiter = LimiterState("t", inserts, 100, inserts, samples, 3.0, 6.0, 12.0, 3)
    may_sample = inserts >= 3 and 3 * inserts - samples - 1 >= 6
    may_insert = inserts + 1 <= 3 or 3 * (inserts + 1) - samples <= 12
    assert bool(rate_limiter.blocks_sample(limiter)) != may_sample
    assert bool(rate_limiter.blocks_insert(limiter)) != may_insert
