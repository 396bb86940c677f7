"""Draws the current state of an environment, on the CPU and without a display.

For PyBullet's robots this module has a camera that follows the robot, and metre marks on the
ground; other environments render themselves.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import gym
import numpy as np
from PIL import Image, ImageFilter, ImageOps

from labkit.environments import gymnasium
from labkit.environments.physics import forward_position
from labkit.environments.seeding import parameter_of, raw_env, seeded_env
from labkit.errors import ParameterError
from labkit.parameters import echo
from labkit.plotting import metre_marks

if TYPE_CHECKING:
    from pybullet_utils.bullet_client import BulletClient
    from tf_agents.environments.py_environment import PyEnvironment

NOT_RESET = "`env` must be reset before it is drawn: call env.reset() first"
# What an environment raises that has no method `render`, or one without this mode.
CANNOT_RENDER = (NotImplementedError, TypeError, AttributeError, ImportError, gym.error.Error)
Size = tuple[int, int]  # (width, height) in pixels
Point = tuple[float, float, float]  # metres, world axes
# RGB of the sky, and of the haze that hides moiré patterns at the horizon.
SKY = np.array([226, 236, 247], np.float32)
LIGHT = np.array([1, -2, 4]) / np.sqrt(21)  # unit vector towards the sun, world axes
LIGHTING = {  # PyBullet remembers the last values, so each call passes all of them
    "lightDirection": LIGHT.tolist(),
    "lightColor": [1, 1, 1],
    "lightDistance": 10,
    "lightAmbientCoeff": 0.6,
    "lightDiffuseCoeff": 0.35,
    "lightSpecularCoeff": 0.05,
}


def frame(env: "PyEnvironment", width: int = 480, height: int = 360) -> np.ndarray:
    """Draws the current state of a TF-Agents environment around a Gym environment.

    Returns:
        uint8 `[height, width, 3]` (pixels), RGB.

    Raises:
        ParameterError: the environment was not reset, or cannot render.
        RunError: MuJoCo cannot draw on this machine.
    """
    raw = raw_env(env)
    if hasattr(raw, "_pybullet_client") and hasattr(raw, "minitaur"):
        x, y, _ = raw.minitaur.GetBasePosition()
        # The camera keeps its height, so that the robot bounces in the picture and not the ground.
        return _robot_frame(raw._pybullet_client, (x, y, 0.17), 1.15, (width, height), True)
    if hasattr(raw, "robot") and hasattr(raw, "physicsClientId"):  # pybullet_envs' MJCF robots
        if raw.physicsClientId < 0:
            raise ParameterError(NOT_RESET)
        x, y, z = getattr(raw.robot, "body_xyz", (0.0, 0.0, 0.3))
        target, walks = (float(x), float(y), float(z)), forward_position(env) is not None
        return _robot_frame(raw._p, target, 3.4, (width, height), walks)
    return _fit(_own_picture(env), width, height)


def _own_picture(env: "PyEnvironment") -> np.ndarray:
    """What the environment draws itself, uint8 `[height, width, 3]`.

    Raises:
        ParameterError: the environment was not reset, or cannot render.
    """
    try:
        picture = seeded_env(env).unwrapped.render(mode="rgb_array")
    except (*CANNOT_RENDER, *gymnasium.errors()) as error:
        found = echo(error)
    else:
        if np.ndim(picture) == 3:
            return np.asarray(picture, np.uint8)
        found = echo(picture)
    try:  # Gym's own environments render objects that reset creates
        env.current_time_step()
    except ValueError:  # there is none yet
        raise ParameterError(NOT_RESET) from None
    allowed = "an environment whose render(mode='rgb_array') returns [height, width, 3]"
    raise ParameterError(f"`{parameter_of(env)}` must be {allowed}, to be drawn, got {found}")


def _fit(picture: np.ndarray, width: int, height: int) -> np.ndarray:
    """Scales to `[height, width, 3]` without distortion or cropping; repeats the edges to fill."""
    small = np.asarray(ImageOps.contain(Image.fromarray(picture), (width, height)))
    rows, columns = height - small.shape[0], width - small.shape[1]
    around = ((rows // 2, rows - rows // 2), (columns // 2, columns - columns // 2), (0, 0))
    return np.pad(small, around, mode="edge")


def _robot_frame(
    client: "BulletClient", target: Point, distance: float, size: Size, marks: bool
) -> np.ndarray:
    """A PyBullet scene, seen from the robot's right and above; uint8 `[height, width, 3]`.

    Distances are in metres. The software renderer's shadows are wrong (they stay near the origin)
    and slow (25 ms), so `_shadow` draws them. Without a shadow, a lifted foot seems to stand.
    """
    near, far = 0.1 * distance, 11 * distance
    view = client.computeViewMatrixFromYawPitchRoll(target, distance, 25, -18, 0, 2)
    projection = client.computeProjectionMatrixFOV(38, size[0] / size[1], near, far)
    rgb, depth, bodies = _render(client, view, projection, size)
    picture = rgb.astype(np.float32)
    x, y, _ = target
    # The ground is the body that a vertical ray far from the robot hits; -1 means none.
    ground = client.rayTest([x, y + 40, 1], [x, y + 40, -1])[0][0]
    if ground >= 0:
        to_pixel = _ground_to_pixel(view, projection, size)
        if marks:
            colours, opacity = metre_marks.overlay(to_pixel, (x, y), distance, size)
            opacity = (opacity * (bodies == ground))[..., None]
            picture += opacity * (colours - picture)
        shadow = _shadow(client, target, distance, ground, to_pixel, size)
        picture *= 1 - 0.45 * (shadow * (bodies == ground))[..., None]
    metres = far * near / (far - (far - near) * depth)
    haze = np.clip((metres / distance - 2) / 8, 0, 1)[..., None]
    return (picture + (SKY - picture) * haze).astype(np.uint8)


def _render(
    client: "BulletClient", view: Sequence[float], projection: Sequence[float], size: Size
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Renders RGB `[h, w, 3]`, depth `[h, w]` from 0 to 1 and body ids `[h, w]` (-1: none)."""
    _, _, rgba, depth, bodies = client.getCameraImage(
        *size, view, projection, shadow=0, renderer=client.ER_TINY_RENDERER, **LIGHTING
    )
    shape = size[::-1]  # PyBullet built without NumPy returns flat tuples
    rgb = np.reshape(np.asarray(rgba, np.uint8), (*shape, 4))[..., :3]
    return rgb, np.reshape(depth, shape), np.reshape(bodies, shape)


