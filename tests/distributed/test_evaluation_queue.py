"""The queue of evaluation requests, called by learner and evaluator at the same time."""

import sys
import threading
import time

import numpy as np
import pytest

from labkit.distributed.evaluation_queue import (
    EvaluationQueue,
    EvaluationRequest,
    EvaluationRequester,
)
from labkit.replay.transitions import Layout
from labkit.replay.uniform_replay import UniformReplay
from labkit.sac.rollout import Evaluation
from labkit.training import checkpoint


def request(version: int) -> EvaluationRequest:
    return EvaluationRequest(version, version, 0.0, np.empty(0, np.float32), False, "learner")


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


def test_a_checkpoint_keeps_the_evaluations_without_an_answer(tmp_path):
    requester = EvaluationRequester(lambda request: None)
    for step in (0, 500, 1_000):
        requester.request(step, step + 300, step / 100, np.full(3, step, np.float32), final=False)
    requester.request(1_050, 1_350, 10.5, np.ones(3, np.float32), final=True)  # asked for anew
    requester.answer((0, False, requester._learner_id), Evaluation((1.0,), (2.0,), (3.0,)))
    requester.results()
    assert requester.waiting() == 2
    table = UniformReplay(Layout(1, 1), 10)
    saved = checkpoint.save(tmp_path, 1_050, [np.ones(2)], {}, table, requester.state())
    checkpoint.check(saved)
    assert len(checkpoint.load(saved)[0]) == 1

    sent = []
    restarted = EvaluationRequester(sent.append)
    restarted.restore(checkpoint.load_evaluations(saved))
    assert [(one.version, one.env_step, one.seconds, one.final) for one in sent] == [
        (500, 800, 5.0, False),
        (1_000, 1_300, 10.0, False),
    ]
    assert [one.weights.tolist() for one in sent] == [[500] * 3, [1_000] * 3]
    assert [step for step in (0, 500, 1_000, 1_050) if restarted.is_open(step)] == [500, 1_000]
    nothing = EvaluationRequester(sent.append)
    nothing.restore(nothing.state())
    assert len(sent) == 2
