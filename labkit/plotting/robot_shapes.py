"""The shapes of PyBullet's robots: boxes, spheres, capsules and meshes, and where each link is.

Reading them changes nothing in the simulation.
"""

import itertools
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from PIL import Image

from labkit.environments.seeding import environment_name, raw_env
from labkit.parameters import invalid

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

KINDS = {2: "sphere", 3: "box", 4: "cylinder", 5: "mesh", 6: "plane", 7: "capsule"}  # PyBullet's
MAX_TRIANGLES = 3000  # of one mesh in a replay; a larger one is simplified
LARGEST = 2**15 - 1  # the grid that a mesh is rounded to has this many cells along its longest side
Link = tuple[int, int]  # body and link ids of PyBullet; link -1 is the base
Frame = tuple[Any, Any]  # position [3] in metres, quaternion [4] (x, y, z, w)


@attrs.frozen
class Mesh:
    """Triangles: `vertices` `[v, 3]` float64 in metres, `triangles` `[t, 3]` int64."""

    vertices: np.ndarray = attrs.field(repr=False)
    triangles: np.ndarray = attrs.field(repr=False)


@attrs.frozen
class Shape:
    """One visible shape of a link.

    `size` depends on the kind, in metres: box (x, y, z); sphere (radius, 0, 0); cylinder and
    capsule (length along z, radius, 0), where the length of a capsule is that of its straight part;
    mesh (1, 1, 1).
    """

    link: Link
    kind: str
    size: tuple[float, float, float]
    position: tuple[float, ...]  # [3] metres, in the frame of the link
    quaternion: tuple[float, ...]  # [4] x, y, z, w
    colour: tuple[float, ...]  # [4] red, green, blue, opacity, from 0 to 1
    mesh: Mesh | None = None


def is_pybullet(env: "PyEnvironment") -> bool:
    """Whether PyBullet simulates the environment."""
    return bool({"_pybullet_client", "_p", "physicsClientId"} & set(dir(raw_env(env))))


def check_pybullet(env: "PyEnvironment") -> None:
    """Rejects an environment without PyBullet.

    Raises:
        ParameterError: names the environment.
    """
    if not is_pybullet(env):
        raise invalid("env", environment_name(env), "a PyBullet environment")


def client_of(env: "PyEnvironment") -> Any:
    """The PyBullet client of an environment that was reset.

    Raises:
        ParameterError: it is not a PyBullet environment, or was not reset.
    """
    raw = raw_env(env)
    client = getattr(raw, "_pybullet_client", None) or getattr(raw, "_p", None)
    if client is None or not hasattr(client, "getVisualShapeData"):
        raise invalid("env", environment_name(env), "a PyBullet environment that was reset")
    return client


def shapes_of(env: "PyEnvironment") -> tuple[tuple[Shape, ...], float | None]:
    """Every visible shape except the floor, and the height of the floor in metres (None: none).

    Raises:
        ParameterError: see `client_of`.
    """
    client, floor, shapes = client_of(env), None, []
    ends = _capsule_ends(env, client)
    for index in range(client.getNumBodies()):
        body = client.getBodyUniqueId(index)
        for number, data in enumerate(client.getVisualShapeData(body)):
            shape = _shape(data)
            if shape.kind == "plane" or Path(data[4].decode()).name.startswith("plane"):
                floor = link_frame(client, shape.link)[0][2] + shape.position[2]
            elif (body, number) in ends:
                shapes.append(_between(shape, *ends[body, number]))
            else:
                shapes.append(shape)
    return tuple(shapes), floor


def link_frame(client: Any, link: Link) -> Frame:
    """The frame of a link in the world: position `[3]` in metres, quaternion `[4]` (x, y, z, w)."""
    body, number = link
    if number >= 0:
        return client.getLinkState(body, number)[4:6]
    # PyBullet returns the centre of mass of a base, and not its frame.
    centre = client.getBasePositionAndOrientation(body)
    inertial = client.invertTransform(*client.getDynamicsInfo(body, -1)[3:5])
    return client.multiplyTransforms(*centre, *inertial)


def _shape(data: tuple) -> Shape:
    body, link, kind, size, file, position, quaternion, colour = data[:8]
    mesh = None
    if KINDS[kind] == "mesh" and not Path(file.decode()).name.startswith("plane"):
        path = Path(file.decode())
        mesh = simplified(read_mesh(path))
        mesh = attrs.evolve(mesh, vertices=mesh.vertices * size)
        colour, size = _texture_colour(path) or colour, (1.0, 1.0, 1.0)
    return Shape((body, link), KINDS[kind], size, position, quaternion, colour, mesh)


# --- capsules from point to point


