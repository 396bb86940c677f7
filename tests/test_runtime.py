"""What importing labkit sets for the libraries that load after it, or before."""

import json
import os
import signal
import subprocess
import sys

import pytest

from labkit import runtime


def run(code: str, **environment: str) -> str:
    """What a Python process prints, without the user's own choices of threads and proxies."""
    ours = {k: v for k, v in os.environ.items() if "_NUM_" not in k and "proxy" not in k.lower()}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**ours, **environment}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


THREADS = """
import json, os
{imports}
import threadpoolctl
pools = [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]
print(json.dumps([pools, os.environ["TF_NUM_INTRAOP_THREADS"]]))
"""


@pytest.mark.parametrize(
    ("imports", "chosen", "threads"),
    [
        ("import labkit, numpy", {}, [[1], "1"]),
        ("import numpy, labkit", {}, [[1], "1"]),  # the order in which tools sort them
        (
            "import numpy, labkit",
            {"OPENBLAS_NUM_THREADS": "2", "TF_NUM_INTRAOP_THREADS": "4"},
            [[2], "4"],  # a user's own choice stays
        ),
    ],
)
def test_products_are_computed_in_one_thread(imports, chosen, threads):
    assert json.loads(run(THREADS.format(imports=imports), **chosen)) == threads


def test_labkit_is_imported_without_tensorflow():
    loaded = "import labkit, sys; print({'tensorflow', 'reverb', 'ray'} & set(sys.modules))"
    assert run(loaded) == "set()\n"


@pytest.mark.parametrize(("found", "after"), [(True, "egl"), (False, "disable")])
@pytest.mark.skipif(sys.platform != "linux", reason="EGL is for Linux")
def test_mujoco_is_told_to_draw_with_egl_only_where_egl_is(monkeypatch, found, after):
    """Without EGL even `import mujoco` would fail, and nothing could be trained."""
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr(runtime, "_loads", lambda library: found)
    runtime.prepare()
    assert os.environ["MUJOCO_GL"] == after


WRITER = """
import os, labkit, numpy as np, reverb
from labkit.replay import reverb_replay
limiter = reverb.rate_limiters.MinSize(1)
table = reverb.Table("a", reverb.selectors.Fifo(), reverb.selectors.Fifo(), 9, limiter)
server = reverb_replay.start_server([table])
with reverb_replay.connect(f"localhost:{server.port}").trajectory_writer(1) as writer:
    writer.append(np.int64(1))
    writer.create_item("a", 1.0, writer.history[-1:])
print("written", os.environ["no_grpc_proxy"])
"""


def test_reverb_is_reached_past_a_proxy():
    nobody = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy"), "http://127.0.0.1:9")
    written = run(WRITER, no_proxy="intranet", **nobody)
    assert written == "written intranet,localhost\n"


def test_windows_is_rejected_in_one_line(monkeypatch):
    monkeypatch.setattr(runtime.sys, "platform", "win32")
    with pytest.raises(ImportError, match="on Windows use WSL2, or Colab"):
        runtime.prepare()


TWO_THREADS = """
import logging, os, sys, threading, labkit
inside, entered, left = threading.Event(), threading.Event(), threading.Event()

def first():
    with labkit.quiet():
        inside.set()
        entered.wait(60)
    left.set()

thread = threading.Thread(target=first)
thread.start()
inside.wait(60)
with labkit.quiet():
    print("hidden")
    os.write(1, b"hidden")
    logging.getLogger().addHandler(logging.StreamHandler())  # as TensorFlow does when it loads
    entered.set()
    left.wait(60)  # the block that began first ends first
thread.join()
print("shown", flush=True)
logging.warning("of a logger that was made inside the block")
try:
    with labkit.quiet():
        with labkit.quiet():
            print("the reason")
            raise ValueError
except ValueError:
    pass
"""


def test_output_comes_back_after_blocks_of_two_threads_and_is_shown_after_an_error():
    command = [sys.executable, "-c", TWO_THREADS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    assert (done.stdout, done.stderr) == ("shown\n", "the reason\n")


def test_what_a_fork_leaves_unanswered_is_computed_here():
    here = os.getpid()

    def square(number):
        if number == 3 and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return 100 // (6 - number), os.getpid() == here

    with runtime.in_forks(square, range(7), 2, int) as results:
        found = [next(results) for _ in range(6)]
        with pytest.raises(ZeroDivisionError):
            next(results)
    assert found == list(zip([16, 20, 25, 33, 50, 100], [0, 0, 0, 1, 0, 1], strict=True))


FORKS = """
import os, time, labkit
sleep = lambda _: (os.write(1, b"begun\\n"), time.sleep(100))
with labkit.runtime.in_forks(sleep, range(2), 2, {wait}) as results:
    next(results)
"""


@pytest.mark.parametrize(("wait", "number"), [("lambda: 1 / 0", 0), ("int", signal.SIGKILL)])
def test_forks_end_with_their_block_and_with_their_process(wait, number):
    command, quiet = [sys.executable, "-c", FORKS.format(wait=wait)], subprocess.DEVNULL
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=quiet) as process:
        process.stdout.readline()
        process.send_signal(number)
        process.communicate(timeout=50)  # until no fork has this output, either
