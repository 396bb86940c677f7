"""Checks that what labkit needs works on this machine: `labkit doctor`."""

import contextlib
import platform
import tempfile
from pathlib import Path

import numpy as np

from labkit import __version__, quiet
from labkit.environments.make import MINITAUR, make_environment
from labkit.errors import first_line
from labkit.replay.server import faces_outward
from labkit.runtime import installed_version


def reverb() -> str:
    """Writes and samples a transition; tells if other hosts can reach the servers."""
    if installed_version("dm-reverb") is None:
        return "not installed (it has builds for Linux x86-64): use replay=tf_uniform"
    from labkit.replay.reverb_replay import ReverbReplay
    from labkit.replay.transitions import Layout, Transition

    with contextlib.closing(ReverbReplay(Layout(1, 1), 10)) as table:
        table.write(Transition(np.array([1]), np.array([2]), 3, 1, np.array([4])))
        table.flush()
        assert np.array_equal(table.sample(1), [[1, 2, 3, 1, 4]]), "a transition has changed"
    who = "other hosts can reach its servers, without a password"
    return f"wrote and sampled a transition; {who if faces_outward() else 'no other host can'}"


def video() -> str:
    """Renders frames of the Minitaur without a display, and writes them as a video."""
    from labkit.plotting.video import record_episode

    env, still = make_environment(MINITAUR, seed=0), np.zeros(8, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        record_episode(env, lambda _: still, Path(folder) / "v.mp4", max_steps=8)
    return "rendered the Minitaur and wrote an MP4"


def ray() -> str:
    """Runs one task in a Ray worker process; only notebook 04 and `train_on_ray` need it."""
    if installed_version("ray") is None:
        return "not installed; only notebook 04 needs it (pip install '.[ray]')"
    import ray

    from labkit.distributed import cluster

    with cluster.connection(None, cpus=1):
        ray.get(ray.remote(lambda: None).remote(), timeout=120)
    return "a task returned its result"


CHECKS = (reverb, video, ray)


def run_checks() -> int:
    """Prints a line for each check; returns 1 if one fails, else 0."""
    print(f"labkit {__version__}, Python {platform.python_version()}, {platform.platform()}")
    failed = 0
    for check in CHECKS:
        try:
            with quiet():
                status, text = "ok", check()
        except Exception as error:
            failed += 1
            status, text = "fails", f"{type(error).__name__}: {first_line(error)}"
        print(f"  {status:<6} {check.__name__:<10} {text}", flush=True)
    print(f"{failed} of {len(CHECKS)} checks fail" if failed else "everything works here")
    return int(failed > 0)
