"""Checks that everything labkit needs works on this machine: `labkit doctor`.

Each check runs a small example: a matrix product, a transition through a Reverb server, a rendered
frame, a video file, a Ray task, a robot of Gymnasium, an ONNX model. `ok` and `note` are fine,
`fails` is not.
"""

import importlib.metadata
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil

from labkit import __version__, quiet
from labkit.environments import gymnasium
from labkit.environments.make import make_environment
from labkit.errors import RunError, first_line
from labkit.runtime import cpu_cores, installed_version

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"  # in a checkout only
# Whether dm-reverb has a wheel for this system; requirements.lock has the same condition.
HAS_REVERB = sys.platform == "linux" and platform.machine() == "x86_64"
PORTS = {8888: "JupyterLab", 9999: "notebook 01", 6006: "TensorBoard"}
RAY_LIMIT_SECONDS = 120
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
    if LOCK.is_file():
        lines, source = LOCK.read_text().splitlines(), LOCK.name
    else:
        lines, source = importlib.metadata.requires("labkit") or [], "labkit's pins"
    if not HAS_REVERB:
        lines = [line for line in lines if not line.startswith("dm-reverb")]
    pins = [line.split(";")[0].strip() for line in lines if "==" in line and "extra" not in line]
    differing = []
    for name, wanted in (pin.split("==") for pin in pins if not pin.startswith("#")):
        found = installed_version(name) or "missing"
        if found != wanted:
            differing.append(f"{name} is {found}, not {wanted}")
    if differing:
        more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
        return FAILS, f"{'; '.join(differing[:3])}{more} ({source})"
    return OK, f"{len(pins)} packages have the versions of {source}"


def memory() -> Finding:
    """Free memory; a full replay table of the Minitaur takes two gigabytes."""
    free = psutil.virtual_memory().available / 2**30
    text = f"{free:.1f} GiB free"
    return (OK, text) if free > 4 else (NOTE, f"{text}: enough for short runs; a long one needs 4")


def disk() -> Finding:
    """Free space in the working directory, and whether it is writable."""
    with tempfile.TemporaryFile(dir="."):
        free = shutil.disk_usage(".").free / 1e9
    return (OK if free > 2 else NOTE), f"{free:.0f} GB free in the working directory"


def devices() -> Finding:
    """The devices of TensorFlow, and a matrix product."""
    import tensorflow as tf

    ones = tf.ones([64, 64])
    if not np.allclose(ones @ ones, 64):
        return FAILS, "TensorFlow's matrix product is wrong"
    gpus = tf.config.list_physical_devices("GPU")
    return OK, f"TensorFlow {tf.__version__}: {len(gpus) or 'no'} GPU, {cpu_cores()} CPU cores"


def reverb() -> Finding:
    """Writes and samples a transition; a note if other hosts can reach the servers."""
    if not HAS_REVERB:
        return NOTE, "there are no builds for this system: train with replay=tf_uniform"
    from labkit.replay.reverb_replay import ReverbReplay
    from labkit.replay.server import faces_outward
    from labkit.replay.transitions import Layout, Transition

    table = ReverbReplay(Layout(1, 1), 10)
    try:
        table.write(Transition(np.array([1]), np.array([2]), 3, 1, np.array([4])))
        table.flush()
        if not np.array_equal(table.sample(1), [[1, 2, 3, 1, 4]]):
            return FAILS, "the sampled transition differs from the written one"
    finally:
        table.close()
    if faces_outward():
        return NOTE, "works; other hosts can reach its servers, without a password"
    return OK, "wrote and sampled a transition; only this host can reach the server"


def rendering() -> Finding:
    """Renders one frame of the Minitaur, without a display."""
    from labkit.plotting import rendering

    env = make_environment("MinitaurBulletEnv-v0", seed=0)
    env.reset()
    begin = time.monotonic()
    image = rendering.frame(env)
    if image.std() == 0:
        return FAILS, "the frame is blank"
    height, width = image.shape[:2]
    return OK, f"a frame of {width}×{height} in {time.monotonic() - begin:.2f} s"


