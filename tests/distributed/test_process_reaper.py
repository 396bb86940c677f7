"""Nothing outlives its owner: real processes, ended and killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ray_processes import wait_until

OWNER = """
import subprocess, sys, time
from labkit.distributed.process_reaper import reaper

folder = sys.argv[1]
with reaper(folder):
    log = open(folder + "/worker.log", "w")
    worker = subprocess.Popen(["sleep", "100"], stdout=log)
    beside = subprocess.Popen(["sleep", "101"], stdout=subprocess.DEVNULL)
    print(worker.pid, beside.pid, flush=True)
    sys.stdin.read()
print("ended", flush=True)
time.sleep(100)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def owner(tmp_path):
    """A process with a worker that logs into a folder, and one that does not: all three."""
    folder = tmp_path / "ray"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    worker, beside = map(int, process.stdout.readline().split())
    yield process, folder, worker, beside
    process.kill()
    process.wait(10)
    process.stdin.close()
    process.stdout.close()
    os.kill(beside, signal.SIGKILL)


def test_what_a_killed_owner_started_is_ended(owner):
    process, folder, worker, beside = owner
    process.kill()
    process.wait(10)
    wait_until(lambda: not alive(worker) and not folder.exists(), 20, "end of the worker")
    assert alive(beside), "it has nothing to do with the folder"


def test_after_the_block_the_worker_is_gone_and_its_owner_goes_on(owner):
    process, folder, worker, beside = owner
    process.stdin.close()
    assert process.stdout.readline() == "ended\n"
    assert not alive(worker)
    assert not folder.exists()
    assert alive(process.pid)
    assert alive(beside)
