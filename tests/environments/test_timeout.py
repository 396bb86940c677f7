"""An environment that hangs ends its process; one that was suspended goes on."""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, os, signal, subprocess, sys, time
import gym, numpy as np
from labkit.environments.make import make_environment

class Mine(gym.Env):
    observation_space = action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self):
        return np.zeros(1, np.float32)

    def step(self, action):
        print("begins", flush=True)
        {step}
        return np.zeros(1, np.float32), 0.0, False, {{}}

env = make_environment(Mine, timeout=2)
env.reset()
time.sleep(3)  # not in the environment: no limit
env.step(np.zeros(1, np.float32))
print("ends", flush=True)
"""
# A process of the environment's own; in it, nothing of the program may run after `sys.exit`.
FORKS = "pid = os.fork(); pid or sys.exit(); os.waitpid(pid, 0)"
LOCKED = "ctypes.PyDLL(None).sleep(60)  # keeps Python's lock, as physics does"
# Ctrl-Z, and `fg` later than the limit.
SUSPENDED = (
    "subprocess.Popen(['sh', '-c', f'sleep 3; kill -CONT {os.getpid()}']); "
    "os.kill(os.getpid(), signal.SIGTSTP); time.sleep(0.5)"
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("step", "status", "output"),
    [(LOCKED, 1, "begins\n"), (SUSPENDED, 0, "begins\nends\n"), (FORKS, 0, "begins\nends\n")],
    ids=["hangs", "is suspended", "forks"],
)
def test_the_limit_of_a_step(step, status, output):
    command = [sys.executable, "-c", PROGRAM.format(step=step)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (status, output), ended.stderr
    assert ("Timeout (0:00:02)!" in ended.stderr) == bool(status)
    assert ('File "<string>", line 14 in step' in ended.stderr) == bool(status)
