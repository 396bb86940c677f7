"""Draws an environment, now or later, on the CPU and without a display.

PyBullet's robots get a camera that follows them, a shadow and metre marks on the ground. Other
environments draw themselves.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont, ImageOps

from labkit.environments.make import environment_name, forward_position, raw_env
from labkit.errors import ParameterError, first_line

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

Size = tuple[int, int]  # (width, height) in pixels
Camera = tuple[Sequence[float], float, bool]  # looks at (x, y, z); metres from there; metre marks
# RGB of the sky, and of the haze that hides moiré patterns at the horizon.
SKY = np.array([226, 236, 247], np.float32)
MARKS = np.array([38, 70, 110], np.float32)  # RGB
SHARP = 2  # the marks are drawn this many times larger, and then scaled down
LIGHT = np.array([1, -2, 4]) / np.sqrt(21)  # unit vector towards the sun, world axes
# PyBullet remembers the last values, so each call passes all of them.
LIGHTING = {"lightDirection": LIGHT.tolist(), "lightColor": [1, 1, 1], "lightDistance": 10}
LIGHTING |= {"lightAmbientCoeff": 0.6, "lightDiffuseCoeff": 0.35, "lightSpecularCoeff": 0.05}


def frame(env: "PyEnvironment", width: int = 480, height: int = 360) -> np.ndarray:
    """Draws the present state of an environment: uint8 `[height, width, 3]` (pixels), RGB.

    Raises:
        ParameterError: the environment was not reset, or cannot be drawn.
    """
    if (camera := _camera(env)) is not None:
        return _robot(client_of(env), camera, (width, height))
    try:
        picture = np.asarray(env.gym.render(mode="rgb_array"), np.uint8)
        image = Image.fromarray(picture).convert("RGB")
    except Exception as error:  # an environment may fail in any way where it has no picture
        found = f"render(mode='rgb_array'): {type(error).__name__}: {first_line(error)}"
        raise ParameterError(f"{environment_name(env)} cannot be drawn: {found}") from None
    return np.asarray(ImageOps.pad(image, (width, height), color="white"))


def capture(
    env: "PyEnvironment", width: int, height: int
) -> tuple[Callable[[], np.ndarray], Callable[[], Any]]:
    """Keeps the present state; returns what draws it as `frame` does, and what forgets it.

    Drawing sets the physics back to that state: the environment needs a reset afterwards.
    """
    if (camera := _camera(env)) is None:  # it cannot go back to a state: it is drawn now
        packed, size = zlib.compress(frame(env, width, height).tobytes(), 1), (height, width, 3)
        return lambda: np.frombuffer(zlib.decompress(packed), np.uint8).reshape(size), lambda: None
    client = client_of(env)
    state = client.saveState()

    def draw() -> np.ndarray:
        client.restoreState(state)
        return _robot(client, camera, (width, height))

    return draw, lambda: client.removeState(state)


def client_of(env: "PyEnvironment") -> Any:
    """The PyBullet client of an environment that was reset; None without PyBullet."""
    raw = raw_env(env)
    return getattr(raw, "_pybullet_client", None) or getattr(raw, "_p", None)


def _camera(env: "PyEnvironment") -> Camera | None:
    """The camera for a robot of PyBullet; None for an environment that draws itself."""
    try:
        env.current_time_step()
    except ValueError:  # there is none yet
        raise ParameterError("`env` must be reset before it is drawn: env.reset()") from None
    raw = raw_env(env)
    if hasattr(raw, "minitaur"):  # the camera keeps its height: the robot bounces, not the ground
        return (*raw.minitaur.GetBasePosition()[:2], 0.17), 1.15, True
    if hasattr(raw, "robot") and hasattr(raw, "physicsClientId"):  # pybullet_envs' MJCF robots
        place = np.array(getattr(raw.robot, "body_xyz", (0.0, 0.0, 0.3))).tolist()
        return place, 3.4, forward_position(env) is not None
    return None


def _robot(client: Any, camera: Camera, size: Size) -> np.ndarray:
    """A PyBullet scene, seen from the robot's right and above; uint8 `[height, width, 3]`."""
    (x, y, _), distance, marks = camera
    near, far = 0.1 * distance, 11 * distance
    view = client.computeViewMatrixFromYawPitchRoll(camera[0], distance, 25, -18, 0, 2)
    projection = client.computeProjectionMatrixFOV(38, size[0] / size[1], near, far)
    picture, depth, bodies = _render(client, view, projection, size)
    # The ground is the body that a vertical ray far from the robot hits; -1 means none.
    ground = client.rayTest([x, y + 40, 1], [x, y + 40, -1])[0][0]
    if ground >= 0:
        to_pixel = _ground_to_pixel(view, projection, size)
        on_ground = (bodies == ground)[..., None]
        if marks:
            opacity = on_ground * _metre_marks(camera, to_pixel, size)
            picture += opacity * (MARKS - picture)
        picture *= 1 - 0.45 * on_ground * _shadow(client, camera, ground, to_pixel, size)
    metres = far * near / (far - (far - near) * depth)
    haze = np.clip((metres / distance - 2) / 8, 0, 1)[..., None]
    return (picture + (SKY - picture) * haze).astype(np.uint8)


