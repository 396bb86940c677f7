"""`metrics.csv`: one row for each log or evaluation, and what can be read of a damaged file.

`wall_seconds` are the seconds of training when the row was written, evaluations included. On Ray,
where training continues during an evaluation, the row of an evaluation has the seconds at which the
learner had its weights, like `env_step` and `gradient_step`. All three may then be lower than in
the row before. (The tracked runs on Ray are older: there, the seconds are those of the answer.)

A power failure can leave a file that is shorter than it was, or that ends in NULs; a spreadsheet
adds a byte-order mark. Rows that are whole are kept, in their order.
"""

import codecs
import csv
import io
import itertools
import math
import os
from pathlib import Path

import attrs
import pandas as pd

from labkit.errors import ParameterError, storage
from labkit.parameters import grouped
from labkit.training.files import write_atomically

FILE = "metrics.csv"
TRAINING = ["critic_loss", "actor_loss", "alpha_loss", "entropy", "alpha", "collect_return"]
PER_EPISODE = ["eval_returns", "eval_lengths", "eval_distances"]
COLUMNS = ["env_step", "gradient_step", "wall_seconds", *TRAINING, "eval_return", *PER_EPISODE]
HEADER = (",".join(COLUMNS) + "\r\n").encode()


@attrs.frozen
class Lines:
    """The lines of a `metrics.csv`, as bytes with their line ends."""

    header: bytes
    rows: list[bytes]  # the whole ones
    damaged: list[int]  # numbers of the lines that are not, from 1; a torn last line is not listed


def split(file: Path) -> Lines:
    """Reads a `metrics.csv` line by line.

    Raises:
        ParameterError: it is missing, or its first line lacks a column.
    """
    try:
        data = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise ParameterError(f"{file} cannot be read: {error.strerror}") from None
    header, *lines = data.splitlines(keepends=True) or [b""]
    names = header.decode(errors="replace").strip().split(",")
    if not data:
        raise ParameterError(f"{file} cannot be read: it is empty")
    if missing := [name for name in COLUMNS if name not in names]:
        raise ParameterError(f"{file} is damaged: it lacks the column {missing[0]}")
    whole = [_is_whole(line, names) for line in lines]
    torn = len(lines) if lines and not lines[-1].endswith(b"\n") else None
    return Lines(
        header,
        [line for line, good in zip(lines, whole, strict=True) if good],
        [n + 1 for n, good in enumerate(whole, start=1) if not good and n != torn],
    )


def _is_whole(line: bytes, names: list[str]) -> bool:
    """Whether a line is a row of numbers, one for each name, up to its line end.

    Each of `PER_EPISODE` has one number for each episode.
    """
    if not line.endswith(b"\n"):
        return False
    try:
        values = dict(zip(names, next(csv.reader([line.decode()])), strict=True))
        int(values["env_step"]), int(values["gradient_step"])
        for name in COLUMNS:
            _ = [float(word) for word in values[name].split()]
    except (ValueError, csv.Error, StopIteration):
        return False
    return len({len(values[name].split()) for name in PER_EPISODE}) == 1


def read(folder: str | os.PathLike[str], *, repaired: bool = False) -> pd.DataFrame:
    """`metrics.csv` of a run directory; the columns `PER_EPISODE` hold tuples of floats.

    A byte-order mark and a torn last row are ignored. `repaired` leaves out every damaged row, as
    the next start of the run will.

    Raises:
        ParameterError: the file is missing or damaged, or lacks a column.
    """
    file = Path(folder) / FILE
    lines = split(file)
    if lines.damaged and not repaired:
        what = f"{file} is damaged in line {lines.damaged[0]}, which is not a row of numbers"
        raise ParameterError(f"{what}: delete that line, or resume the run, which leaves it out")
    text = b"".join([lines.header, *lines.rows]).decode()
    # A converter gets the text "nan" of a single episode; pandas itself would find no value there.
    return pd.read_csv(io.StringIO(text), converters=dict.fromkeys(PER_EPISODE, _numbers))


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split()))