def _ground_to_pixel(view: Sequence[float], projection: Sequence[float], size: Size) -> np.ndarray:
    """The homography `[3, 3]` from ground points (x, y, 1), z = 0 m, to homogeneous pixels."""
    width, height = size
    # OpenGL stores matrices in column-major order.
    camera = np.reshape(projection, (4, 4)).T @ np.reshape(view, (4, 4)).T
    to_pixels = np.array([[width / 2, 0, width / 2], [0, -height / 2, height / 2], [0, 0, 1]])
    return to_pixels @ camera[np.ix_([0, 1, 3], [0, 1, 3])]


def _shadow(
    client: "BulletClient",
    target: Point,
    distance: float,
    ground: int,
    to_pixel: np.ndarray,
    size: Size,
) -> np.ndarray:
    """The robot's silhouette, projected from the sun to the ground; float32 `[h, w]`, 0 to 1."""
    n = 128  # pixels of the silhouette's sides; drawing takes 10 ms
    x, y, _ = target
    eye = np.array([x, y, 0]) + 5 * distance * LIGHT
    view = client.computeViewMatrix(eye.tolist(), [x, y, 0], [0, 0, 1])
    projection = client.computeProjectionMatrixFOV(11, 1, distance, 10 * distance)
    _, _, bodies = _render(client, view, projection, (n, n))
    dark = np.where((bodies >= 0) & (bodies != ground), 255, 0).astype(np.uint8)
    silhouette = Image.fromarray(dark).filter(ImageFilter.GaussianBlur(0.8))
    pixel_to_sun = _ground_to_pixel(view, projection, (n, n)) @ np.linalg.inv(to_pixel)
    numbers = (pixel_to_sun / pixel_to_sun[2, 2]).ravel()[:8].tolist()
    perspective, bilinear = Image.Transform.PERSPECTIVE, Image.Resampling.BILINEAR
    return np.asarray(silhouette.transform(size, perspective, numbers, bilinear), np.float32) / 255
