"""What importing labkit sets for the libraries that load after it, or before."""

import json
import os
import subprocess
import sys

import pytest

from labkit import runtime

THREADS = """
import json
{imports}
import threadpoolctl
print(json.dumps([pool["num_threads"] for pool in threadpoolctl.threadpool_info()]))
"""


@pytest.mark.parametrize(
    ("imports", "chosen", "threads"),
    [
        ("import labkit, numpy", None, 1),
        ("import numpy, labkit", None, 1),  # the order in which tools sort them
        ("import numpy, labkit", "2", 2),  # a user's own choice stays
    ],
)
def test_numpy_multiplies_in_one_thread(imports, chosen, threads):
    environment = {name: value for name, value in os.environ.items() if "_NUM_THREADS" not in name}
    if chosen:
        environment["OPENBLAS_NUM_THREADS"] = chosen
    command = [sys.executable, "-c", THREADS.format(imports=imports)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert json.loads(done.stdout) == [threads]


def test_the_cores_of_a_process_may_be_fewer_than_those_of_the_machine(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2, 5}, raising=False)
    assert runtime.cpu_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert runtime.cpu_cores() == 7


@pytest.mark.parametrize(("chosen", "threads"), [(None, "1"), ("4", "4")])
def test_tensorflow_multiplies_in_one_thread_unless_the_user_says_otherwise(chosen, threads):
    environment = {name: value for name, value in os.environ.items() if "_NUM_" not in name}
    if chosen:
        environment["TF_NUM_INTRAOP_THREADS"] = chosen
    code = "import labkit, os; print(os.environ['TF_NUM_INTRAOP_THREADS'])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == threads


@pytest.mark.parametrize(
    ("found", "display", "before", "after"),
    [
        (True, "", None, "egl"),
        (False, "", None, "disable"),
        (False, ":0", None, None),
        (True, "", "osmesa", "osmesa"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="EGL is for Linux")
def test_mujoco_is_told_to_draw_with_egl_only_where_egl_is(
    monkeypatch, found, display, before, after
):
    """Without EGL even `import mujoco` would fail, and nothing could be trained."""
    monkeypatch.setenv("MUJOCO_GL", before or "")
    if before is None:
        monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.setattr(runtime, "_loads", lambda library: found)
    runtime.prepare()
    assert os.environ.get("MUJOCO_GL") == after


WRITER = """
import labkit, numpy as np, reverb
from labkit.replay import reverb_replay
limiter = reverb.rate_limiters.MinSize(1)
table = reverb.Table("a", reverb.selectors.Fifo(), reverb.selectors.Fifo(), 9, limiter)
server = reverb_replay.start_server([table])
with reverb_replay.connect(f"localhost:{server.port}").trajectory_writer(1) as writer:
    writer.append(np.int64(1))
    writer.create_item("a", 1.0, writer.history[-1:])
print("written")
"""


@pytest.mark.parametrize("excepted", [None, "intranet,127.0.0.1"])
def test_reverb_is_reached_past_a_proxy(excepted):
    variables = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        variables[name] = "http://127.0.0.1:9"  # nobody answers there
    if excepted:
        variables["no_proxy"] = excepted
    done = subprocess.run(
        [sys.executable, "-c", WRITER], capture_output=True, text=True, env=variables, timeout=120
    )
    assert "written" in done.stdout, done.stderr[-2000:]


def test_hosts_without_a_proxy_are_added_once(monkeypatch):
    monkeypatch.setenv("no_proxy", "intranet")
    monkeypatch.delenv("no_grpc_proxy", raising=False)
    for host in ("localhost", "10.0.0.1", "localhost"):
        runtime.bypass_proxy(host)
    assert os.environ[runtime.NO_PROXY[0]] == "intranet,localhost,10.0.0.1"


def test_windows_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(runtime.sys, "platform", "win32")
    with pytest.raises(ImportError, match="on Windows use WSL2, or Colab"):
        runtime.prepare()


TWO_THREADS = """
import os, sys, threading, labkit
entered, left = threading.Event(), threading.Event()

def first():
    with labkit.quiet():
        entered.wait(60)
    left.set()

thread = threading.Thread(target=first)
thread.start()
with labkit.quiet():
    entered.set()
    left.wait(60)  # the block that began first ends first
    print("hidden")
    os.write(1, b"hidden")
thread.join()
print("shown", flush=True)
os.write(1, b"shown, too")
with labkit.quiet():
    with labkit.quiet():
        print("of the inner block")
    try:
        with labkit.quiet():
            print("of a block that failed")
            raise ValueError
    except ValueError:
        pass
try:
    with labkit.quiet():
        with labkit.quiet():
            print("the reason")
            raise ValueError
except ValueError:
    pass
"""


def test_output_comes_back_after_blocks_of_two_threads_and_nested_ones():
    command = [sys.executable, "-c", TWO_THREADS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout == "shown\nshown, too"
    assert done.stderr == "the reason\n"
