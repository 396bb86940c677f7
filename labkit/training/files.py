"""Files that are never seen half-written: each is written under another name, then renamed."""

from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file, or replaces it, in one rename."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content.encode() if isinstance(content, str) else content)
    partial.replace(path)
