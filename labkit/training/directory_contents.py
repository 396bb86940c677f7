"""What a run directory may hold: nothing but a run, and each of its files of the right kind."""

import contextlib
import re
from pathlib import Path

from labkit.environments import watchdog
from labkit.errors import ParameterError
from labkit.parameters import invalid
from labkit.training import checkpoint, metrics, run_lock

FOLDERS = ("checkpoints", "events", "policy", "policy.partial", "policy.before")
FOLDERS_OF_CHECKPOINTS = ("partial", "deleted", "reverb")


def foreign_files(path: Path) -> list[str]:
    """The names in a directory that no start of labkit left there; hidden ones do not count.

    A start that ended early leaves its locks and an empty table. Notebooks do not count either:
    papermill may write the one that runs here, and training never writes any.
    """
    if not path.is_dir():
        return []
    ours = {"progress.json"} if run_lock.note(path, run_lock.LAUNCHER) else set()
    for name in (run_lock.TRAINING, run_lock.LAUNCHER):
        if run_lock.is_lock(path / name):
            ours.add(name)
    if metrics.is_empty(path):
        ours.add(metrics.FILE)
    names = sorted(entry.name for entry in path.iterdir())
    return [
        n for n in names if not n.startswith(".") and not n.endswith(".ipynb") and n not in ours
    ]


def remove_leftovers(path: Path) -> None:
    """Removes the progress file and the stop requests of a killed `labkit run`.

    While another process holds the launcher's lock, that one uses them, and nothing is removed.
    """
    if not run_lock.is_lock(path / run_lock.LAUNCHER):
        return
    with contextlib.suppress(ParameterError):
        run_lock.check_free(path, run_lock.LAUNCHER)
        for file in path.iterdir():
            if re.fullmatch(r"progress\.json|\.stop-[0-9]+", file.name):
                file.unlink(missing_ok=True)


def check_empty(path: Path) -> None:
    """Rejects a directory that holds files but no run: labkit would overwrite them.

    Raises:
        ParameterError: names what it holds.
    """
    found = foreign_files(path)
    if not found:
        return
    some = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
    allowed = f"a new or empty directory, or a run; it holds {some}, and no config.json"
    if checkpoint.steps(path / "checkpoints") or metrics.is_table(path):
        allowed += " (if it was lost, copy that of a run with the same parameters into it)"
    raise invalid("run_dir", str(path), allowed)


def check_links(path: Path) -> None:
    """Rejects a run directory with symbolic links: labkit would write what they point to.

    Raises:
        ParameterError: names the first link.
    """
    for folder in (path, path / "checkpoints"):
        for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
            if entry.is_symlink():
                allowed = f"a directory without symbolic links, such as its {entry.name}"
                raise invalid("run_dir", str(path), allowed)


def check_kinds(path: Path) -> None:
    """Rejects a run directory with a file where labkit makes a directory, or the reverse.

    Raises:
        ParameterError: names the first one.
    """
    inside = [path / "checkpoints" / name for name in FOLDERS_OF_CHECKPOINTS]
    for folder in (*(path / name for name in FOLDERS), *inside):
        if folder.exists() and not folder.is_dir():
            what = f"{folder.relative_to(path)} is a directory, not a file"
            raise invalid("run_dir", str(path), f"a run in which {what}")
    for name in (metrics.FILE, watchdog.NOTE):
        if (path / name).is_dir():
            raise invalid("run_dir", str(path), f"a run in which {name} is a file, not a directory")