def _render(client: Any, view: Any, projection: Any, size: Size) -> list[np.ndarray]:
    """Renders RGB `[h, w, 3]`, depth `[h, w]` from 0 to 1 and body ids `[h, w]` (-1: none)."""
    options = {"shadow": 0, "renderer": client.ER_TINY_RENDERER, **LIGHTING}
    _, _, *found = client.getCameraImage(*size, view, projection, **options)
    # PyBullet built without NumPy returns flat tuples.
    rgba, depth, bodies = (np.reshape(np.float32(part), (*size[::-1], -1)) for part in found)
    return [rgba[..., :3], depth[..., 0], bodies[..., 0]]


def _ground_to_pixel(view: Any, projection: Any, size: Size) -> np.ndarray:
    """The homography `[3, 3]` from ground points (x, y, 1), z = 0 m, to homogeneous pixels."""
    width, height = size
    # OpenGL stores matrices in column-major order.
    camera = np.reshape(projection, (4, 4)).T @ np.reshape(view, (4, 4)).T
    to_pixels = np.array([[width / 2, 0, width / 2], [0, -height / 2, height / 2], [0, 0, 1]])
    return to_pixels @ camera[np.ix_([0, 1, 3], [0, 1, 3])]


def _shadow(
    client: Any, camera: Camera, ground: int, to_pixel: np.ndarray, size: Size
) -> np.ndarray:
    """The robot's silhouette, projected from the sun to the ground: `[h, w, 1]`, 0 to 1.

    PyBullet's own shadows stay near the origin. Without one, a lifted foot seems to stand.
    """
    (x, y, _), distance, _ = camera
    n = 128  # pixels of the silhouette's sides; drawing takes 10 ms
    eye = np.array([x, y, 0]) + 5 * distance * LIGHT
    view = client.computeViewMatrix(eye.tolist(), [x, y, 0], [0, 0, 1])
    projection = client.computeProjectionMatrixFOV(11, 1, distance, 10 * distance)
    _, _, bodies = _render(client, view, projection, (n, n))
    dark = Image.fromarray(np.uint8(255) * ((bodies >= 0) & (bodies != ground)))
    to_sun = _ground_to_pixel(view, projection, (n, n)) @ np.linalg.inv(to_pixel)
    numbers = (to_sun / to_sun[2, 2]).ravel()[:8].tolist()
    how = Image.Transform.PERSPECTIVE, numbers, Image.Resampling.BILINEAR
    shadow = dark.filter(ImageFilter.GaussianBlur(0.8)).transform(size, *how)
    return np.asarray(shadow, np.float32)[..., None] / 255


def _metre_marks(camera: Camera, to_pixel: np.ndarray, size: Size) -> np.ndarray:
    """The opacity `[h, w, 1]`, 0 to 1, of a line across the way at each metre, and its number."""
    width, height = SHARP * size[0], SHARP * size[1]
    picture = Image.new("L", (width, height))
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(height // 14)
    (x, y, _), distance, _ = camera
    margin, reach = height / 9, 2.2 * distance  # the margin: no number is cut
    for metre in range(int(np.ceil(x - reach)), int(x + reach) + 1):
        # From the robot's left, where the number is, to its right: there is the camera.
        ends = [(metre, y + 0.5 * distance, 1), (metre, y - 0.7 * distance, 1)]
        points = np.array(ends) @ to_pixel.T
        if (points[:, 2] < 0.2 * distance).any():  # it is behind the camera, or nearly so
            continue
        start, end = (SHARP * points[:, :2] / points[:, 2:]).tolist()
        draw.line([*start, *end], 210, 3 * SHARP)
        if 0 <= start[0] <= width:
            place = (np.clip(start[0], margin, width - margin), start[1] - height / 90)
            draw.text(place, f"{metre} m", 255, font, "ms")
    small = picture.resize(size, Image.Resampling.BOX)
    return np.asarray(small, np.float32)[..., None] / 255
