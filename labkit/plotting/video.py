"""Records an episode as an MP4 video in real time, and displays it in a notebook.

Everything runs on the CPU and without a display.
"""

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from labkit.environments import physics
from labkit.parameters import MANY, check_int, check_real, grouped, invalid
from labkit.plotting import mp4
from labkit.plotting.film_strip import FrameSample, film_strip
from labkit.plotting.rendering import frame
from labkit.sac.rollout import play, play_episode

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

    from labkit.sac.rollout import Policy

MAX_BYTES = 1_500_000  # a notebook embeds several videos and should stay below 6 MB
EVALUATED_STEPS = 5_000  # the longest evaluated episode that is recorded to its end
MAX_PIXELS = 16_384  # a side of the largest picture that x264 encodes
HTML_WIDTH = 480  # pixels: the largest width of a video in a notebook
CONTROLS = 0.2  # of a video's height, below the picture: a browser draws its controls there


@attrs.frozen
class Recording:
    """One recorded episode.

    `frames` are at most 41 pictures, uint8 `[height, width, 3]`, almost evenly spaced from the
    first to the last state.
    """

    path: Path  # the MP4 file
    frames: tuple[np.ndarray, ...] = attrs.field(repr=False)
    captions: tuple[str, ...] = attrs.field(repr=False)  # of each frame: see `caption_of`
    steps: int  # number of environment steps
    return_: float  # undiscounted sum of rewards
    seconds: float  # simulated time; the video lasts as long, to within one frame


# --- recording