def check_columns(folder: Path) -> None:
    """Rejects a `metrics.csv` whose columns are not labkit's: a resumed run appends to it by place.

    Raises:
        ParameterError: the file is missing or damaged, or names the columns that it should have.
    """
    file = folder / FILE
    names = split(file).header.decode(errors="replace").strip().split(",")
    if names != COLUMNS:
        others = [name for name in names if name not in COLUMNS]
        found = f"it also has {others[0]}" if others else "it has them in another order"
        what = f"{file} must have the columns {','.join(COLUMNS)} to be resumed: {found}"
        raise ParameterError(what)


def is_lost(folder: Path) -> bool:
    """Whether `metrics.csv` is missing or holds nothing, not even a header."""
    file = folder / FILE
    if not file.is_file():
        return not file.exists()
    with file.open("rb") as stream:  # in blocks: every row of a long run asks this
        return not any(block.strip(b"\0 \r\n") for block in iter(lambda: stream.read(4096), b""))


def create(folder: Path) -> None:
    """Writes a `metrics.csv` without rows."""
    write_atomically(folder / FILE, HEADER, durable=True)


def is_empty(folder: Path) -> bool:
    """Whether a directory has a `metrics.csv` without rows, as `create` writes it."""
    try:
        return (folder / FILE).read_bytes() == HEADER
    except OSError:
        return False


def is_table(folder: Path) -> bool:
    """Whether a directory has a `metrics.csv` of a run."""
    try:
        split(folder / FILE)
    except ParameterError:
        return False
    return True


def set_aside(folder: Path) -> Path:
    """Copies `metrics.csv` to `metrics-1.csv`, or the next number, and begins an empty one.

    A kill in between leaves both files, and the next start does the same once more.

    Returns:
        The new path of the rows.

    Raises:
        StorageError: the disk is full or gone.
    """
    names = (folder / f"metrics-{number}.csv" for number in itertools.count(1))
    aside = next(name for name in names if not name.exists())
    with storage(folder / FILE):
        write_atomically(aside, (folder / FILE).read_bytes(), durable=True)
        create(folder)
    return aside


def cut(folder: Path, length: int | None, step: float = math.inf) -> str:
    """Cuts `metrics.csv` to the rows that a checkpoint remembers; it is never extended.

    `length` is the checkpoint's size of the file in bytes, and `step` its gradient step; a `length`
    of None leaves no row. With a `length`, a lost file (`is_lost`) gets a new header.

    Returns:
        What was lost, one line; empty if the file held all that the checkpoint remembers.

    Raises:
        ParameterError, StorageError: the file cannot be read or written.
    """
    file = folder / FILE
    if length is not None and is_lost(folder):
        with storage(file):
            create(folder)
    lines = split(file)
    size = file.stat().st_size
    content, lost = lines.header, ""
    if length is not None:
        with file.open("rb") as stream:
            start = stream.read(length)
        content = b"".join([lines.header, *lines.rows])
        if len(start) == length and content.startswith(start) and start.endswith(b"\n"):
            content = start
        else:
            rows = [row for row in lines.rows if _gradient_step(row, lines.header) <= step]
            content = b"".join([lines.header, *rows])
            # As it was written: an editor may have changed the line ends.
            held = sum(len(line.rstrip(b"\r\n")) + 2 for line in (lines.header, *rows))
            if held < length:
                last = _gradient_step(rows[-1], lines.header) if rows else 0
                lost = (
                    f"{file} has lost {grouped(length - held)} of the {grouped(length)} "
                    f"bytes that it had at gradient step {step:.0f}; it has {len(rows)} whole "
                    f"rows, up to step {last}"
                )
    if len(content) != size or lost or lines.damaged:
        with storage(file):
            write_atomically(file, content, durable=True)
    return lost


def _gradient_step(row: bytes, header: bytes) -> int:
    column = header.decode().strip().split(",").index("gradient_step")
    return int(row.split(b",")[column])
