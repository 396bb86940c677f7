"""Checks that everything labkit needs works on this machine: `labkit doctor`."""

import contextlib
import importlib.metadata
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import psutil

from labkit import __version__, quiet
from labkit.environments.make import MINITAUR, make_environment
from labkit.errors import ParameterError, first_line
from labkit.replay.server import faces_outward
from labkit.runtime import cpu_cores, installed_version

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"  # in a checkout only
RAY_SECONDS = 120
RAY_TASK = """
from labkit.distributed import cluster
with cluster.connection(None, cpus=1):
    import ray
    print(ray.get(ray.remote(lambda: 6 * 7).remote()))
"""


class NoteError(ParameterError):  # `quiet` hides the output before it
    """What is no failure, but limits what this machine can do."""


def versions() -> str:
    """Compares the installed packages with requirements.lock; in a wheel, with labkit's pins."""
    text = "\n".join(importlib.metadata.requires("labkit") or ())
    text = LOCK.read_text() if LOCK.is_file() else text
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;]+)(?!.*extra)", text, re.M))
    found = {name: installed_version(name) or "missing" for name in pins}
    if found.get("dm-reverb") == "missing":  # it has no builds for some systems: see `reverb`
        del pins["dm-reverb"]
    differing = [f"{n} is {found[n]}, not {pins[n]}" for n in pins if found[n] != pins[n]]
    assert not differing, "; ".join(differing[:3])
    return f"{len(pins)} packages have the versions of labkit's lock"


def machine() -> str:
    """Memory, CPU cores, and the devices of TensorFlow."""
    import tensorflow as tf

    free, gpus = psutil.virtual_memory().available / 2**30, tf.config.list_physical_devices("GPU")
    text = f"{free:.1f} GiB of memory free, {cpu_cores()} CPU cores, {len(gpus) or 'no'} GPU"
    if free < 4:  # a full replay table of the Minitaur takes two
        raise NoteError(f"{text}: a long run needs 4 GiB")
    return text


def reverb() -> str:
    """Writes and samples a transition; a note if other hosts can reach the servers."""
    if installed_version("dm-reverb") is None:
        raise NoteError("not installed (it has builds for Linux x86-64): use replay=tf_uniform")
    from labkit.replay.reverb_replay import ReverbReplay
    from labkit.replay.transitions import Layout, Transition

    with contextlib.closing(ReverbReplay(Layout(1, 1), 10)) as table:
        table.write(Transition(np.array([1]), np.array([2]), 3, 1, np.array([4])))
        table.flush()
        assert np.array_equal(table.sample(1), [[1, 2, 3, 1, 4]]), "a transition has changed"
    if faces_outward():
        raise NoteError("works; other hosts can reach its servers, without a password")
    return "wrote and sampled a transition; only this host can reach the server"


def video() -> str:
    """Renders frames of the Minitaur without a display, and writes them as a video."""
    from labkit.plotting.video import record_episode

    env, still = make_environment(MINITAUR, seed=0), np.zeros(8, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        one = record_episode(env, lambda _: still, Path(folder) / "v.mp4", max_steps=8)
    assert one.frames[0].std() > 0, "the picture is blank"
    return "rendered the Minitaur and wrote an MP4"


def ray() -> str:
    """Runs one task in a Ray worker process; only notebook 04 and `train_on_ray` need it."""
    if installed_version("ray") is None:
        raise NoteError("not installed; only notebook 04 needs it (pip install '.[ray]')")
    command = [sys.executable, "-c", RAY_TASK]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RAY_SECONDS)
    except subprocess.TimeoutExpired:  # a busy machine
        raise NoteError(f"no answer in {RAY_SECONDS} s; only notebook 04 needs it") from None
    assert done.stdout.strip() == "42", (done.stderr.strip() or "no answer").splitlines()[-1]
    return "a task returned its result"


CHECKS = (versions, machine, reverb, video, ray)


def run_checks() -> int:
    """Prints a line for each check: ok, note or fails; returns 1 if one fails, else 0."""
    print(f"labkit {__version__}, Python {platform.python_version()}, {platform.platform()}")
    failed = 0
    for check in CHECKS:
        try:
            with quiet():
                status, text = "ok", check()
        except NoteError as error:
            status, text = "note", first_line(error)
        except Exception as error:
            status, text = "fails", f"{type(error).__name__}: {first_line(error)}"
        failed += status == "fails"
        print(f"  {status:<6} {check.__name__:<10} {text}", flush=True)
    print(f"{failed} of {len(CHECKS)} checks fail" if failed else "everything works here")
    return int(failed > 0)
