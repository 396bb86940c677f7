"""The local executor: one process that collects, learns, evaluates and saves."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from labkit import checkpoint, environments, opening, runs, watchdog
from labkit.config import SACConfig
from labkit.loop import Loop
from labkit.parts import Parts, build, collect_initially
from labkit.stopping import stop_request


def train(
    config: SACConfig,
    run: runs.Run | None = None,
    parts: Parts | None = None,
    make_env: Callable | None = None,
) -> runs.Run:
    """Trains SAC as configured and leaves the results in the run directory.

    Env steps and gradient steps are taken at the same time, the latter in a thread, so that
    TensorFlow computes while the physics runs, `config.steps_per_call` iterations at once: the
    weights that act are up to twice as many gradient steps old.

    A run directory that holds a checkpoint is gone on with: networks, optimizers, replay table,
    generators, metrics. The physics is not saved: a resumed run begins a new episode. Ctrl-C, the
    kernel's stop button and SIGTERM end the run after its iteration, with a checkpoint.

    Args:
        config: the configuration.
        run: where results go; None makes a new numbered directory under `runs/`.
        parts: made by hand, with the table filled; None builds them and collects at random.
        make_env: one's own Gym environment, `labkit.train(config, make_env=MyEnv)`.

    Returns:
        The run; `run.metrics()` is the table of everything measured.

    Raises:
        DivergedError: a loss or an action is no longer finite.
        BrokenEnvironmentError: an observation or a reward is not finite.
        StalledError: Reverb gave no batch within its time limit.
        StorageError: the run directory cannot be written.
        ParameterError: a checkpoint is damaged or of another agent.
    """
    run = run or opening.open_run("", config)
    ours = parts is None
    if parts is None:
        parts = build(config, make_env, run.path / "checkpoints" / "reverb")
        if checkpoint.latest(run.path / "checkpoints") is None:
            collect_initially(config, parts)
    if why := watchdog.last_words(run.path):
        print(f"the last start of this run: {why}")
    try:
        loop = Loop(config, run, parts)
        with _watched(config, run, parts), _short_switches(), stop_request() as stop:
            loop.execute(stop)
    finally:
        if ours:
            parts.close()
    return run


@contextlib.contextmanager
def _watched(config: SACConfig, run: runs.Run, parts: Parts) -> Iterator[None]:
    """Ends the process when an environment hangs; see `watchdog`."""
    dog = watchdog.Watchdog(config.environment_timeout, run.path)
    for env in (parts.collect_env, parts.eval_env):
        environments.isolated(env).watchdog = dog
    try:
        yield
    finally:
        dog.close()


@contextlib.contextmanager
def _short_switches() -> Iterator[None]:
    """Lets the thread of the gradient step get hold of Python soon after it asked.

    PyBullet keeps Python's lock for the whole of a step, and Python hands it over only every
    5 ms by default: the gradient step would wait where it should overlap.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
