"""Server processes: real ones, each test with its own unless it only asks."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import reverb
import tensorflow as tf

from labkit.errors import ParameterError
from labkit.replay.server import check_port, free_port
from labkit.teaching import server_process

ROOT = Path(__file__).resolve().parents[2]


def full_table():
    """Everything about it differs from Reverb's defaults."""
    return reverb.Table(
        "described",
        sampler=reverb.selectors.Prioritized(0.8),
        remover=reverb.selectors.MinHeap(),
        max_size=123,
        max_times_sampled=4,
        rate_limiter=reverb.rate_limiters.SampleToInsertRatio(3.0, 3, 4.0),
        signature={"a": tf.TensorSpec([3, 2], tf.float32), "b": tf.TensorSpec([None], tf.uint8)},
    )


def gone(pid: int, seconds: float = 15.0) -> bool:
    """Whether the process ends in time; one that waits to be reaped has ended."""
    for _ in range(round(seconds / 0.05)):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="module")
def running():
    with server_process.start([full_table()]) as process:
        yield process
    assert not process.alive


def test_the_other_process_makes_the_same_table(running):
    assert running.pid != os.getpid()
    there = running.client().server_info(timeout=10)["described"]
    here = full_table().info
    for name in ("max_size", "max_times_sampled", "signature"):
        assert getattr(there, name) == getattr(here, name)
    assert str(there.sampler_options) == str(here.sampler_options)
    assert str(there.remover_options) == str(here.remover_options)
    assert str(there.rate_limiter_info) == str(here.rate_limiter_info)


def test_a_taken_port_is_rejected_by_name_before_a_process_starts(running, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("no process is needed"))
    with pytest.raises(
        ParameterError, match=rf"^`port` must be free: .* listens there, got {running.port}"
    ):
        server_process.start([full_table()], port=running.port)
    assert running.alive


def test_the_command_rejects_a_taken_port_in_one_line(running):
    done = subprocess.run(
        [sys.executable, "-m", "labkit.teaching.serve", "--port", str(running.port)],
        cwd=ROOT,
        input="[]",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("ParameterError: `port` must be free")


def test_reverb_itself_shares_a_taken_port(running):
    """The reason for probing; should this fail one day, probing has become unnecessary."""
    twin = reverb.Server([full_table()], port=running.port)
    assert twin.port == running.port
    twin.stop()


@pytest.mark.parametrize("port", [-1, 65536, 1_000_000])
def test_a_number_that_is_not_a_port_is_rejected(port):
    with pytest.raises(ParameterError, match="`port` must be"):
        server_process.start([full_table()], port=port)


def test_ports_of_any_listener_are_seen():
    with socket.socket(socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(ParameterError):
            check_port(port)
    check_port(port)


@pytest.mark.parametrize("port", [True, 80, 9999.5, "x"])
def test_what_is_no_port_is_rejected(port):
    expected = r"^`port` must be a whole number from 1 024 to 65 535 \(TCP port, or 0 for"
    with pytest.raises(ParameterError, match=expected):
        check_port(port)


def test_a_port_may_be_a_number_of_numpy():
    port = check_port(np.int64(free_port()))
    assert type(port) is int


@pytest.mark.parametrize("port", [-1, 80, 65_536, 70_000])
def test_a_number_that_is_no_port_is_one_line(port):
    with pytest.raises(ParameterError, match=rf"^`port` must be .* from 1 024 .*, got {port}$"):
        check_port(port)
    command = [sys.executable, "-m", "labkit.teaching.serve", "--port", str(port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_sigkill_is_noticed_and_stopping_is_harmless_however_often():
    process = server_process.start([full_table()])
    process.check()
    os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 15
    while process.alive and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(
        server_process.ServerDiedError, match=rf"port {process.port} ended \(SIGKILL\)"
    ):
        process.client()
    process.stop()
    process.stop()
    with pytest.raises(server_process.ServerDiedError, match="was stopped"):
        process.check()


def test_stopping_frees_the_port_for_the_next():
    port = free_port()
    with server_process.start([full_table()], port=port) as process:
        pid = process.pid
    assert gone(pid)
    check_port(port)


def test_the_server_ends_with_its_parent_even_if_that_is_killed():
    program = (
        "import labkit, reverb\n"
        "from labkit.teaching import server_process\n"
        "process = server_process.start([reverb.Table.queue('q', 3)])\n"
        "print(process.pid, flush=True)\n"
        "import time; time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    pid = int(parent.stdout.readline())
    assert Path(f"/proc/{pid}").exists()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(pid)


def test_a_server_that_does_not_answer_in_time_is_ended():
    with pytest.raises(server_process.ServerDiedError, match=r"within 0.01 s"):
        server_process.start([full_table()], limit_seconds=0.01)


def test_tables_from_a_module_serve_a_terminal(tmp_path):
    (tmp_path / "my_tables.py").write_text(
        "import reverb\ndef make():\n    return [reverb.Table.stack('mine', 7)]\n"
    )
    port = free_port()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "labkit.teaching.serve",
            "--port",
            str(port),
            "--tables",
            "my_tables:make",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout.readline() == f"serving on port {port}\n"
    assert reverb.Client(f"localhost:{port}").server_info(timeout=10)["mine"].max_size == 7
    process.terminate()
    assert process.wait(timeout=20) == 0
    process.stdout.close()


@pytest.mark.parametrize("text", ["", "\n"])
def test_without_tables_the_command_says_what_it_needs(text):
    done = subprocess.run(
        [sys.executable, "-m", "labkit.teaching.serve"], input=text, text=True, capture_output=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("ParameterError: `tables` must be MODULE:FUNCTION")
    assert done.stderr.count("\n") == 1
