"""Checks that everything labkit needs works on this machine: `labkit doctor`.

`ok` and `note` are fine, `fails` is not.
"""

import importlib.metadata
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil

from labkit import __version__, quiet
from labkit.environments.make import MINITAUR, make_environment
from labkit.errors import first_line
from labkit.replay.server import faces_outward
from labkit.runtime import cpu_cores, installed_version

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"  # in a checkout only
# Whether dm-reverb has a wheel for this system; requirements.lock has the same condition.
HAS_REVERB = sys.platform == "linux" and platform.machine() == "x86_64"
RAY_SECONDS = 120
RAY_TASK = """
from labkit.distributed import cluster
with cluster.connection(None, cpus=1):
    import ray
    print(ray.get(ray.remote(lambda: 6 * 7).remote()))
"""
OK, NOTE, FAILS = "ok", "note", "fails"
Finding = tuple[str, str]  # status, one line


def versions() -> Finding:
    """Compares the installed packages with requirements.lock; in a wheel, with labkit's pins."""
    lines = importlib.metadata.requires("labkit") or ()
    if LOCK.is_file():
        lines = LOCK.read_text().splitlines()
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;]+)(?!.*extra)", "\n".join(lines), re.M))
    if not HAS_REVERB:
        pins.pop("dm-reverb", None)
    found = {name: installed_version(name) or "missing" for name in pins}
    differing = [f"{n} is {found[n]}, not {pins[n]}" for n in pins if found[n] != pins[n]]
    return (FAILS, "; ".join(differing[:3])) if differing else (OK, f"{len(pins)} packages fit")


def memory() -> Finding:
    """Free memory; a full replay table of the Minitaur takes two gigabytes."""
    free = psutil.virtual_memory().available / 2**30
    return (OK if free > 4 else NOTE), f"{free:.1f} GiB free; a long run needs 4"


def devices() -> Finding:
    """The devices of TensorFlow, and a matrix product."""
    import tensorflow as tf

    assert np.allclose(tf.ones([64, 64]) @ tf.ones([64, 64]), 64), "a matrix product is wrong"
    gpus = tf.config.list_physical_devices("GPU")
    return OK, f"TensorFlow {tf.__version__}: {len(gpus) or 'no'} GPU, {cpu_cores()} CPU cores"


def reverb() -> Finding:
    """Writes and samples a transition; a note if other hosts can reach the servers."""
    if not HAS_REVERB:
        return NOTE, "there are no builds for this system: train with replay=tf_uniform"
    from labkit.replay.reverb_replay import ReverbReplay
    from labkit.replay.transitions import Layout, Transition

    table = ReverbReplay(Layout(1, 1), 10)
    try:
        table.write(Transition(np.array([1]), np.array([2]), 3, 1, np.array([4])))
        table.flush()
        assert np.array_equal(table.sample(1), [[1, 2, 3, 1, 4]]), "a transition has changed"
    finally:
        table.close()
    if faces_outward():
        return NOTE, "works; other hosts can reach its servers, without a password"
    return OK, "wrote and sampled a transition; only this host can reach the server"


def video() -> Finding:
    """Renders frames of the Minitaur without a display, and writes them as a video."""
    from labkit.plotting.video import record_episode

    with tempfile.TemporaryDirectory() as folder:
        env, still = make_environment(MINITAUR, seed=0), np.zeros(8, np.float32)
        one = record_episode(env, lambda _: still, Path(folder) / "v.mp4", max_steps=8)
    assert one.frames[0].std() > 0, "the picture is blank"
    return OK, f"rendered {'×'.join(map(str, one.frames[0].shape[1::-1]))} and wrote an MP4"


def ray() -> Finding:
    """Runs one task in a Ray worker process; only notebook 04 and `train_on_ray` need it."""
    if (version := installed_version("ray")) is None:
        return NOTE, "not installed; only notebook 04 needs it (pip install '.[ray]')"
    command = [sys.executable, "-c", RAY_TASK]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RAY_SECONDS)
    except subprocess.TimeoutExpired:  # a busy machine
        return NOTE, f"Ray {version}: no answer in {RAY_SECONDS} s; only notebook 04 needs it"
    assert done.stdout.strip() == "42", (done.stderr.strip() or "no answer").splitlines()[-1]
    return OK, f"Ray {version}: a task returned its result"


CHECKS: tuple[Callable[[], Finding], ...] = (versions, memory, devices, reverb, video, ray)


def run_checks() -> int:
    """Prints a line for each check; returns the exit status, 1 if a check fails or raises."""
    print(f"labkit {__version__}, Python {platform.python_version()}, {platform.platform()}")
    failed = 0
    for check in CHECKS:
        try:
            with quiet():
                status, text = check()
        except Exception as error:
            status, text = FAILS, f"{type(error).__name__}: {first_line(error)}"
        failed += status == FAILS
        print(f"  {status:<6} {check.__name__:<10} {text}", flush=True)
    print(f"{failed} of {len(CHECKS)} checks fail" if failed else "everything works here")
    return 1 if failed else 0
