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
