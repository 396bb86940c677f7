"""An episode as a picture, an MP4 that a browser plays, and a film strip.

All on the CPU: no display, no ffmpeg but imageio-ffmpeg's own. A camera of this module's follows
PyBullet's robots; other Gym environments draw themselves.
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
from PIL import Image, ImageDraw, ImageFilter, ImageFont, ImageOps

MAX_BYTES = 1_500_000  # a notebook embeds several videos and should stay below 6 MB
CRF = (27, 32, 37, 42, 47)  # x264 quality: the first, or a later one where the file is too large
KEPT_FRAMES = 40  # what a Recording holds for film strips; 21 MB at 480 × 360

SKY = np.array([226, 236, 247], np.float32)  # RGB, also of the haze that hides the horizon's moiré
LIGHT = np.array([1, -2, 4]) / np.sqrt(21)  # unit vector towards the sun, world axes
LIGHTING = {  # PyBullet keeps the values it was given last, so each call names them all
    "lightDirection": LIGHT.tolist(),
    "lightColor": [1, 1, 1],
    "lightDistance": 10,
    "lightAmbientCoeff": 0.6,
    "lightDiffuseCoeff": 0.35,
    "lightSpecularCoeff": 0.05,
}


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


def frame(env: Any, width: int = 480, height: int = 360) -> np.ndarray:
    """Draws the environment's present state.

    Args:
        env: a TF-Agents `PyEnvironment` around a Gym environment; it must have been reset.
        width: pixels.
        height: pixels.

    Returns:
        uint8 [height, width, 3], RGB.

    Raises:
        ValueError: the environment was not reset, or draws nothing.
    """
    raw = _raw_env(env)
    if hasattr(raw, "_pybullet_client") and hasattr(raw, "minitaur"):
        x, y, _ = raw.minitaur.GetBasePosition()
        # The camera keeps its height: what bounces in the picture is the robot, not the ground.
        return _robot_frame(raw._pybullet_client, (x, y, 0.17), 1.15, width, height)
    not_reset = ValueError("nothing to draw: call env.reset() first")
    if hasattr(raw, "robot") and hasattr(raw, "physicsClientId"):  # pybullet_envs' MJCF robots
        if raw.physicsClientId < 0:
            raise not_reset
        x, y, z = getattr(raw.robot, "body_xyz", (0.0, 0.0, 0.3))
        return _robot_frame(raw._p, (float(x), float(y), float(z)), 3.4, width, height)
    try:
        picture = raw.render(mode="rgb_array")
    except AttributeError as error:  # Gym's own draw what reset makes
        raise not_reset from error
    if picture is None or np.ndim(picture) != 3:
        raise not_reset
    return _fit(np.asarray(picture, np.uint8), width, height)


def _raw_env(env: Any) -> Any:
    """The innermost Gym environment below TF-Agents' and Gym's wrappers."""
    while hasattr(env, "wrapped_env"):
        env = env.wrapped_env()
    env = getattr(env, "gym", env)
    return getattr(env, "unwrapped", env)


def _fit(picture: np.ndarray, width: int, height: int) -> np.ndarray:
    """Scales to [height, width, 3] undistorted and uncut; the edges are repeated to fill it."""
    small = np.asarray(ImageOps.contain(Image.fromarray(picture), (width, height)))
    rows, columns = height - small.shape[0], width - small.shape[1]
    around = ((rows // 2, rows - rows // 2), (columns // 2, columns - columns // 2), (0, 0))
    return np.pad(small, around, mode="edge")


def _robot_frame(
    client: Any, target: tuple[float, float, float], distance: float, width: int, height: int
) -> np.ndarray:
    """A PyBullet scene, seen from the robot's right and a little above; uint8 [height, width, 3].

    Distances in metres. The software renderer's own shadows are wrong (they stay near the origin)
    and slow (25 ms), so `_shadow` draws them: without, a lifted foot looks like one that stands.
    """
    near, far = 0.1 * distance, 11 * distance
    view = client.computeViewMatrixFromYawPitchRoll(target, distance, 25, -18, 0, 2)
    projection = client.computeProjectionMatrixFOV(38, width / height, near, far)
    rgb, depth, bodies = _shoot(client, view, projection, width, height)
    picture = rgb.astype(np.float32)
    x, y, _ = target
    # Which body is the ground? The one that a ray beside the robot hits; -1 is none.
    ground = client.rayTest([x, y + 40, 1], [x, y + 40, -1])[0][0]
    if ground >= 0:
        to_pixel = _ground_to_pixel(view, projection, width, height)
        shadow = _shadow(client, x, y, distance, ground, to_pixel, (width, height))
        picture *= 1 - 0.45 * (shadow * (bodies == ground))[..., None]
    metres = far * near / (far - (far - near) * depth)
    haze = np.clip((metres / distance - 2) / 8, 0, 1)[..., None]
    return (picture + (SKY - picture) * haze).astype(np.uint8)


def _shoot(
    client: Any, view: Sequence[float], projection: Sequence[float], width: int, height: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The CPU renderer's RGB [h, w, 3], depth buffer [h, w] in 0..1, body ids [h, w] (-1 none)."""
    _, _, rgba, depth, bodies = client.getCameraImage(
        width, height, view, projection, shadow=0, renderer=client.ER_TINY_RENDERER, **LIGHTING
    )
    shape = (height, width)  # PyBullet built without NumPy gives flat tuples
    rgb = np.reshape(np.asarray(rgba, np.uint8), (*shape, 4))[..., :3]
    return rgb, np.reshape(depth, shape), np.reshape(bodies, shape)


def _ground_to_pixel(
    view: Sequence[float], projection: Sequence[float], width: int, height: int
) -> np.ndarray:
    """The homography [3, 3] from ground points (x, y, 1), z = 0 m, to homogeneous pixels."""
    # OpenGL's matrices come column by column.
    camera = np.reshape(projection, (4, 4)).T @ np.reshape(view, (4, 4)).T
    to_pixels = np.array([[width / 2, 0, width / 2], [0, -height / 2, height / 2], [0, 0, 1]])
    return to_pixels @ camera[np.ix_([0, 1, 3], [0, 1, 3])]


def _shadow(
    client: Any,
    x: float,
    y: float,
    distance: float,
    ground: int,
    to_pixel: np.ndarray,
    size: tuple[int, int],
) -> np.ndarray:
    """The robot's silhouette seen from the sun, laid on the ground; float32 [h, w] in 0..1."""
    n = 128  # pixels of the silhouette: 10 ms in all
    eye = np.array([x, y, 0]) + 5 * distance * LIGHT
    view = client.computeViewMatrix(eye.tolist(), [x, y, 0], [0, 0, 1])
    projection = client.computeProjectionMatrixFOV(11, 1, distance, 10 * distance)
    _, _, bodies = _shoot(client, view, projection, n, n)
    dark = np.where((bodies >= 0) & (bodies != ground), 255, 0).astype(np.uint8)
    silhouette = Image.fromarray(dark).filter(ImageFilter.GaussianBlur(0.8))
    pixel_to_sun = _ground_to_pixel(view, projection, n, n) @ np.linalg.inv(to_pixel)
    numbers = (pixel_to_sun / pixel_to_sun[2, 2]).ravel()[:8].tolist()
    laid = silhouette.transform(
        size, Image.Transform.PERSPECTIVE, numbers, Image.Resampling.BILINEAR
    )
    return np.asarray(laid, np.float32) / 255


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
            f'<figure style="margin:0;max-width:100%"><figcaption>{html.escape(title)}</figcaption>'
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