def ffmpeg() -> Finding:
    """Writes and reads a short video, as the recordings of episodes do."""
    import imageio_ffmpeg

    from labkit.plotting import video

    frames = np.random.default_rng(0).integers(0, 255, (8, 64, 64, 3), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "v.mp4"
        video.write_mp4(path, frames, fps=8)
        _, *decoded = imageio_ffmpeg.read_frames(path)  # the first: of the stream
    count = len(decoded)
    return (OK, "wrote and read a video") if count == 8 else (FAILS, f"8 frames became {count}")


def ray() -> Finding:
    """Runs one task in a Ray worker process."""
    if (version := installed_version("ray")) is None:
        return NOTE, "not installed; only notebook 04 needs it (pip install '.[ray]')"
    command = [sys.executable, "-c", RAY_TASK]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RAY_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:  # a busy machine; only notebook 04 needs Ray
        return NOTE, f"Ray {version}: no answer in {RAY_LIMIT_SECONDS} s; only notebook 04 needs it"
    if done.stdout.strip() != "42":
        return FAILS, (done.stderr.strip().splitlines() or ["no answer"])[-1]
    return OK, f"Ray {version}: a task returned its result"


def mujoco() -> Finding:
    """Steps and draws a robot of Gymnasium; it also trains where it cannot be drawn."""
    from labkit.plotting import rendering

    if missing := [name for name in gymnasium.PACKAGES if installed_version(name) is None]:
        why = f"not installed: {' and '.join(missing)}; only Gymnasium's robots need it"
        return NOTE, f"{why} (pip install '.[gymnasium]')"
    env = make_environment("gymnasium:Hopper-v5", seed=0)
    env.reset()
    version = installed_version("mujoco")
    try:
        image = rendering.frame(env)
    except RunError as error:
        return NOTE, f"MuJoCo {version} steps; {error}"
    if image.std() == 0:
        return FAILS, "the frame is blank"
    return OK, f"Gymnasium {installed_version('gymnasium')}, MuJoCo {version}: stepped and drawn"


def onnx() -> Finding:
    """Builds a small ONNX model as `labkit export` does, and compares its actions with NumPy's."""
    from labkit.sac import onnx_policy

    if (version := installed_version("onnx")) is None:
        return NOTE, "not installed; only labkit export needs it (pip install '.[export]')"
    half, one, two = (np.full(1, value, np.float32) for value in (0.5, 1, 2))
    arrays = {"observation_scale": half, "kernel_0": one[None], "bias_0": one}
    arrays |= {"action_middle": half, "action_half_range": two}
    model = onnx_policy.build(arrays, {})
    if not np.allclose(onnx_policy.actions(model, half[None]), 0.5 + 2 * np.tanh(2)):
        return FAILS, "an ONNX model returned the wrong action"
    return OK, f"ONNX {version}: wrote and ran a model"


def ports() -> Finding:
    """Whether the default ports are free."""
    taken = []
    for port, user in PORTS.items():
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                taken.append(f"{port} ({user})")
    if taken:
        return NOTE, f"taken: {', '.join(taken)}; each program can use another port"
    return OK, f"{', '.join(map(str, PORTS))} are free"


CHECKS: dict[str, Callable[[], Finding]] = {
    "versions": versions,
    "memory": memory,
    "disk": disk,
    "devices": devices,
    "Reverb": reverb,
    "rendering": rendering,
    "ffmpeg": ffmpeg,
    "Ray": ray,
    "MuJoCo": mujoco,
    "ONNX": onnx,
    "ports": ports,
}


def run_checks() -> int:
    """Prints a line for each check; returns the exit status, 1 if a check fails or raises."""
    print(f"labkit {__version__}, Python {platform.python_version()}, {platform.platform()}")
    failed = 0
    for name, check in CHECKS.items():
        try:
            with quiet():
                status, text = check()
        except Exception as error:
            status, text = FAILS, f"{type(error).__name__}: {first_line(error)}"
        failed += status == FAILS
        print(f"  {status:<6} {name:<10} {text}", flush=True)
    print(f"{failed} of {len(CHECKS)} checks fail" if failed else "everything works here")
    return 1 if failed else 0
