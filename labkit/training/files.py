"""Files that are never seen half-written: each is written under another name, then renamed."""

import errno
import os
from pathlib import Path


def write_atomically(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Writes a file, or replaces it, in one rename; `durable`: it outlasts a power failure."""
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        with partial.open("xb") as file:  # a new file: a symlink is not followed
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)
    except OSError:  # such as a full disk, or a directory of this name
        partial.unlink(missing_ok=True)
        raise
    if durable:
        flush_to_disk(path.parent)


def flush_to_disk(path: Path) -> None:
    """Waits until a file's content, or a directory's list of names, would outlast a power failure.

    Raises:
        OSError: the disk is full or gone.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some shared folders, such as VirtualBox's, cannot do this for a directory.
        if not (path.is_dir() and error.errno in (errno.EINVAL, errno.EBADF, errno.ENOTSUP)):
            raise
    finally:
        os.close(descriptor)