def record_episode(
    env: "PyEnvironment",
    policy: "Policy",
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

    Args:
        env: a TF-Agents environment around a Gym environment.
        policy: maps an observation `[obs]` to an action `[act]`.
        path: the MP4 file. Its folder is created; a complete recording replaces an older file.
        seed: passed to `env.seed` before the reset; None does not seed the environment.
        fps: frames per second; reduced to one frame per environment step if it is higher.
        width: pixels, even.
        height: pixels, even.
        max_steps: the recording ends after this many environment steps.
        max_bytes: size limit of the file.

    Raises:
        ParameterError: a width or height is odd, or a number is not allowed; see `mp4.writing`.
        StorageError: see `mp4.writing`.
    """
    size = _even("width", width), _even("height", height)
    fps = check_real("fps", fps, 0, MANY, "frames per second", above=True)
    max_steps = check_int("max_steps", max_steps, 1, MANY, "env steps")
    path, sample = Path(path), FrameSample()
    if seed is not None:
        env.seed(seed)
    first = env.reset()  # PyBullet's other robots know the seconds of a step only after it
    dt, start = physics.step_seconds(env), physics.forward_position(env)
    fps = min(fps, 1 / dt)
    steps, shown, return_, over = 0, 0, 0.0, False
    played = play(env, policy, first)
    with mp4.writing(path, size, fps, max_bytes) as write:
        while True:
            last = over or steps == max_steps
            # Frame k shows the state at k / fps seconds, to the nearest step.
            if last or steps == int(shown / (fps * dt) + 0.5):
                here = physics.forward_position(env)
                metres = None if here is None or start is None else here - start
                picture, text = frame(env, *size), caption_of(steps * dt, metres, return_)
                if not last:  # with the last state the video would be one frame too long
                    write(_stamp(picture, text))
                sample.add(picture, text, keep=last)
                shown += 1
            if last:
                break
            transition, over = next(played)
            steps, return_ = steps + 1, return_ + float(transition.reward)
    frames, captions = zip(*sample.kept, strict=True)
    return Recording(path, frames, captions, steps, return_, steps * dt)


def record_evaluated(
    env: "PyEnvironment",
    policy: "Policy",
    episodes: Mapping[str, int],
    folder: Path,
    *,
    seed: int,
    max_bytes: int = MAX_BYTES,
) -> dict[str, Recording]:
    """Records episodes of an evaluation again, with the same seed, policy and environment.

    An evaluation seeds its environment once. The episodes before the last recorded one are
    therefore played, too. An episode of more than `EVALUATED_STEPS` env steps is cut.

    Args:
        env: see `record_episode`.
        policy: the deterministic policy that was evaluated.
        episodes: the place of each episode in the evaluation, from 0, by name.
        folder: of the videos `<name>.mp4`.
        seed: of the evaluation.
        max_bytes: size limit of each file.

    Returns:
        The recordings by name, in the order of `episodes`.
    """
    names = {place: name for name, place in episodes.items()}
    found = {}
    env.seed(seed)
    for place in range(max(names, default=-1) + 1):
        if place in names:
            path = folder / f"{names[place]}.mp4"
            found[names[place]] = record_episode(
                env, policy, path, max_steps=EVALUATED_STEPS, max_bytes=max_bytes
            )
        else:
            play_episode(env, policy)
    return {name: found[name] for name in episodes}


def caption_of(seconds: float, metres: float | None, return_: float) -> str:
    """A caption of two lines: simulated time and metres forward (None: unknown); the return."""
    walked = "" if metres is None else f"   {metres:.2f} m"
    rounded = round(return_, 2) + 0.0  # no "-0.00"
    return f"{seconds:.1f} s{walked}\nreturn {rounded:+.2f}"


def _even(name: str, pixels: int) -> int:
    """A width or a height that H.264 can store."""
    number = check_int(name, pixels, 2, MAX_PIXELS, "pixels")
    if number % 2:
        raise invalid(name, pixels, f"an even number from 2 to {grouped(MAX_PIXELS)} (pixels)")
    return number


def _stamp(picture: np.ndarray, text: str) -> np.ndarray:
    """Writes the text into the lower left corner in one line, readable on any background."""
    text = text.replace("\n", "   ")
    image, height = Image.fromarray(picture), picture.shape[0]
    font = ImageFont.load_default(size=max(12, height // 20))
    place = (height // 40, height - height // 40)
    draw = ImageDraw.Draw(image)
    draw.text(place, text, "#1b2733", font, anchor="ls", stroke_width=2, stroke_fill="white")
    return np.asarray(image)


# --- displaying


def show(recording: Recording, title: str | None = None) -> None:
    """Displays the video and, as a second output, its film strip: GitHub shows only the strip.

    The title is that of both; by default it is the file's name.
    """
    _display([recording], [title or recording.path.stem])


def side_by_side(
    before: Recording, after: Recording, titles: Sequence[str] = ("before", "after")
) -> None:
    """Displays two videos next to each other, and below them a film strip of each."""
    _display([before, after], titles)


def _display(recordings: Sequence[Recording], titles: Sequence[str]) -> None:
    from IPython import display  # only notebooks need it

    display.display(display.HTML(video_html(recordings, titles)))
    for recording, title in zip(recordings, titles, strict=True):
        text = _describe(recording, title)
        strip = film_strip(recording.frames, captions=recording.captions, title=text)
        display.display(display.Image(strip, format="png", alt=f"Film strip of {text}"))


def _describe(recording: Recording, title: str) -> str:
    seconds, return_ = recording.seconds, recording.return_
    return f"{title}: {seconds:.1f} s, {recording.steps} steps, return {return_:.2f}"


def style(width: int, height: int) -> str:
    """CSS for a video of this size in pixels: it shrinks with the page, and hides no caption.

    The box is higher than the picture: a browser draws its controls at the bottom of the box.
    """
    box = f"width:{width}px;max-width:100%;aspect-ratio:{width}/{round(height * (1 + CONTROLS))}"
    return f"{box};object-fit:contain;object-position:top"


def video_html(recordings: Sequence[Recording], titles: Sequence[str]) -> str:
    """HTML with the videos embedded, side by side if the page is wide enough; titles escaped."""
    figures = []
    for recording, title in zip(recordings, titles, strict=True):
        data = base64.b64encode(recording.path.read_bytes()).decode()
        label = html.escape(_describe(recording, title))
        height, width, _ = recording.frames[0].shape
        figures.append(
            # Two videos fit into JupyterLab at 1280 pixels; none is enlarged, which would blur it.
            f'<figure style="margin:0;flex:1 1 280px;max-width:{HTML_WIDTH}px">'
            f"<figcaption>{html.escape(title)}</figcaption>"
            f'<video controls loop muted playsinline style="{style(width, height)}" '
            f'aria-label="{label}" '
            f'src="data:video/mp4;base64,{data}">{label}</video></figure>'
        )
    return f'<div style="display:flex;flex-wrap:wrap;gap:12px">{"".join(figures)}</div>'
