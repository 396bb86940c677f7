"""An episode of a PyBullet robot as one HTML file: play it, drag through time, walk around it.

    replay = replay_3d.record(env, policy, seed=0)
    replay_3d.write_html(replay, "replay.html")
    replay_3d.show(replay, "replay.html")          # in a notebook: writes the file, too

The file fetches nothing. It contains the poses of all links, and three.js (see viewer/README.md).
"""

import gzip
import html
import json
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from labkit.environments.physics import forward_position, step_seconds
from labkit.environments.seeding import environment_name, raw_env
from labkit.errors import storage
from labkit.parameters import MANY, check_int, check_real, invalid
from labkit.plotting import replay_json
from labkit.plotting.film_strip import FrameSample, film_strip
from labkit.plotting.rendering import frame
from labkit.plotting.robot_shapes import (
    Link,
    Shape,
    check_pybullet,
    client_of,
    is_pybullet,
    link_frame,
    shapes_of,
)
from labkit.plotting.video import caption_of
from labkit.sac.rollout import play

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

    from labkit.sac.rollout import Policy

# Estimates the return after an action: observations [n, obs] and actions [n, act] → [n].
Estimate = Callable[[np.ndarray, np.ndarray], np.ndarray]
VIEWER = resources.files("labkit.plotting") / "viewer"
MAX_BYTES = 3_000_000  # of one file


@attrs.frozen
class Signal:
    """A quantity with one row per env step, drawn below the scene: `values` `[steps, n]`."""

    title: str
    unit: str
    names: tuple[str, ...]  # [n]
    values: np.ndarray = attrs.field(repr=False)


@attrs.frozen
class Replay:
    """A recorded episode; pose k shows the state after `steps_of_poses[k]` env steps.

    float16 resolves 8 mm at a distance of 14 m, so it stores positions relative to the root: the
    error of a point within 1 m of the root is less than 0.5 mm, and the root itself is float32.
    """

    name: str  # of the environment
    step_seconds: float
    steps: int
    ended: str  # termination, truncation, or cut by max_steps
    shapes: tuple[Shape, ...] = attrs.field(repr=False)
    floor: float | None  # metres; None: the environment has none
    links: tuple[Link, ...] = attrs.field(repr=False)
    steps_of_poses: np.ndarray = attrs.field(repr=False)  # [poses] int32
    root: np.ndarray = attrs.field(repr=False)  # [poses, 3] float32, metres
    poses: np.ndarray = attrs.field(
        repr=False
    )  # [poses, links, 7] float16: x y z relative to root,
    # then the quaternion x y z w
    rewards: np.ndarray = attrs.field(repr=False)  # [steps] float32
    distances: np.ndarray | None = attrs.field(repr=False)  # [steps + 1] float32, metres forward
    signals: tuple[Signal, ...] = attrs.field(repr=False)
    frames: tuple[np.ndarray, ...] = attrs.field(repr=False)  # for the film strip
    captions: tuple[str, ...] = attrs.field(repr=False)

    @property
    def return_(self) -> float:
        """Undiscounted sum of rewards."""
        return float(self.rewards.sum(dtype=float))

    def __str__(self) -> str:
        seconds = self.steps * self.step_seconds
        text = f"{self.name}: {seconds:.1f} s, {self.steps} steps, return {self.return_:+.2f}"
        return text if self.distances is None else f"{text}, {self.distances[-1]:.2f} m forward"


# --- recording


def can_record(env: "PyEnvironment") -> bool:
    """Whether `record` accepts the environment: PyBullet simulates it."""
    return is_pybullet(env)


