"""A disk of a few megabytes in memory, to run out of."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """Mounts a tmpfs on the new directory `folder`; skips the test where that is not allowed."""
    folder.mkdir()
    options = f"size={kilobytes}k"
    command = ["mount", "-t", "tmpfs", "-o", options, "labkit-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("only root may mount a small disk")
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
