"""The queue of evaluation requests, called by learner and evaluator at the same time."""

import sys
import threading
import time

import numpy as np
import pytest

from labkit.distributed.evaluation_queue import EvaluationQueue, EvaluationRequest


def request(version: int) -> EvaluationRequest:
    return EvaluationRequest(version, version, np.empty(0, np.float32), False, "learner")


@pytest.fixture
def short_switches():
    """Threads switch so often that a race shows within a second."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_beyond_twenty_requests_the_oldest_are_dropped():
    queue = EvaluationQueue()
    for version in range(1, 26):
        queue.add(request(version))
    waiting, done = [], None
    while (found := queue.next(done)) is not None:
        waiting.append(found.version)
        done = found.key
    assert waiting == list(range(6, 26))


def test_two_threads_lose_and_repeat_no_request(short_switches):
    queue, errors, served = EvaluationQueue(), [], []
    end = threading.Event()

    def add():
        version = 0
        while not end.is_set():
            try:
                queue.add(request(version := version + 1))
            except RuntimeError as error:
                errors.append(error)

    adder = threading.Thread(target=add)
    adder.start()
    done, deadline = None, time.monotonic() + 2
    while time.monotonic() < deadline:
        if found := queue.next(done):
            served.append(found.version)
            done = found.key
    end.set()
    adder.join()
    assert not errors
    assert len(served) > 100
    assert served == sorted(set(served)), "a finished request was served again"
