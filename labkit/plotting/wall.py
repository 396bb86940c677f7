"""Several recorded episodes side by side, in one video and one picture."""

import contextlib
import io
from collections.abc import Generator, Mapping
from pathlib import Path

import imageio_ffmpeg
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from labkit.parameters import invalid
from labkit.plotting import mp4
from labkit.plotting.film_strip import film_strip
from labkit.plotting.video import Recording

TILE = (320, 240)  # pixels of a clip in the wall
TITLE = 26  # pixels of the line above it


def write_video(clips: Mapping[str, Recording], path: Path, columns: int = 3) -> None:
    """Writes an MP4 with all clips at once; a clip that is over keeps its last frame, greyed.

    Args:
        clips: recordings by title; all with the same frames per second.
        path: the MP4 file.
        columns: clips in a row.

    Raises:
        ParameterError: there are no clips, or they differ in frames per second.
        StorageError: see `mp4.writing`.
    """
    if not clips:
        raise invalid("clips", dict(clips), "at least one recording")
    rates = {title: _meta(clip)["fps"] for title, clip in clips.items()}
    if len(set(rates.values())) > 1:
        raise invalid("clips", rates, "recordings with the same frames per second")
    columns = min(columns, len(clips))
    width, height = columns * TILE[0], -(-len(clips) // columns) * (TILE[1] + TITLE)
    count = max(int(_meta(clip)["frames"]) for clip in clips.values())
    with contextlib.ExitStack() as readers:
        tiles = [
            readers.enter_context(contextlib.closing(_tiles(title, clip)))
            for title, clip in clips.items()
        ]
        with mp4.writing(path, (width, height), next(iter(rates.values()))) as write:
            for _ in range(count):
                write(_grid([next(tile) for tile in tiles], columns))


def _meta(clip: Recording) -> dict[str, float]:
    """Frames per second and number of frames of a clip."""
    reader = imageio_ffmpeg.read_frames(mp4.absolute(clip.path))
    fps = next(reader)["fps"]
    reader.close()
    return {"fps": fps, "frames": mp4.count_frames(clip.path)}


def _tiles(title: str, clip: Recording) -> Generator[np.ndarray, None, None]:
    """The frames of a clip below its title, uint8; the last one, greyed, again and again."""
    reader = imageio_ffmpeg.read_frames(mp4.absolute(clip.path))
    width, height = next(reader)["size"]
    with contextlib.closing(reader):
        for data in reader:
            picture = Image.frombytes("RGB", (width, height), data)
            yield np.asarray(_tile(title, picture))
    end = np.asarray(_tile(title, picture.convert("L").convert("RGB")))
    while True:
        yield end


def _tile(title: str, picture: Image.Image) -> Image.Image:
    tile = Image.new("RGB", (TILE[0], TILE[1] + TITLE), "white")
    ImageDraw.Draw(tile).text((6, 4), title, "black", ImageFont.load_default(size=15))
    tile.paste(picture.resize(TILE, Image.Resampling.LANCZOS), (0, TITLE))
    return tile


def _grid(tiles: list[np.ndarray], columns: int) -> np.ndarray:
    """Tiles in rows, uint8 `[rows * height, columns * width, 3]`; white where there is none."""
    missing = -len(tiles) % columns
    tiles = tiles + [np.full_like(tiles[0], 255)] * missing
    rows = [np.hstack(tiles[at : at + columns]) for at in range(0, len(tiles), columns)]
    return np.vstack(rows)


def film_strips(clips: Mapping[str, Recording]) -> bytes:
    """A PNG with the film strip of each clip, one below the other."""
    pictures = []
    for title, clip in clips.items():
        text = f"{title}: {clip.seconds:.1f} s, {clip.steps} steps, return {clip.return_:+.2f}"
        strip = film_strip(clip.frames, captions=clip.captions, title=text)
        pictures.append(Image.open(io.BytesIO(strip)).convert("RGB"))
    gap = 10  # pixels
    size = (max(p.width for p in pictures), sum(p.height + gap for p in pictures) - gap)
    wall, top = Image.new("RGB", size, "white"), 0
    for picture in pictures:
        wall.paste(picture, (0, top))
        top += picture.height + gap
    png = io.BytesIO()
    wall.quantize(128).save(png, "PNG", optimize=True)
    return png.getvalue()