def record(
    env: "PyEnvironment",
    policy: "Policy",
    *,
    seed: int | None = None,
    rate: float = 50,
    max_steps: int = 1000,
    estimate: Estimate | None = None,
) -> Replay:
    """Plays one episode and records the pose of every link.

    Args:
        env: a PyBullet environment from `labkit.make_environment`.
        policy: maps an observation `[obs]` to an action `[act]`.
        seed: passed to `env.seed` before the reset; None does not seed the environment.
        rate: poses per simulated second, at most; the viewer interpolates between them.
        max_steps: the recording ends after this many env steps.
        estimate: the estimated Q of each action, drawn while it lasts (for an agent of labkit,
            `agent.estimated_q`); None leaves the chart out.

    Raises:
        ParameterError: a number is not allowed, or `env` is not a PyBullet environment.
    """
    rate = check_real("rate", rate, 0, MANY, "poses per simulated second", above=True)
    max_steps = check_int("max_steps", max_steps, 1, MANY, "env steps")
    check_pybullet(env)
    if seed is not None:
        env.seed(seed)
    first = env.reset()  # some environments have no client, and no robot, before it
    recorder, transitions = _Recorder(env, rate), []
    recorder.look(0, 0.0, False)
    return_, ended = 0.0, f"max_steps={max_steps}"
    for step, (transition, over) in enumerate(play(env, policy, first), start=1):
        transitions.append(transition)
        return_ += float(transition.reward)
        recorder.look(step, return_, over or step == max_steps)
        if over:
            ended = "truncation" if transition.discount else "termination"
        if step == max_steps:
            break
    observations, actions, rewards = (
        np.array([getattr(each, name) for each in transitions], np.float32)
        for name in ("observation", "action", "reward")
    )
    signals = [_effort(env, actions, recorder.torques)]
    if estimate is not None:
        values = np.reshape(estimate(observations, actions), (-1, 1)).astype(np.float32)
        signals.append(Signal("estimated Q", "scaled return", ("Q",), values))
    signals.append(Signal("reward", "per step", ("reward",), rewards[:, None]))
    return recorder.replay(ended, rewards, tuple(signals))


class _Recorder:
    """Collects what is seen of an episode: poses, torques, distances and some pictures."""

    def __init__(self, env: "PyEnvironment", rate: float):
        self.torques: list[np.ndarray | None] = []
        self._env, self._client = env, client_of(env)
        self._shapes, self._floor = shapes_of(env)
        self._links = tuple(dict.fromkeys(shape.link for shape in self._shapes))
        self._dt, self._start = step_seconds(env), forward_position(env)
        self._every = max(1, int(np.ceil(1 / (rate * self._dt) - 1e-6)))
        # A link that moves: that of the robot's trunk, which comes first.
        jointed = [link for link in self._links if self._client.getNumJoints(link[0])]
        self._root = self._links.index((jointed or self._links)[0])
        self._steps: list[int] = []
        self._poses: list[np.ndarray] = []
        self._distances: list[float] = []
        self._frames = FrameSample()

    def look(self, step: int, return_: float, last: bool) -> None:
        """Records the present state, after `step` env steps."""
        position = forward_position(self._env)
        metres = None if position is None or self._start is None else position - self._start
        self._distances.append(np.nan if metres is None else metres)
        if step:
            self.torques.append(_motor_torques(self._env))
        if step % self._every == 0 or last:
            self._steps.append(step)
            frames = [link_frame(self._client, link) for link in self._links]
            self._poses.append(np.array([[*place, *turn] for place, turn in frames]))
        if last or step % max(1, round(0.1 / self._dt)) == 0:
            text = caption_of(step * self._dt, metres, return_)
            self._frames.add(frame(self._env), text, keep=last)

    def replay(self, ended: str, rewards: np.ndarray, signals: tuple[Signal, ...]) -> Replay:
        """The recorded episode."""
        poses = np.array(self._poses)
        root = poses[:, self._root, :3].astype(np.float32)
        poses[:, :, :3] -= root[:, None]
        distances = np.array(self._distances, np.float32)
        frames, captions = zip(*self._frames.kept, strict=True)
        return Replay(
            name=environment_name(self._env),
            step_seconds=self._dt,
            steps=len(rewards),
            ended=ended,
            shapes=self._shapes,
            floor=self._floor,
            links=self._links,
            steps_of_poses=np.array(self._steps, np.int32),
            root=root,
            poses=poses.astype(np.float16),
            rewards=rewards,
            distances=None if np.isnan(distances).any() else distances,
            signals=signals,
            frames=frames,
            captions=captions,
        )


