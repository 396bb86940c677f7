"""An episode of a PyBullet robot as one HTML file: play it, drag through time, walk around it.

The file fetches nothing. It contains the poses of all links, and three.js (see viewer/README.md).
"""

import base64
import gzip
import html
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from IPython import display

from labkit.environments.make import environment_name, raw_env, step_seconds
from labkit.errors import storage
from labkit.parameters import MANY, check_int, invalid
from labkit.plotting.rendering import client_of, frame
from labkit.plotting.video import Moment, Recording, moments, show_strip
from labkit.sac.rollout import Policy

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

VIEWER = resources.files("labkit.plotting") / "viewer"
KINDS = {2: "sphere", 3: "box", 4: "cylinder", 5: "mesh", 6: "plane", 7: "capsule"}  # PyBullet's
POSES_PER_SECOND = 25  # simulated; the viewer interpolates between them


def can_record(env: "PyEnvironment") -> bool:
    """Whether `record` accepts the environment: PyBullet simulates it."""
    return bool({"_pybullet_client", "_p", "physicsClientId"} & set(dir(raw_env(env))))


def record(
    env: "PyEnvironment",
    policy: Policy,
    path: str | Path,
    *,
    title: str | None = None,
    seed: int | None = None,
    max_steps: int = 1000,
    estimate: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> Recording:
    """Plays one episode and writes it, with its viewer, as an HTML file; see `record_episode`.

    The title is by default the name of the environment. `estimate` maps observations
    `[n, obs]` and actions `[n, act]` to the Q `[n]` that a chart shows.

    Raises:
        ParameterError: `max_steps` is not allowed, or `env` is not a PyBullet environment.
        StorageError: the file cannot be written.
    """
    max_steps = check_int("max_steps", max_steps, 1, MANY, "env steps")
    if not can_record(env):
        raise invalid("env", environment_name(env), "a PyBullet environment")
    seen: list[Moment] = []
    pose_steps, poses, torques, kept = [], [], [], []
    for moment in moments(env, policy, seed, max_steps):
        if not seen:  # some environments have no client, and no robot, before the reset
            client, dt, raw = client_of(env), step_seconds(env), raw_env(env)
            shapes, links, floor = _shapes(raw, client)
        elif hasattr(raw, "minitaur"):
            torques.append(raw.minitaur.GetMotorTorques())
        seen.append(moment)
        if moment.step % max(1, round(1 / (POSES_PER_SECOND * dt))) == 0 or moment.last:
            poses.append([np.concatenate(link_frame(client, link)) for link in links])
            pose_steps.append(moment.step)
        if moment.step % max(1, round(0.5 / dt)) == 0 or moment.last:
            kept.append((frame(env, 320, 240), moment.caption))
    observations, actions, rewards = (
        np.array([getattr(each.transition, name) for each in seen[1:]], np.float32)
        for name in ("observation", "action", "reward")
    )
    effort = ("motor torque", "N·m", torques) if torques else ("action", "", actions)
    signals: list[tuple[str, str, Any]] = [effort, ("reward", "per step", rewards)]
    if estimate is not None:
        signals.append(("estimated Q", "scaled return", estimate(observations, actions)))
    metres = None if moment.metres is None else [each.metres for each in seen]
    # float16 resolves 8 mm at 14 m. So poses are relative to the root, a link that moves.
    root = next((n for n, link in enumerate(links) if client.getNumJoints(link[0])), 0)
    positions = np.array(poses)
    roots = positions[:, root, :3].astype(np.float32)
    positions[:, :, :3] -= roots[:, None]
    episode = {
        "stepSeconds": dt,
        "steps": len(rewards),
        "floor": floor,  # metres; None: the environment has none
        "links": links,
        "shapes": shapes,
        "poseSteps": encoded(pose_steps, "<i4"),  # env steps before each pose
        "root": encoded(roots, "<f4"),  # [poses, 3], metres
        "poses": encoded(positions, "<f2"),  # [poses, links, 7]: x y z, quaternion x y z w
        "rewards": encoded(rewards, "<f4"),
        "distances": metres and encoded(metres, "<f4"),  # [steps + 1], metres forward
        "signals": [_signal(*signal, steps=len(rewards)) for signal in signals],
    }
    path = Path(path)
    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_page(episode, title or environment_name(env)), encoding="utf-8")
    frames, captions = zip(*kept, strict=True)
    return Recording(path, frames, captions, moment.step, moment.return_, moment.seconds)


def encoded(numbers: Any, dtype: str) -> str:
    """Numbers as those of a little-endian type, in base64."""
    return base64.b64encode(np.ascontiguousarray(numbers, dtype).tobytes()).decode()


