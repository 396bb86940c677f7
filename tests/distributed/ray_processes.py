"""What the tests of the Ray executor share: a tiny environment, and eyes on real processes."""

import contextlib
import os
import threading
import time

import gym
import numpy as np
import psutil

from labkit.training import checkpoint

ACTORS = ("ReplayActor", "ParameterServer", "LearnerActor", "RolloutWorker", "Evaluator")


class Line(gym.Env):
    """Counts its steps along a line; an episode is 50 of them, the reward the nearness to 0.3."""

    observation_space = gym.spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self):
        self.steps = 0

    def reset(self):
        self.steps = 0
        return np.zeros(2, np.float32)

    def step(self, action):
        self.steps += 1
        time.sleep(0.001)  # as physics would take
        seen = np.array([self.steps, action[0]], np.float32)
        return seen, -float(abs(action[0] - 0.3)), self.steps % 50 == 0, {}


def descendants(pid: int | None = None) -> dict[int, str]:
    """Every process below `pid`, or below this one, and the command line that it shows."""
    found = {}
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found[process.pid] = " ".join(process.cmdline())
    return found


def actor_pids(kind: str, pid: int | None = None) -> list[int]:
    """The processes below `pid`, or below this one, in which Ray runs actors of a class."""
    return [p for p, title in descendants(pid).items() if title.startswith(f"ray::{kind}")]


def listening(pids) -> dict[tuple[str, int], int]:
    """(address, port) of every TCP socket on which these processes listen, and who."""
    found = {}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            for socket in psutil.Process(pid).net_connections("tcp"):
                if socket.status == psutil.CONN_LISTEN:
                    found[socket.laddr] = pid
    return found


def alive(pids) -> list[str]:
    """The command lines of those of these processes that run."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
    return found


def wait_until(condition, seconds: float, what: str):
    """Returns the first true value of `condition()`; fails after so many seconds."""
    begin = time.monotonic()
    while not (value := condition()):
        assert time.monotonic() - begin < seconds, f"{what}: not within {seconds} s"
        time.sleep(0.05)
    return value


def last_saved(path) -> int:
    """The gradient step of a run's newest checkpoint."""
    return max(checkpoint.steps(path / "checkpoints"), default=0)


@contextlib.contextmanager
def meanwhile(action):
    """Runs `action()` in a thread during the block, then presses Ctrl-C; raises its failure."""
    failures = []

    def run():
        try:
            action()
        except BaseException as failure:
            failures.append(failure)
        finally:
            os.kill(os.getpid(), 2)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    thread.join(10)
    assert not failures, failures
