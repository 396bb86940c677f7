"""The film strip of an episode: evenly spaced pictures in a row, where no video can be played."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from labkit.parameters import MANY, check_int, invalid

KEPT_FRAMES = 40  # of an episode: 21 MB at 480 × 360


class FrameSample:
    """At most `KEPT_FRAMES` evenly spaced frames of a video whose length is not known yet."""

    def __init__(self) -> None:
        self.kept: list[tuple[np.ndarray, str]] = []
        self.count = 0  # frames added so far
        self._spacing = 1

    def add(self, picture: np.ndarray, caption: str, keep: bool = False) -> None:
        """Adds the next frame; when there are too many, every second one is dropped.

        `keep` is for the last one, which is kept in any case.
        """
        if keep:
            self.kept.append((picture, caption))
            return
        if self.count % self._spacing == 0:
            self.kept.append((picture, caption))
        if len(self.kept) > KEPT_FRAMES:
            self.kept, self._spacing = self.kept[::2], 2 * self._spacing
        self.count += 1


def film_strip(
    frames: Sequence[np.ndarray],
    *,
    columns: int = 6,
    captions: Sequence[str] | None = None,
    title: str | None = None,
) -> bytes:
    """Draws evenly spaced frames side by side, from the first to the last.

    The frames are uint8 `[height, width, 3]`, all of the same size; with fewer frames than columns
    there are fewer pictures. Each caption, of one or more lines, is below its frame.

    Returns:
        A PNG file on white, 200 pixels per column.

    Raises:
        ParameterError: there are no frames or no columns, or not one caption per frame.
    """
    count = len(frames)
    if not count:
        raise invalid("frames", frames, "one or more pictures")
    columns = check_int("columns", columns, 1, MANY, "pictures")
    captions = [""] * count if captions is None else captions
    if len(captions) != count:
        raise invalid("captions", captions, f"one for each of the {count} frames")
    chosen = np.unique(np.linspace(0, count - 1, columns).round().astype(int))
    width, gap, line = 200, 6, 22  # pixels
    height = round(width * frames[0].shape[0] / frames[0].shape[1])
    lines = max(len(caption.splitlines()) for caption in captions)
    top, bottom = line if title else 0, (4 + 18 * lines) * bool(lines)
    size = (len(chosen) * (width + gap) - gap, top + height + bottom)
    strip = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(strip), ImageFont.load_default(size=15)
    draw.text((0, 1), title or "", "black", font)
    for left, index in zip(range(0, size[0], width + gap), chosen, strict=True):
        small = Image.fromarray(frames[index]).resize((width, height), Image.Resampling.LANCZOS)
        strip.paste(small, (left, top))
        below = (left + width // 2, top + height + 3)
        draw.multiline_text(below, captions[index], "black", font, anchor="ma", align="center")
    png = io.BytesIO()
    strip.quantize(128).save(png, "PNG", optimize=True)  # a third of the bytes of true colour
    return png.getvalue()
