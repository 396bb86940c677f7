"""Recordings as a person looks at them: a video in the page, a film strip where none plays."""

import base64
import html
import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from labkit.video import Recording

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
