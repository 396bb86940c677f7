"""A recorded episode in the form that the 3D viewer reads, for JSON."""

import base64
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from labkit.plotting.robot_shapes import Mesh, Shape

if TYPE_CHECKING:
    from labkit.plotting.replay_3d import Replay


def episode(replay: "Replay", title: str) -> dict[str, Any]:
    """What the viewer reads, for JSON; arrays are little-endian, in base64."""
    return {
        "title": title,
        "stepSeconds": replay.step_seconds,
        "steps": replay.steps,
        "ended": replay.ended,
        "floor": replay.floor,
        "links": [list(link) for link in replay.links],
        "shapes": [_shape(shape, replay.links.index(shape.link)) for shape in replay.shapes],
        "poseSteps": encoded(replay.steps_of_poses.astype("<i4")),
        "root": encoded(replay.root.astype("<f4")),
        "poses": encoded(replay.poses.astype("<f2")),
        "rewards": encoded(replay.rewards.astype("<f4")),
        "distances": None if replay.distances is None else encoded(replay.distances.astype("<f4")),
        "signals": [
            {
                "title": signal.title,
                "unit": signal.unit,
                "names": signal.names,
                "values": encoded(signal.values.astype("<f4")),
            }
            for signal in replay.signals
        ],
    }


def _shape(shape: Shape, link: int) -> dict[str, Any]:
    described = attrs.asdict(shape, filter=lambda field, _: field.name not in ("mesh", "link"))
    mesh = None if shape.mesh is None else quantised(shape.mesh)
    return {**described, "link": link, "mesh": mesh}


def quantised(mesh: Mesh) -> dict[str, Any]:
    """Vertices as whole numbers of 16 bits: `origin + step * number` in metres."""
    low = mesh.vertices.min(axis=0)
    step = float(np.ptp(mesh.vertices, axis=0).max()) / 65535 or 1.0
    return {
        "origin": low.tolist(),
        "step": step,
        "vertices": encoded(np.round((mesh.vertices - low) / step).astype("<u2")),
        "triangles": encoded(mesh.triangles.astype("<u2")),
    }


def encoded(data: np.ndarray | bytes) -> str:
    """Bytes, or those of an array, in base64."""
    raw = data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()
    return base64.b64encode(raw).decode()
