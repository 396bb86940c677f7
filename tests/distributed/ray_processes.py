"""What the tests of the Ray executor share: a tiny environment, and eyes on real processes."""

import os
import time
from pathlib import Path

import gym
import numpy as np

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


def descendants(pid: int) -> dict[int, str]:
    """Every process below `pid` and the command line that it shows."""
    parents, titles = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            if stat[0] != "Z":
                parents[int(entry.name)] = int(stat[1])
                titles[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ").strip()
        except OSError:
            continue
    found, grown = {pid}, True
    while grown:
        more = {child for child, parent in parents.items() if parent in found} - found
        grown = bool(more)
        found |= more
    return {child: titles[child] for child in found - {pid}}


def actor_pids(pid: int, kind: str) -> list[int]:
    """The processes below `pid` in which Ray runs actors of a class."""
    return [p for p, title in descendants(pid).items() if title.startswith(f"ray::{kind}")]


def listening(pids) -> dict[tuple[str, int], int]:
    """(hexadecimal address, port) of every TCP socket on which these processes listen, and who."""
    inodes = {}
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = os.readlink(descriptor)
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes[target[8:-1]] = pid
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, port = fields[1].split(":")
                found[(address, int(port, 16))] = inodes[fields[9]]
    return found


# 127.0.0.1, ::ffff:127.0.0.1 and ::1 as /proc/net/tcp and tcp6 write them
LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")


def wait_until(condition, seconds: float, what: str):
    """Returns the first true value of `condition()`; fails after so many seconds."""
    begin = time.monotonic()
    while not (value := condition()):
        assert time.monotonic() - begin < seconds, f"{what}: not within {seconds} s"
        time.sleep(0.05)
    return value
