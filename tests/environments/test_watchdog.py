"""A watchdog ends when it is closed, whatever the environment has started."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from small_disk import fill, small_disk

from labkit.environments.watchdog import Watchdog
from labkit.errors import RunError, StorageError


@pytest.mark.timeout(60)
def test_closing_does_not_wait_for_a_process_that_the_environment_forked():
    watchdog = Watchdog(limit=300)
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(300,))
    child.start()  # it inherits the watchdog's pipe
    try:
        watchdog.close()
        watchdog.close()
        assert child.is_alive()
    finally:
        child.kill()
        child.join()


SUSPENDED = """
import time
from labkit.environments.watchdog import Watchdog
watchdog = Watchdog(limit=6)
watchdog.turn()
print("begins", flush=True)
for _ in range(20):
    time.sleep(0.1)  # seconds: a step of two
watchdog.turn()
print("ended", flush=True)
watchdog.close()
"""


@pytest.mark.timeout(60)
def test_a_step_that_was_suspended_together_with_its_watcher_goes_on():
    """As by Ctrl-Z and fg, or a container that is paused."""
    process = subprocess.Popen(
        [sys.executable, "-c", SUSPENDED], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout.readline() == "begins\n"
        time.sleep(1.2)  # the watcher has looked at the step
        os.killpg(process.pid, signal.SIGSTOP)
        time.sleep(8)
        os.killpg(process.pid, signal.SIGCONT)
        assert process.stdout.readline() == "ended\n"
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()


def test_a_full_folder_for_temporary_files_is_named(tmp_path, monkeypatch):
    """Without the check, the first write to the shared counter would kill the process."""
    with small_disk(tmp_path / "disk", 64) as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        fill(disk)
        with pytest.raises(StorageError, match=f"^{disk}/.* cannot be written .No space left"):
            Watchdog(limit=300)


def test_a_watchdog_that_does_not_start_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/true")
    with pytest.raises(RunError, match="the watchdog of the environment did not start"):
        Watchdog(limit=3)
