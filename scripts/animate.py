"""Converts a video to a small animated GIF, which GitHub plays in a README.

python scripts/animate.py results/minitaur/default/after.mp4     # writes after.gif next to it
"""

import argparse
from pathlib import Path

import imageio.v2 as imageio
from PIL import Image

WIDTH = 320  # pixels
EVERY = 2  # one frame of the video in this many
COLOURS = 32


def animate(video: Path) -> Path:
    """Writes a GIF of the same duration next to the video; returns its path."""
    with imageio.get_reader(video) as reader:
        seconds = EVERY / reader.get_meta_data()["fps"]
        frames = [Image.fromarray(frame) for i, frame in enumerate(reader) if i % EVERY == 0]
    height = round(WIDTH * frames[0].height / frames[0].width)
    small = [frame.resize((WIDTH, height), Image.Resampling.LANCZOS) for frame in frames]
    # With one palette and no dithering, pixels that do not change take no space.
    palette = small[len(small) // 2].quantize(COLOURS)
    flat = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in small]
    file = video.with_suffix(".gif")
    flat[0].save(
        file, save_all=True, append_images=flat[1:], duration=round(1000 * seconds), loop=0
    )
    return file


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("video", type=Path)
    file = animate(parser.parse_args().video)
    print(f"{file}: {file.stat().st_size / 1e6:.1f} MB")
