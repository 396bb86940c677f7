"""An episode as an MP4 video in real time, and as a film strip where no video can be played.

An episode is played first and drawn afterwards, on the CPU and without a display.
"""

import base64
import contextlib
import html
import io
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import imageio_ffmpeg
import numpy as np
from imageio.v2 import get_writer
from imageio.v3 import immeta
from IPython import display
from PIL import Image, ImageDraw, ImageFont

from labkit.environments.make import forward_position, step_seconds
from labkit.errors import StorageError, storage
from labkit.parameters import MANY, check_int, check_real
from labkit.plotting.rendering import capture, client_of
from labkit.replay.transitions import Transition
from labkit.runtime import cpu_cores, in_forks
from labkit.sac.rollout import Policy, play

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

MAX_BYTES = 1_500_000  # a notebook embeds several videos and should stay below 4 MB


@attrs.frozen
class Moment:
    """A state of an episode."""

    step: int  # env steps until now
    transition: Transition | None  # the last env step; None after the reset
    seconds: float  # simulated
    return_: float  # undiscounted sum of rewards until now
    metres: float | None  # forward since the reset; None where the robot has no position
    last: bool

    @property
    def caption(self) -> str:
        """Two lines: simulated time and metres forward, and the return so far."""
        walked = "" if self.metres is None else f"   {round(self.metres, 2) + 0.0:.2f} m"
        rounded = round(self.return_, 2) + 0.0  # no "-0.00"
        return f"{self.seconds:.1f} s{walked}\nreturn {rounded:+.2f}"


@attrs.frozen
class Recording:
    """One recorded episode, with some pictures from its first to its last state."""

    path: Path  # the MP4 file
    frames: Sequence[np.ndarray] = attrs.field(repr=False)  # each uint8 [height, width, 3]
    captions: Sequence[str] = attrs.field(repr=False)  # of each frame
    steps: int  # env steps
    return_: float  # undiscounted sum of rewards
    seconds: float  # simulated time; the video lasts as long, to within one frame


def moments(env: "PyEnvironment", policy: Policy, seed: int | None, most: int) -> Iterator[Moment]:
    """Plays an episode of at most `most` env steps, and stops at each of its states."""
    if seed is not None:
        env.seed(seed)
    first, return_ = env.reset(), 0.0
    # Some robots of PyBullet know the seconds of a step only after the reset.
    seconds, start = step_seconds(env), forward_position(env)
    yield Moment(0, None, 0.0, return_, None if start is None else 0.0, last=False)
    for step, (transition, over) in enumerate(play(env, policy, first), start=1):
        return_ += float(transition.reward)
        here, last = forward_position(env), over or step == most
        metres = None if here is None or start is None else here - start
        yield Moment(step, transition, step * seconds, return_, metres, last)
        if last:
            return


