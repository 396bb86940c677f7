"""Metre marks on the ground of a rendered picture: lines across the robot's path, and numbers.

They are drawn over the finished picture, where its pixels show the ground. They are not part of the
simulation.
"""

import numpy as np
from PIL import Image, ImageDraw, ImageFont

LINE, TENTH = (38, 70, 110), (90, 110, 135)  # RGB
SHARP = 2  # the marks are drawn this many times larger, and then scaled down
# In shares of the camera's distance: how far lines across the way reach to the robot's right and
# left, and how long a tenth's tick is. The ruler is at the left, since the camera is at the right.
RIGHT, LEFT, TICK = 0.7, 0.5, 0.04


def overlay(
    to_pixel: np.ndarray, robot: tuple[float, float], distance: float, size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Draws the marks around a robot.

    Args:
        to_pixel: the homography `[3, 3]` from ground points (x, y, 1) in metres to pixels.
        robot: its place, (x, y) in metres; the marks lie around it, at whole metres along x.
        distance: of the camera from the robot, in metres.
        size: (width, height) in pixels.

    Returns:
        Colours `[height, width, 3]` float32 from 0 to 255, and their opacity `[height, width]`
        float32 from 0 to 1.
    """
    width, height = size
    picture = Image.new("RGBA", (SHARP * width, SHARP * height), (*LINE, 0))
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(size=SHARP * height // 14)
    x0, y0 = robot
    side = y0 + LEFT * distance
    reach, labels = 2.2 * distance, []
    for tenth in range(int(np.floor((x0 - reach) * 10)), int(np.ceil((x0 + reach) * 10)) + 1):
        x = tenth / 10
        whole = tenth % 10 == 0
        near = y0 - RIGHT * distance if whole else side - TICK * distance
        ends = _pixels(to_pixel, [(x, side), (x, near)], distance)
        if ends is None:
            continue
        colour, thickness = (LINE, 3 * SHARP) if whole else (TENTH, SHARP)
        draw.line([tuple(end) for end in ends], (*colour, 210), thickness)
        if whole:
            labels.append((f"{tenth // 10} m", ends[0]))
    edge = _pixels(to_pixel, [(x0 - reach, side), (x0 + reach, side)], distance)
    if edge is not None:
        draw.line([tuple(end) for end in edge], (*LINE, 210), 2 * SHARP)
    for text, (x, y) in labels:
        if not 0 <= x <= picture.width:  # its mark is outside: the number would be cut
            continue
        half = draw.textlength(text, font) / 2 + 3 * SHARP
        place = (min(max(x, half), picture.width - half), y - SHARP * height / 90)
        draw.text(place, text, (*LINE, 255), font, "ms", stroke_width=2, stroke_fill="white")
    small = np.asarray(picture.resize(size, Image.Resampling.BOX), np.float32)
    return small[..., :3], small[..., 3] / 255


def _pixels(
    to_pixel: np.ndarray, points: list[tuple[float, float]], distance: float
) -> np.ndarray | None:
    """Ground points as pixels `[n, 2]` of the larger picture; None if one is behind the camera."""
    homogeneous = np.column_stack([points, np.ones(len(points))]) @ to_pixel.T
    if (homogeneous[:, 2] < 0.2 * distance).any():
        return None
    return SHARP * homogeneous[:, :2] / homogeneous[:, 2:]