def _signal(title: str, unit: str, values: Any, steps: int) -> dict[str, Any]:
    """A chart below the scene, of `values` `[steps, n]`."""
    names = [f"{title} {number}" for number in range(np.size(values) // steps)]
    return {"title": title, "unit": unit, "names": names, "values": encoded(values, "<f4")}


def _page(episode: dict[str, Any], title: str) -> str:
    """The HTML page of an episode; what comes from the run is escaped."""
    files = {file.name: file.read_text(encoding="utf-8") for file in VIEWER.iterdir()}
    three = gzip.compress(files["three.module.min.js"].encode(), mtime=0)
    parts = {
        **files,
        "TITLE": html.escape(title),
        # In a script element, `<` could begin a comment or end the text.
        "EPISODE": json.dumps(episode).replace("<", "\\u003c"),
        "THREE": base64.b64encode(three).decode(),
    }
    return re.sub(r"\{\{([\w.]+)\}\}", lambda match: parts[match[1]], files["page.html"])


def show(recording: Recording, title: str) -> None:
    """Displays the viewer, a link to its file, and a film strip for where no viewer is shown."""
    address = html.escape(recording.path.as_posix())
    page = html.escape(recording.path.read_text(encoding="utf-8"))  # embedded: needs no file
    page = page.replace("\n", "&#10;")  # one line in git
    viewer = f'<iframe srcdoc="{page}" title="3D replay" style="width:100%;height:640px;border:0">'
    link = f'<p>3D replay: <a href="{address}" target="_blank">{address}</a></p>'
    display.display(display.HTML(f"<div>{viewer}</iframe></div>{link}"))
    show_strip(recording, title)


def _shapes(raw: Any, client: Any) -> tuple[list[dict], list[tuple[int, int]], float | None]:
    """Every visible shape except the floor, their links, and the height of the floor in metres.

    A shape's `link` is an index of the links. Its `size` in metres: box (x, y, z); sphere (radius);
    cylinder and capsule (length along z, radius), without the round ends; for a mesh, a factor.
    """
    shapes, links, floor, ends = [], [], None, _capsule_ends(raw, client)
    for index in range(client.getNumBodies()):
        body = client.getBodyUniqueId(index)
        for number, data in enumerate(client.getVisualShapeData(body)):
            _, joint, kind, size, name, position, turn, colour = data[:8]
            link, file, mesh = (body, joint), Path(name.decode()), ""
            if KINDS[kind] == "plane" or file.name.startswith("plane"):
                floor = link_frame(client, link)[0][2] + position[2]
                continue
            if KINDS[kind] == "mesh":  # in other files than OBJ they are not drawn
                text = file.read_text() if file.suffix == ".obj" else ""
                mesh = "\n".join(re.findall(r"^[vf] .*", text, re.M))
            links += [] if link in links else [link]
            shape = {"link": links.index(link), "kind": KINDS[kind], "size": size, "mesh": mesh}
            shape |= {"position": position, "quaternion": turn, "ends": ends.get((body, number))}
            shapes.append({**shape, "colour": colour})
    return shapes, links, floor


def link_frame(client: Any, link: tuple[int, int]) -> tuple[Any, Any]:
    """A link in the world: position `[3]` in metres, quaternion `[4]` (x, y, z, w)."""
    body, joint = link  # PyBullet's numbers; joint -1 is the base
    if joint >= 0:
        return client.getLinkState(body, joint)[4:6]
    # PyBullet returns the centre of mass of a base, and not its frame.
    centre = client.getBasePositionAndOrientation(body)
    inertial = client.invertTransform(*client.getDynamicsInfo(body, -1)[3:5])
    return client.multiplyTransforms(*centre, *inertial)


def _capsule_ends(raw: Any, client: Any) -> dict[tuple[int, int], list[float]]:
    """The ends (x y z x y z) of MJCF shapes with the attribute `fromto`, by body and place in it.

    PyBullet reports such a shape at the origin of its link. The XML file lists shapes in its order.
    """
    robot: Any = getattr(raw, "robot", None)
    if not hasattr(robot, "model_xml"):
        return {}
    import pybullet_data

    tree = ET.parse(Path(pybullet_data.getDataPath()) / "mjcf" / robot.model_xml)
    texts = [geom.get("fromto") for geom in tree.iterfind("worldbody//geom")]
    counts = {body: len(client.getVisualShapeData(body)) for body in robot.objects}
    places = [(body, number) for body, count in counts.items() for number in range(count)]
    found = zip(places, texts, strict=True)
    return {place: [float(word) for word in text.split()] for place, text in found if text}
