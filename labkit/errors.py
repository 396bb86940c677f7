"""What ends a run that labkit can name; each message is one line that says what is safe.

A value that is refused before any work is `config.ParameterError`.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

PATIENCE_SECONDS = 180  # for a process that is being started, on a busy machine


class RunError(RuntimeError):
    """Ends a run; a notebook shows its line in place of a traceback through our frames."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class StalledError(RunError):
    """A wait was given up after its time limit."""


class ServerGoneError(StalledError):
    """A replay server no longer answers."""


class PartLostError(RunError):
    """A part of a run in another process died more often than it is replaced."""


class DivergedError(RunError):
    """A loss, or an action of the policy, is infinite or not a number."""


class BrokenEnvironmentError(RunError):
    """An environment gave an observation or a reward that is infinite or not a number."""


class StorageError(RunError):
    """The run directory can no longer be written."""


@contextlib.contextmanager
def storage(path: Path) -> Iterator[None]:
    """Names a path that cannot be written: the disk is full, read-only, or the folder vanished.

    Raises:
        StorageError: in place of what the operating system or TensorFlow raises.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror or error})") from None
    except Exception as error:
        if not type(error).__module__.startswith("tensorflow"):
            raise
        raise StorageError(f"{path} cannot be written ({str(error).splitlines()[0]})") from None
