"""Writes frames as H.264 into an MP4 file: all frames, or an error and no file.

Everything runs on the CPU, with the ffmpeg that imageio-ffmpeg ships.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import imageio_ffmpeg
import numpy as np

from labkit.errors import ParameterError, StorageError, storage
from labkit.parameters import invalid

CRF = (27, 32, 37, 42, 47)  # x264 quality; a later value is used when the file is too large
Write = Callable[[np.ndarray], None]  # takes one frame, uint8 [height, width, 3]


@contextlib.contextmanager
def writing(
    path: Path, size: tuple[int, int], fps: float, max_bytes: int | None = None
) -> Iterator[Write]:
    """Gives a function that adds one frame; the complete video replaces `path` at the end.

    Args:
        path: the MP4 file. Its folder is created. After an error, an older file is as before.
        size: width and height of the frames in pixels, even.
        fps: frames per second.
        max_bytes: size limit of the file; None: any size.

    Raises:
        ParameterError: no quality in `CRF` keeps the file within `max_bytes`.
        StorageError: the file does not have all frames, because the disk is full or gone.
    """
    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # The draft is on the same disk, so that the final rename is atomic.
        drafts = tempfile.TemporaryDirectory(dir=path.parent, prefix=".recording-")
    sent = 0
    with drafts as folder:
        draft = Path(folder) / "draft.mp4"
        with _ffmpeg(draft, path, size, fps, CRF[0]) as write:

            def add(picture: np.ndarray) -> None:
                nonlocal sent
                write(picture)
                sent += 1

            yield add
        if not sent:
            raise ParameterError(f"a video has one frame or more, and {path} would have none")
        _check_frames(draft, path, sent)
        with storage(path):
            if max_bytes is not None:
                draft = _shrunk(draft, path, sent, size, fps, max_bytes)
            os.replace(draft, path)


def absolute(path: Path) -> str:
    """A path for ffmpeg, which takes what comes before a colon for a protocol."""
    return str(path.absolute())


def size_of(file: Path) -> tuple[int, int]:
    """Width and height of a video in pixels."""
    with contextlib.closing(imageio_ffmpeg.read_frames(absolute(file))) as frames:
        width, height = next(frames)["size"]
    return width, height


def count_frames(file: Path) -> int:
    """The frames in a video; 0 if ffmpeg cannot read it."""
    try:
        return int(imageio_ffmpeg.count_frames_and_secs(absolute(file))[0])
    except RuntimeError:
        return 0


@contextlib.contextmanager
def _ffmpeg(file: Path, path: Path, size: tuple[int, int], fps: float, crf: int) -> Iterator[Write]:
    """Starts ffmpeg, which writes `file`, a draft of `path`; gives a function that adds a frame."""
    stream = imageio_ffmpeg.write_frames(
        absolute(file),
        size,
        fps=fps,
        codec="libx264",
        pix_fmt_out="yuv420p",
        quality=None,  # set by the CRF
        macro_block_size=2,
        ffmpeg_log_level="quiet",  # the frames are counted afterwards
        # faststart puts the index first: a browser plays before it has the whole file.
        output_params=["-crf", str(crf), "-movflags", "+faststart"],
    )
    stream.send(None)

    def write(picture: np.ndarray) -> None:
        try:
            stream.send(np.ascontiguousarray(picture))
        except OSError:
            why = "ffmpeg ended: is the disk full?"
            raise StorageError(f"{path} cannot be written ({why})") from None

    try:
        yield write
    finally:
        stream.close()


def _check_frames(file: Path, path: Path, sent: int) -> None:
    """Rejects a draft of `path` without all frames: ffmpeg ends quietly when the disk is full."""
    if count_frames(file) != sent:
        raise StorageError(f"ffmpeg did not write all {sent} frames of {path}: is the disk full?")


def _shrunk(
    draft: Path, path: Path, sent: int, size: tuple[int, int], fps: float, max_bytes: int
) -> Path:
    """The draft, or its first complete re-encoding within the size limit."""
    smaller = draft
    for crf in CRF[1:]:
        if smaller.stat().st_size <= max_bytes:
            return smaller
        smaller = draft.with_name(f"crf{crf}.mp4")
        frames = imageio_ffmpeg.read_frames(absolute(draft))
        next(frames)  # the first item describes the stream
        with contextlib.closing(frames), _ffmpeg(smaller, path, size, fps, crf) as write:
            for picture in frames:
                write(np.frombuffer(picture, np.uint8))
        _check_frames(smaller, path, sent)
    if smaller.stat().st_size <= max_bytes:
        return smaller
    allowed = f"at least {smaller.stat().st_size}, the size of this video at the lowest quality"
    todo = "or record fewer steps, fewer frames per second, or smaller pictures"
    raise invalid("max_bytes", max_bytes, f"{allowed} ({todo})")