def record_episode(
    env: "PyEnvironment",
    policy: Policy,
    path: str | Path,
    *,
    seed: int | None = None,
    fps: float = 25,
    width: int = 480,
    height: int = 360,
    max_steps: int = 1000,
    max_bytes: int = MAX_BYTES,
) -> Recording:
    """Plays one episode and records it in real time, as H.264 in an MP4 file.

    The environment is seeded before its reset unless `seed` is None. There are `fps` frames per
    second, but at most one per env step, of `width` × `height` pixels, which are even. An episode
    is cut after `max_steps` env steps. A video that would exceed `max_bytes` has a lower quality.

    Raises:
        ParameterError: a number is not allowed, or the environment cannot be drawn.
        StorageError: see `write_mp4`.
    """
    fps = check_real("fps", fps, 0, MANY, "frames per second", above=True)
    max_steps = check_int("max_steps", max_steps, 1, MANY, "env steps")
    width = check_int("width", width, 2, MANY, "pixels")
    height = check_int("height", height, 2, MANY, "pixels")
    shown: list[tuple[Callable[[], np.ndarray], Callable[[], Any], str]] = []
    for moment in moments(env, policy, seed, max_steps):
        rate = min(fps, 1 / step_seconds(env))
        # Frame k shows the state at k / rate seconds, to the nearest step.
        if moment.last or moment.step == int(len(shown) / (rate * step_seconds(env)) + 0.5):
            shown.append((*capture(env, width, height), moment.caption))
    kept: list[tuple[np.ndarray, str]] = []

    def pictures(drawn: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        for index, (picture, (_, forget, caption)) in enumerate(zip(drawn, shown, strict=True)):
            forget()
            if index % max(1, rate // 2) == 0 or index + 1 == len(shown):
                kept.append((picture, caption))
            if index + 1 < len(shown):  # with the last state it would be one frame too long
                yield _stamp(picture, caption.replace("\n", "   "))

    forks = cpu_cores() if client_of(env) else 0  # others were drawn at once
    with in_forks(lambda one: one[0](), shown, forks, lambda: None) as drawn:
        # x264 may exceed the limit by what its buffer holds: one second of video.
        write_mp4(Path(path), pictures(drawn), rate, 0.95 * 8 * max_bytes / (moment.seconds + 1))
    frames, captions = zip(*kept, strict=True)
    return Recording(Path(path), frames, captions, moment.step, moment.return_, moment.seconds)


def write_mp4(path: Path, pictures: Iterable[np.ndarray], fps: float, limit: float = 1e9) -> None:
    """Writes pictures, uint8 `[height, width, 3]`, as H.264, with at most `limit` bits a second.

    Raises:
        StorageError: the disk is full or gone. There is no new file; an older one is as before.
    """
    # faststart puts the index first: a browser plays before it has the whole file.
    limits = ["-maxrate", f"{limit:.0f}", "-bufsize", f"{limit:.0f}"]
    options: dict[str, Any] = {"codec": "libx264", "macro_block_size": 2, "quality": None}
    options["output_params"] = ["-crf", "27", *limits, "-movflags", "+faststart"]
    writer: Any
    sent = stored = 0
    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # On the same disk, so that the final rename is atomic.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".recording-") as folder:
            # An absolute path: ffmpeg takes what comes before a colon for a protocol.
            draft = Path(folder).absolute() / "draft.mp4"
            with get_writer(draft, fps=fps, ffmpeg_log_level="quiet", **options) as writer:
                for picture in pictures:
                    writer.append_data(picture)
                    sent += 1
            with contextlib.suppress(RuntimeError):  # it is no video
                stored, _ = imageio_ffmpeg.count_frames_and_secs(draft)
            if stored != sent:  # ffmpeg ends quietly where the disk is full
                raise StorageError(f"{path} cannot be written: is the disk full?")
            os.replace(draft, path)


def _stamp(picture: np.ndarray, text: str) -> np.ndarray:
    """Writes the text into the lower left corner, readable on any background."""
    image, height = Image.fromarray(picture), picture.shape[0]
    font, place = ImageFont.load_default(max(12, height // 20)), (height // 40, height * 39 // 40)
    draw = ImageDraw.Draw(image)
    draw.text(place, text, "#1b2733", font, "ls", stroke_width=2, stroke_fill="white")
    return np.asarray(image)


def film_strip(recording: Recording, title: str = "") -> bytes:
    """Draws up to six evenly spaced frames side by side, each above its caption, as a PNG file."""
    frames, captions = recording.frames, recording.captions
    chosen = np.unique(np.linspace(0, len(frames) - 1, 6).round().astype(int))
    width, gap = 200, 8  # pixels; the gap is also the margin
    height = round(width * frames[0].shape[0] / frames[0].shape[1])
    top = gap + 30 * bool(title)  # a title is closer to its frames than to what is above
    bottom = gap + 4 + 18 * max(text.count("\n") + 1 for text in captions)
    strip = Image.new("RGB", (len(chosen) * (width + gap) + gap, top + height + bottom), "white")
    draw, font = ImageDraw.Draw(strip), ImageFont.load_default(size=15)
    draw.text((gap, top - 21), title, "black", font)
    for left, index in zip(range(gap, strip.width, width + gap), chosen, strict=True):
        small = Image.fromarray(frames[index]).resize((width, height), Image.Resampling.LANCZOS)
        strip.paste(small, (left, top))
        below = (left + width // 2, top + height + 3)
        draw.multiline_text(below, captions[index], "black", font, anchor="ma", align="center")
    png = io.BytesIO()
    strip.quantize(128).save(png, "PNG", optimize=True)
    return png.getvalue()


def show(recording: Recording, title: str) -> None:
    """Displays a video and, as a second output, its film strip: GitHub shows only the strip."""
    side_by_side(recording, titles=[title])


def side_by_side(*recordings: Recording, titles: Sequence[str]) -> None:
    """Displays videos next to each other, and below them a film strip of each."""
    display.display(display.HTML(video_html([one.path for one in recordings], titles)))
    for recording, title in zip(recordings, titles, strict=True):
        show_strip(recording, title)


def show_strip(recording: Recording, title: str) -> None:
    """Displays a film strip, with alternative text."""
    text = f"{title}: {recording.captions[-1]}".replace("\n", "   ")
    display.display(display.Image(film_strip(recording, text), alt=f"Film strip of {text}"))


def video_html(files: Sequence[Path], titles: Sequence[str]) -> str:
    """HTML with the videos embedded, side by side if the page is wide enough; titles escaped."""
    figures = ""
    for file, title in zip(files, map(html.escape, titles), strict=True):
        width, height = immeta(file, plugin="FFMPEG")["size"]
        # Below a picture is room for the controls, which would hide the caption.
        box = f"width:{width}px;max-width:100%;aspect-ratio:{width}/{height + 72}"
        box += ";object-fit:contain;object-position:top"
        data = base64.b64encode(file.read_bytes()).decode()
        figures += f"""<figure style="margin:0;flex:1 1 280px;max-width:480px">
            <figcaption>{title}</figcaption><video controls loop muted playsinline style="{box}"
            aria-label="Video of {title}" src="data:video/mp4;base64,{data}"></video></figure>"""
    return f'<div style="display:flex;flex-wrap:wrap;gap:12px">{figures}</div>'
