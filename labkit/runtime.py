"""Settings that TensorFlow, gym, pygame and MuJoCo read when they load; output, seeds, forks.

`prepare` runs when labkit is imported. No function here imports TensorFlow before it needs it.
"""

import contextlib
import ctypes
import gc
import importlib.metadata
import io
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any

import threadpoolctl

from labkit.errors import ParameterError

NO_PROXY = "no_grpc_proxy"  # gRPC reads the lower-case name
PR_SET_PDEATHSIG = 1  # of Linux's prctl: the signal that a process gets when its parent ends
_hiding = threading.Lock()  # held while the output is redirected


def cpu_cores() -> int:
    """The CPU cores that this process may use."""
    all_cores = os.cpu_count() or 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else all_cores


def prepare() -> None:
    """Sets what TensorFlow, gym, pygame and MuJoCo read when they load; safe to repeat."""
    if sys.platform == "win32":  # labkit does not know its file locks and processes
        raise ImportError("labkit needs Linux or macOS: on Windows use WSL2, or Colab")
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # TF-Agents 0.19 is written for Keras 2
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    bypass_proxy("localhost")  # where Reverb's server is, unless it is on another host of Ray
    # NumPy evaluates one observation at a time: with two threads for its products, a training
    # takes half as much CPU again. It reads this only once, when it is imported.
    threads = os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if "numpy" in sys.modules and threads.isdigit():
        threadpoolctl.threadpool_limits(int(threads), "blas")
    # A product of 256 × 256 weights is too small to be split: two threads took a tenth more CPU.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    # MuJoCo draws with EGL without a display. If it is told to, and EGL is missing, even its import
    # fails; if it is told nothing, its second attempt to draw ends the process.
    if sys.platform == "linux" and _loads("libEGL.so.1"):
        os.environ.setdefault("MUJOCO_GL", "egl")
    elif sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "disable")  # it trains, and drawing is an error
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # CartPole draws without a display
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    with contextlib.suppress(ImportError):  # gym prints these when it is imported
        import gym_notices.notices

        gym_notices.notices.notices.clear()
    for name in ("absl", "tensorflow"):
        logging.getLogger(name).setLevel(logging.ERROR)
    noisy = "gym|gymnasium|pygame|pkg_resources|tensorflow_probability|tf_agents"
    warnings.filterwarnings("ignore", module=rf"({noisy})(\.|$)")
    known = ".*(Box bound precision|pkg_resources|Encoding a StructuredValue)"
    warnings.filterwarnings("ignore", message=known)


def bypass_proxy(host: str) -> None:
    """Has gRPC connect to `host` past a proxy, where Reverb's writer would wait without end."""
    given = os.environ.get(NO_PROXY) or os.environ.get("no_proxy") or ""
    if host not in given.split(","):
        os.environ[NO_PROXY] = f"{given},{host}".strip(",")


def _loads(library: str) -> bool:
    """Whether the dynamic linker finds a shared library."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hides what Python and native code print inside the block.

    It is shown after all if the block raises an exception, other than a `ParameterError`. Reverb,
    PyBullet and CUDA write to file descriptors 1 and 2, past Python's redirection.
    """
    if not _hiding.acquire(blocking=False):  # a block around this one, or in another thread
        yield
        return
    shown = ""
    try:
        with contextlib.ExitStack() as stack:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(AttributeError, ValueError):
                    stream.flush()
            file = stack.enter_context(tempfile.TemporaryFile("w+", buffering=1, errors="replace"))
            for descriptor in (1, 2):
                kept = os.dup(descriptor)
                stack.callback(os.close, kept)
                stack.callback(os.dup2, kept, descriptor)
                os.dup2(file.fileno(), descriptor)
            # Never closed: a logger that was made inside the block writes to it afterwards.
            text = io.StringIO()
            stack.enter_context(contextlib.redirect_stdout(text))
            stack.enter_context(contextlib.redirect_stderr(text))
            try:
                yield
            except BaseException as error:
                if not isinstance(error, ParameterError):
                    file.seek(0)
                    shown = text.getvalue() + file.read()
                raise
    finally:
        _hiding.release()
        sys.stderr.write(shown)


def installed_version(package: str) -> str | None:
    """The version of an installed package; None if it is missing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def seed_everything(seed: int) -> None:
    """Seeds Python, NumPy, TensorFlow and Keras; Reverb's selectors cannot be seeded."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(seed)


def in_background(function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
    """Calls `function` in a thread that, unlike an executor's, does not keep the process alive."""
    future: Future[Any] = Future()

    def call() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future


@contextlib.contextmanager
def in_forks(
    function: Callable[[Any], Any], items: Sequence[Any], most: int, wait: Callable[[], Any]
) -> Iterator[Iterator[Any]]:
    """Begins to compute `function(item)` for each item, in at most `most` forks of this process.

    Yields an iterator over the results, in order. While that waits, it calls `wait` ten times a
    second, which may raise. The forks end with the block, or with this process.

    A fork has this process's memory, but no other thread: in it, `function` must not use TensorFlow
    or Reverb, nor a GPU. What a fork that failed or was killed does not answer is computed here.
    """
    count = min(most, len(items)) if sys.platform == "linux" else 0
    forks: list[Connection | None] = [None] * max(1, count)

    def results() -> Iterator[Any]:
        for number, item in enumerate(items):
            fork, answer = forks[number % len(forks)], []
            while fork and not fork.poll(0.1):
                wait()
            with contextlib.suppress(EOFError, OSError):  # it has ended
                answer = [fork.recv()] if fork else []
            yield answer[0] if answer else function(item)
        stack.close()

    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # there is no memory for a process, or no process left
            for first in range(count):
                forks[first] = stack.enter_context(_fork(function, items[first::count]))
        yield results()


@contextlib.contextmanager
def _fork(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Connection]:
    """A fork, killed with the block, that sends what `function` returns for each item."""
    answers, sending = multiprocessing.Pipe(duplex=False)
    libc, parent, child = ctypes.CDLL(None), os.getpid(), 0
    try:
        if child := os.fork():
            sending.close()
            yield answers
            return
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) or os.getppid() != parent:
            return  # the parent has ended already
        for number in (signal.SIGINT, signal.SIGTERM):  # for the parent to decide
            signal.signal(number, signal.SIG_IGN)
        gc.freeze()  # what waits to be collected may be TensorFlow's
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            for item in items:  # Jupyter's output needs a thread
                sending.send(function(item))
    finally:
        if os.getpid() != parent:
            os._exit(0)
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        answers.close()
        sending.close()
