"""The named errors of labkit, one line each, which says what is wrong and what was saved."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START_SECONDS = 180  # for a process that is being started, on a busy machine


class _OneLineError(Exception):
    """Shown without a traceback: our stack frames would hide the message."""

    def _render_traceback_(self) -> list[str]:  # for IPython
        return [f"{type(self).__name__}: {self}"]


_excepthook = sys.excepthook


def _print_one_line(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if isinstance(error, _OneLineError):
        print(f"{kind.__name__}: {error}", file=sys.stderr)
    else:
        _excepthook(kind, error, trace)


sys.excepthook = _print_one_line


class ParameterError(_OneLineError, ValueError):
    """A value that labkit "rejects" before any work; names parameter, value and range."""


class RunError(_OneLineError, RuntimeError):
    """Ends a run."""


class StalledError(RunError):
    """A wait reached its time limit."""


class ServerGoneError(StalledError):
    """A replay server no longer answers."""


class ActorLostError(RunError):
    """A Ray actor failed more often than the limit of its restarts."""


class DivergedError(RunError):
    """A loss, or an action of the policy, is infinite or not a number."""


class BrokenEnvironmentError(RunError):
    """An environment's answer is not finite, or not what its API promises."""


class StorageError(RunError):
    """The run directory can no longer be written."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message; the name of its type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextlib.contextmanager
def storage(path: Path) -> Iterator[None]:
    """Names `path` in a StorageError, in place of an error of the system or of TensorFlow."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) and not type(error).__module__.startswith("tensorflow"):
            raise
        reason = getattr(error, "strerror", None) or first_line(error)
        raise StorageError(f"{path} cannot be written ({reason})") from None
