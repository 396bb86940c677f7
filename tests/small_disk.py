"""A disk of a few megabytes in memory, to run out of."""

import contextlib
import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@functools.cache
def may_mount() -> bool:
    """Whether this user may mount a disk here."""
    with tempfile.TemporaryDirectory() as folder:
        mounted = os.geteuid() == 0 and _mount(Path(folder), 64)
        if mounted:
            subprocess.run(["umount", "--lazy", folder], check=True)
        return mounted


def _mount(folder: Path, kilobytes: int) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "labkit-test", str(folder)]
    return subprocess.run(command, capture_output=True).returncode == 0


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """Mounts a tmpfs on the new directory `folder`; skips the test where that is not allowed."""
    if not may_mount():
        pytest.skip("only root may mount a small disk")
    folder.mkdir()
    assert _mount(folder, kilobytes)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, leave: int = 0) -> Path:
    """Fills a disk except for about `leave` bytes; returns the file that does, to be deleted."""
    file = folder / ".filler"
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as stream:
        while stream.write(bytes(4096)):
            pass
    size = max(0, file.stat().st_size - leave)
    os.truncate(file, size)
    return file
