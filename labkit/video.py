"""An episode as an MP4 that a browser plays, at the robot's real time.

All on the CPU: no display, no ffmpeg but imageio-ffmpeg's own.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import imageio_ffmpeg
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from labkit.camera import frame

MAX_BYTES = 1_500_000  # a notebook embeds several videos and should stay below 6 MB
CRF = (27, 32, 37, 42, 47)  # x264 quality: the first, or a later one where the file is too large
KEPT_FRAMES = 40  # what a Recording holds for film strips; 21 MB at 480 × 360


class VideoTooLarge(RuntimeError):
    """The episode does not fit into the size limit, even at the lowest quality tried."""


@attrs.frozen
class Recording:
    """One recorded episode.

    Attributes:
        path: the MP4 file.
        frames: at most 41 pictures, uint8 [height, width, 3], nearly evenly spaced from the first
            to the last state.
        captions: the text of each of `frames`: its time, and what `caption` gave.
        steps: environment steps played.
        return_: undiscounted sum of rewards.
        seconds: simulated time; the video's duration is the same within one frame.
    """

    path: Path
    frames: tuple[np.ndarray, ...] = attrs.field(repr=False)
    captions: tuple[str, ...] = attrs.field(repr=False)
    steps: int
    return_: float
    seconds: float


def record_episode(
    env: Any,
    policy: Callable[[np.ndarray], np.ndarray],
    path: str | Path,
    *,
    step_seconds: float,
    seed: int | None = None,
    fps: float = 25,
    width: int = 480,
    height: int = 360,
    max_steps: int = 1000,
    caption: Callable[[], str] | None = None,
    max_bytes: int = MAX_BYTES,
) -> Recording:
    """Plays one episode and films it at the robot's real time, as H.264 in MP4.

    Args:
        env: a TF-Agents `PyEnvironment` around a Gym environment.
        policy: maps an observation `[obs]` to an action `[act]`.
        path: the MP4; its folder is made, an older file replaced once the new one is complete.
        step_seconds: simulated seconds of one environment step.
        seed: given to `env.seed` before the reset; None leaves the environment's randomness alone.
        fps: frames per second of the video; fewer where the environment has fewer steps.
        width: pixels, even.
        height: pixels, even.
        max_steps: the episode is cut there.
        caption: called at each frame; its text stands beside the time in the corner.
        max_bytes: the file's size limit.

    Raises:
        ValueError: an odd size, or a time, rate or number of steps that is not positive.
        VideoTooLarge: `max_bytes` cannot be kept.
        RuntimeError: ffmpeg did not write all frames.
    """
    if width % 2 or height % 2 or min(width, height, step_seconds, fps, max_steps) <= 0:
        raise ValueError(
            f"a video needs even sizes and positive numbers: {width=}, {height=}, "
            f"{step_seconds=}, {fps=}, {max_steps=}"
        )
    path, size, fps = Path(path), (width, height), min(fps, 1 / step_seconds)
    path.parent.mkdir(parents=True, exist_ok=True)
    if seed is not None:
        env.seed(seed)
    strip: list[tuple[np.ndarray, str]] = []
    written, spacing, return_ = 0, 1, 0.0
    # The draft lies on the same disk, so that the rename is atomic, and is removed if we fail.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".recording-") as folder:
        draft = Path(folder) / "draft.mp4"
        with _encoder(draft, size, fps, CRF[0]) as write:
            for step, reward, last in _play(env, policy, max_steps):
                return_ += reward
                # Frame k stands for the k-th interval of 1 / fps seconds.
                due = step == int(written / (fps * step_seconds) + 0.5)
                if not (due or last):
                    continue
                text = f"{step * step_seconds:.1f} s" + (f"   {caption()}" if caption else "")
                picture = frame(env, width, height)
                if last:  # for the strip alone: one frame more would make the video too long
                    break
                write(_stamp(picture, text))
                if written % spacing == 0:
                    strip.append((picture, text))
                if len(strip) > KEPT_FRAMES:  # the length is unknown before: thin out as it grows
                    strip, spacing = strip[::2], 2 * spacing
                written += 1
        if imageio_ffmpeg.count_frames_and_secs(str(draft))[0] != written:
            raise RuntimeError(f"ffmpeg did not write all {written} frames of {path}: disk full?")
        os.replace(_shrunk(draft, size, fps, max_bytes), path)
    frames, captions = zip(*strip, (picture, text), strict=True)
    return Recording(path, frames, captions, step, return_, step * step_seconds)


def _play(env: Any, policy: Callable, max_steps: int) -> Iterator[tuple[int, float, bool]]:
    """One episode as (steps so far, latest reward, over?), at its start and after each step."""
    time_step, step, last = env.reset(), 0, False
    yield step, 0.0, last
    while not last:
        time_step, step = env.step(policy(time_step.observation)), step + 1
        last = bool(time_step.is_last()) or step == max_steps
        yield step, float(time_step.reward), last


@contextlib.contextmanager
def _encoder(path: Path, size: tuple[int, int], fps: float, crf: int) -> Iterator[Callable]:
    """Gives a function that takes one frame, uint8 [height, width, 3]; ffmpeg encodes meanwhile."""
    stream = imageio_ffmpeg.write_frames(
        str(path),
        size,
        fps=fps,
        codec="libx264",
        pix_fmt_out="yuv420p",
        quality=None,  # the CRF says it
        macro_block_size=2,
        ffmpeg_log_level="error",
        # faststart puts the index first: a browser plays before it has the whole file.
        output_params=["-crf", str(crf), "-movflags", "+faststart"],
    )
    stream.send(None)
    try:
        yield lambda picture: stream.send(np.ascontiguousarray(picture))
    finally:
        stream.close()


def _shrunk(draft: Path, size: tuple[int, int], fps: float, max_bytes: int) -> Path:
    """The draft, or the first re-encoding of it that keeps the limit."""
    smaller = draft
    for crf in CRF[1:]:
        if smaller.stat().st_size <= max_bytes:
            return smaller
        smaller = draft.with_name(f"crf{crf}.mp4")
        frames = imageio_ffmpeg.read_frames(str(draft))
        next(frames)  # the first item describes the stream
        with _encoder(smaller, size, fps, crf) as write:
            for picture in frames:
                write(np.frombuffer(picture, np.uint8))
    if smaller.stat().st_size <= max_bytes:
        return smaller
    raise VideoTooLarge(
        f"{smaller.stat().st_size} bytes at the lowest quality, allowed are {max_bytes}: "
        "record fewer steps, a lower fps or a smaller picture"
    )


def _stamp(picture: np.ndarray, text: str) -> np.ndarray:
    """Writes the text into the lower left corner, readable on any ground."""
    image, height = Image.fromarray(picture), picture.shape[0]
    font = ImageFont.load_default(size=max(12, height // 20))
    place = (height // 40, height - height // 40)
    draw = ImageDraw.Draw(image)
    draw.text(place, text, "#1b2733", font, anchor="ls", stroke_width=2, stroke_fill="white")
    return np.asarray(image)
