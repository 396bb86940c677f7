"""An episode as an MP4 that a browser plays, at the robot's real time.

All on the CPU: no display, no ffmpeg but imageio-ffmpeg's own.
"""

import base64
import contextlib
import html
import io
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import imageio_ffmpeg
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from labkit.plotting.rendering import frame

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


_WIDTH = 480  # pixels of a video, as `camera` takes them


def film_strip(
    frames: Sequence[np.ndarray],
    *,
    columns: int = 6,
    captions: Sequence[str] | None = None,
    title: str | None = None,
) -> bytes:
    """Evenly spaced frames side by side, the first and the last among them.

    Args:
        frames: each uint8 [height, width, 3], all of one size.
        columns: pictures in the strip; fewer where there are fewer frames.
        captions: one a frame, written below it.
        title: written above.

    Returns:
        A PNG on white, 200 pixels a column.

    Raises:
        ValueError: no frames, no columns, or another number of captions than of frames.
    """
    if not len(frames) or columns < 1:
        raise ValueError(f"a film strip needs frames and columns, got {len(frames)} and {columns}")
    captions = [""] * len(frames) if captions is None else captions
    if len(captions) != len(frames):
        raise ValueError(f"{len(captions)} captions for {len(frames)} frames")
    chosen = np.unique(np.linspace(0, len(frames) - 1, columns).round().astype(int))
    width, gap, line = 200, 6, 22  # pixels
    height = round(width * frames[0].shape[0] / frames[0].shape[1])
    top, bottom = line if title else 0, line if any(captions) else 0
    size = (len(chosen) * (width + gap) - gap, top + height + bottom)
    strip = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(strip), ImageFont.load_default(size=15)
    draw.text((0, 1), title or "", "black", font)
    for left, index in zip(range(0, size[0], width + gap), chosen, strict=True):
        small = Image.fromarray(frames[index]).resize((width, height), Image.Resampling.LANCZOS)
        strip.paste(small, (left, top))
        below = (left + width // 2, top + height + 3)
        draw.text(below, captions[index], "black", font, anchor="ma")
    png = io.BytesIO()
    strip.quantize(128).save(png, "PNG", optimize=True)  # a third of the bytes of true colour
    return png.getvalue()


def show(recording: Recording, title: str | None = None) -> None:
    """Displays the video and, as an output of its own, its film strip: GitHub shows only that.

    Args:
        recording: what `record_episode` gave.
        title: stands above both; the file's name by default.
    """
    _display([recording], [title or recording.path.stem])


def side_by_side(
    before: Recording, after: Recording, titles: Sequence[str] = ("before", "after")
) -> None:
    """Displays two videos beside one another, and below them a film strip of each.

    Args:
        before: the left one.
        after: the right one.
        titles: two; they stand above the videos and the strips.
    """
    _display([before, after], titles)


def video_html(recordings: Sequence[Recording], titles: Sequence[str]) -> str:
    """HTML with the videos embedded, side by side where the page is wide enough; titles escaped."""
    figures = []
    for recording, title in zip(recordings, titles, strict=True):
        data = base64.b64encode(recording.path.read_bytes()).decode()
        label = html.escape(_describe(recording, title))
        figures.append(
            # Two fit beside one another in JupyterLab's column at 1280 pixels; none grows blurred.
            f'<figure style="margin:0;flex:0 1 {_WIDTH}px;min-width:min(100%,280px)">'
            f"<figcaption>{html.escape(title)}</figcaption>"
            f'<video controls loop muted playsinline style="max-width:100%" aria-label="{label}" '
            f'src="data:video/mp4;base64,{data}">{label}</video></figure>'
        )
    return f'<div style="display:flex;flex-wrap:wrap;gap:12px">{"".join(figures)}</div>'


def _describe(recording: Recording, title: str) -> str:
    seconds, return_ = recording.seconds, recording.return_
    return f"{title}: {seconds:.1f} s, {recording.steps} steps, return {return_:.2f}"


def _display(recordings: Sequence[Recording], titles: Sequence[str]) -> None:
    from IPython import display  # only notebooks need it

    display.display(display.HTML(video_html(recordings, titles)))
    for recording, title in zip(recordings, titles, strict=True):
        text = _describe(recording, title)
        strip = film_strip(recording.frames, captions=recording.captions, title=text)
        display.display(display.Image(strip, format="png", alt=f"Film strip of {text}"))