def _capsule_ends(env: "PyEnvironment", client: Any) -> dict[tuple[int, int], np.ndarray]:
    """The ends `[2, 3]` of the MJCF shapes that have the attribute `fromto`.

    PyBullet draws such a shape in its place and reports it at the origin of its link. Its XML file
    lists the shapes in the same order; the result's keys are a body and a place in its list.
    """
    robot: Any = getattr(raw_env(env), "robot", None)
    if not hasattr(robot, "model_xml"):
        return {}
    import pybullet_data

    file = Path(pybullet_data.getDataPath()) / "mjcf" / robot.model_xml
    worldbody = ET.parse(file).getroot().find("worldbody")
    listed = [] if worldbody is None else list(worldbody.iter("geom"))
    counts = {body: len(client.getVisualShapeData(body)) for body in robot.objects}
    places = [(body, number) for body, count in counts.items() for number in range(count)]
    texts = {
        place: geom.get("fromto") for place, geom in zip(places, listed, strict=True)
    }  # fails when the file and PyBullet disagree
    return {
        place: np.reshape(text.split(), (2, 3)).astype(float)
        for place, text in texts.items()
        if text
    }


def _between(shape: Shape, start: np.ndarray, end: np.ndarray) -> Shape:
    """The shape, moved so that its axis goes from one point to the other."""
    axis = (end - start) / np.linalg.norm(end - start)
    # The shortest turn from the z axis to this axis; half a turn about x if they are opposite.
    turn = np.array([-axis[1], axis[0], 0, 1 + axis[2]])
    turn = turn / np.linalg.norm(turn) if axis[2] > -1 + 1e-9 else np.array([1.0, 0, 0, 0])
    middle = (start + end) / 2
    return attrs.evolve(shape, position=tuple(middle.tolist()), quaternion=tuple(turn.tolist()))


# --- meshes


def read_mesh(file: Path) -> Mesh:
    """Reads the triangles of a Wavefront OBJ or binary STL file.

    Raises:
        ParameterError: the file is of another kind.
    """
    if file.suffix.lower() == ".obj":
        return _read_obj(file.read_text())
    if file.suffix.lower() == ".stl":
        layout = np.dtype([("normal", "<3f4"), ("corners", "<9f4"), ("attribute", "<u2")])
        corners = np.frombuffer(file.read_bytes(), layout, offset=84)["corners"]
        vertices = corners.reshape(-1, 3).astype(float)
        return Mesh(vertices, np.arange(len(vertices)).reshape(-1, 3))
    raise invalid("mesh", file.name, "an OBJ or STL file")


def _read_obj(text: str) -> Mesh:
    lines = [line.split() for line in text.splitlines()]
    vertices = [[float(word) for word in line[1:4]] for line in lines if line[:1] == ["v"]]
    triangles = []
    for line in (line for line in lines if line[:1] == ["f"]):
        # 7/2/1 is vertex 7, counted from 1; a negative number counts from the end.
        numbers = [int(word.split("/")[0]) for word in line[1:]]
        corners = [number - 1 if number > 0 else len(vertices) + number for number in numbers]
        triangles += [[corners[0], *pair] for pair in itertools.pairwise(corners[1:])]
    return Mesh(np.array(vertices), np.array(triangles))


def simplified(mesh: Mesh) -> Mesh:
    """Merges vertices in the same cell of a grid, coarser until `MAX_TRIANGLES` are left."""
    low = mesh.vertices.min(axis=0)
    longest, cells = float(np.ptp(mesh.vertices, axis=0).max()) or 1.0, LARGEST
    while True:
        cell = longest / cells
        grid, where = np.unique(
            np.round((mesh.vertices - low) / cell).astype(int), axis=0, return_inverse=True
        )
        corners = where.reshape(-1)[mesh.triangles]
        a, b, c = corners.T
        triangles = corners[(a != b) & (b != c) & (c != a)]
        if len(triangles) <= MAX_TRIANGLES or cells < 4:
            return Mesh(low + grid * cell, triangles)
        cells = cells // 2 if cells > 256 else cells * 3 // 4


def _texture_colour(file: Path) -> tuple[float, ...] | None:
    """The mean colour of the picture on an OBJ mesh; None if it has none."""
    material = next((line.split()[1] for line in _lines(file) if line[:6] == "mtllib"), None)
    lines = _lines(file.with_name(material)) if material else []
    picture = next((line.split()[1] for line in lines if line[:6] == "map_Kd"), None)
    if picture is None or not file.with_name(picture).is_file():
        return None
    pixels = np.asarray(Image.open(file.with_name(picture)).convert("RGB"), float) / 255
    return (*pixels.mean(axis=(0, 1)).tolist(), 1.0)


def _lines(file: Path) -> list[str]:
    is_text = file.suffix.lower() in (".obj", ".mtl") and file.is_file()
    return file.read_text().splitlines() if is_text else []