def _motor_torques(env: "PyEnvironment") -> np.ndarray | None:
    """Torques of the Minitaur's motors `[8]` in N·m; other robots report none."""
    robot = getattr(raw_env(env), "minitaur", None)
    return None if robot is None else np.array(robot.GetMotorTorques(), np.float32)


def _effort(env: "PyEnvironment", actions: np.ndarray, torques: list[Any]) -> Signal:
    """The torques of the motors, or, where a robot does not report them, the actions."""
    if torques[0] is not None:
        legs = ("front left", "back left", "front right", "back right")
        names = tuple(f"{leg} {motor}" for leg in legs for motor in ("L", "R"))
        return Signal("motor torque", "N·m", names, np.stack(torques))
    joints = getattr(getattr(raw_env(env), "robot", None), "ordered_joints", None) or []
    names = tuple(getattr(joint, "joint_name", "") for joint in joints)
    if len(names) != actions.shape[1]:
        names = tuple(f"action[{number}]" for number in range(actions.shape[1]))
    return Signal("action", "", names, actions)


# --- one HTML file


def write_html(replay: Replay, path: str | Path, title: str | None = None) -> Path:
    """Writes the replay and its viewer as one HTML file, which fetches nothing; returns its path.

    Raises:
        ParameterError: the file would exceed `MAX_BYTES`.
        StorageError: it cannot be written.
    """
    path, text = Path(path), page(replay, title)
    if (size := len(text.encode())) > MAX_BYTES:
        allowed = f"an episode whose file has at most {MAX_BYTES} bytes (record fewer steps)"
        raise invalid("replay", size, allowed)
    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return path


def page(replay: Replay, title: str | None = None) -> str:
    """The HTML page of a replay; the title is escaped."""
    title = title or replay.name
    parts = {
        "TITLE": html.escape(title),
        "STYLE": _file("viewer.css"),
        # In a script element, only `</` could end the text early.
        "EPISODE": json.dumps(replay_json.episode(replay, title)).replace("</", "<\\/"),
        "THREE": _three(),
        "CHARTS": _file("charts.js"),
        "VIEWER": _file("viewer.js"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _file("page.html"))


def show(replay: Replay, path: str | Path, title: str | None = None) -> None:
    """Writes the file (see `write_html`) and displays it in a notebook, above a film strip.

    JupyterLab hides the viewer in a notebook that is not trusted, and GitHub always hides it. The
    film strip and the link to the file remain.

    Args:
        replay: see `record`.
        path: the HTML file, relative to the working directory.
        title: by default the name of the environment.
    """
    from IPython import display  # only notebooks need it

    file = write_html(replay, path, title)
    address = html.escape(Path(path).as_posix())
    viewer = viewer_html(file)
    link = f'<p>3D replay: <a href="{address}" target="_blank">{address}</a></p>'
    display.display(display.HTML(viewer + link))
    text = f"{title or replay.name}: {replay}"
    strip = film_strip(replay.frames, captions=replay.captions, title=text)
    display.display(display.Image(strip, format="png", alt=f"Film strip of {text}"))


def viewer_html(file: Path) -> str:
    """HTML that embeds a file of `write_html` in a notebook, which works without the file."""
    page = html.escape(file.read_text(encoding="utf-8")).replace("\n", "&#10;")  # one line in git
    viewer = f'<iframe srcdoc="{page}" title="3D replay" style="width:100%;height:640px;border:0">'
    # IPython prints a warning if the HTML is an iframe and nothing else.
    return f"<div>{viewer}</iframe></div>"


def _file(name: str) -> str:
    return (VIEWER / name).read_text(encoding="utf-8")


def _three() -> str:
    """three.js as gzip in base64; its exports become one object, since a page has no modules."""
    code = _file("three.module.min.js")
    before, exports = code.rsplit("export{", 1)
    names = re.sub(r"([\w$]+) as (\w+)", r"\2:\1", exports.split("}")[0])
    return replay_json.encoded(
        gzip.compress(f"{before}window.THREE={{{names}}};".encode(), mtime=0)
    )
