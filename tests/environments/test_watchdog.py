"""A watchdog ends when it is closed, whatever the environment has started."""

import multiprocessing
import time

import pytest

from labkit.environments.watchdog import Watchdog


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
