"""Replays of real PyBullet robots: poses, shapes and the HTML file."""

import base64
import html
import json
import re

import numpy as np
import pytest

import labkit
from labkit.errors import ParameterError
from labkit.plotting import replay_3d, replay_json, robot_shapes
from labkit.sac.rollout import random_policy

NAMES = [
    "MinitaurBulletEnv-v0",
    "AntBulletEnv-v0",
    "HopperBulletEnv-v0",
    "HumanoidBulletEnv-v0",
    "InvertedPendulumBulletEnv-v0",
    "ReacherBulletEnv-v0",
]


def rotated(quaternion, points):
    x, y, z, w = quaternion
    axis = np.array([x, y, z])
    return points + 2 * np.cross(axis, np.cross(axis, points) + w * points)


def corners(shape):
    """The corners of a box around a shape, in the frame of its link."""
    length, radius = shape.size[:2]
    half = {
        "box": np.divide(shape.size, 2),
        "sphere": np.full(3, length),
        "capsule": np.array([radius, radius, length / 2 + radius]),
        "cylinder": np.array([radius, radius, length / 2]),
    }
    if shape.kind == "mesh":
        points = shape.mesh.vertices
    else:
        signs = np.stack(np.meshgrid(*[[-1, 1]] * 3), -1).reshape(-1, 3)
        points = signs * half[shape.kind]
    return rotated(shape.quaternion, points) + shape.position


@pytest.mark.parametrize("name", NAMES)
def test_poses_and_shapes_are_pybullet_s(name):
    env = labkit.make_environment(name, seed=0)
    policy = random_policy(env.action_spec(), seed=0)
    assert replay_3d.can_record(env)
    replay = replay_3d.record(env, policy, seed=1, max_steps=12)
    client = robot_shapes.client_of(env)
    for link, pose in zip(replay.links, replay.poses[-1].astype(float), strict=True):
        position, turn = robot_shapes.link_frame(client, link)
        np.testing.assert_allclose(pose[:3] + replay.root[-1], position, atol=5e-4)
        assert abs(np.dot(pose[3:], turn)) == pytest.approx(1, abs=1e-3)
        # PyBullet's box around a link is exact for boxes, spheres and cylinders, larger for others.
        mine = [shape for shape in replay.shapes if shape.link == link]
        points = rotated(turn, np.concatenate([corners(shape) for shape in mine])) + position
        low, high = np.array(client.getAABB(*link))
        centre = (points.min(axis=0) + points.max(axis=0)) / 2
        np.testing.assert_allclose(centre, (low + high) / 2, atol=0.03)
        if (high - low).max() < 0.01:  # around one motor of the Minitaur it has 3 mm
            continue
        extent = np.ptp(points, axis=0)
        assert (extent < 1.75 * (high - low) + 0.006).all(), "the box of a turned sphere is larger"
        if {shape.kind for shape in mine} <= {"box", "sphere", "cylinder"}:
            assert (extent > 0.85 * (high - low)).all()
    env.close()


@pytest.mark.parametrize("name", ["MinitaurBulletEnv-v0", "AntBulletEnv-v0"])
def test_recording_does_not_change_the_episode(name):
    def observed(look):
        env, seen = labkit.make_environment(name, seed=0), []
        policy = random_policy(env.action_spec(), seed=0)

        def act(observation):
            seen.append(observation)
            return policy(observation)

        if look:
            rewards = replay_3d.record(env, act, seed=3, max_steps=30).rewards
        else:
            env.seed(3)
            step, rewards = env.reset(), []
            while len(seen) < 30 and not step.is_last():
                step = env.step(act(step.observation))
                rewards.append(step.reward)
        env.close()
        return np.array(seen), np.array(rewards)

    for one, two in zip(observed(True), observed(False), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.fixture(scope="module")
def replay():
    env = labkit.make_environment("MinitaurBulletEnv-v0", seed=0)
    policy = random_policy(env.action_spec(), seed=0)
    yield replay_3d.record(
        env, policy, seed=0, max_steps=25, estimate=lambda seen, acts: seen[:, 0] + acts[:, 0]
    )
    env.close()


def decoded(text, dtype):
    return np.frombuffer(base64.b64decode(text), dtype)


def test_far_from_the_origin_float16_is_as_exact(replay):
    """Positions are relative to the root; 14 m in float16 would be off by up to 4 mm."""
    assert replay.poses.dtype == np.float16
    offsets = replay.poses[..., :3].astype(float)
    assert np.abs(offsets).max() < 1
    assert np.spacing(np.float16(np.abs(offsets).max())) / 2 < 5e-4


def test_rate_and_last_pose(replay):
    assert replay.steps_of_poses.tolist() == [*range(0, 25, 2), 25]  # 50 Hz of 100, and the last
    assert replay.ended == "max_steps=25"


def test_signals_have_a_row_for_each_step(replay):
    shapes = {signal.title: signal.values.shape for signal in replay.signals}
    assert shapes == {"motor torque": (25, 8), "estimated Q": (25, 1), "reward": (25, 1)}
    assert replay.return_ == pytest.approx(replay.rewards.sum())


def test_q_is_shown_for_as_long_as_its_action_lasts():
    env = labkit.make_environment("MinitaurBulletEnv-v0", seed=0)
    policy = random_policy(env.action_spec(), seed=0, repeat=2)
    options = {"max_steps": 6, "estimate": lambda seen, acts: seen[:, 0]}
    recorded = replay_3d.record(env, policy, seed=0, **options)
    env.close()
    (shown,) = (signal.values[:, 0] for signal in recorded.signals if signal.title == "estimated Q")
    np.testing.assert_array_equal(shown[0::2], shown[1::2])
    assert len(set(shown)) == 3


def test_html_holds_the_episode_and_fetches_nothing(replay, tmp_path):
    title = "</script><b>walk</b>"
    file = replay_3d.write_html(replay, tmp_path / "new" / "a.html", title)
    text = file.read_text()
    assert len(text) < 1_000_000
    assert "<b>walk" not in text.replace("<\\/script><b>walk", "")
    (data,) = re.findall(r'id="episode">(.*?)</script>', text, re.S)
    episode = json.loads(data)
    assert episode["title"] == title
    poses = decoded(episode["poses"], "<f2").reshape(replay.poses.shape)
    np.testing.assert_array_equal(poses, replay.poses)
    np.testing.assert_array_equal(decoded(episode["rewards"], "<f4"), replay.rewards)
    assert "default-src 'none'" in text  # the browser refuses every request
    assert not re.search(r"""(src|href)\s*=|@import|url\(|fetch\(|XMLHttp|https?:""", text)


def test_a_mesh_survives_quantisation(replay):
    (mesh,) = {id(s.mesh): s.mesh for s in replay.shapes[:40] if s.mesh}.popitem()[1:]
    packed = replay_json.quantised(mesh)
    numbers = decoded(packed["vertices"], "<u2").reshape(-1, 3)
    found = packed["origin"] + packed["step"] * numbers
    np.testing.assert_allclose(found, mesh.vertices, atol=1e-5)


def test_large_meshes_are_simplified(monkeypatch):
    n = 60  # a wavy square of n² points and 2 (n - 1)² triangles
    x, y = np.meshgrid(np.linspace(0, 2, n), np.linspace(0, 1, n))
    points = np.stack([x, y, 0.1 * np.sin(5 * x)], -1).reshape(-1, 3)
    corner = (np.arange(n - 1)[:, None] * n + np.arange(n - 1)).ravel()
    halves = [[corner, corner + 1, corner + n], [corner + 1, corner + n + 1, corner + n]]
    mesh = robot_shapes.Mesh(points, np.concatenate([np.transpose(half) for half in halves]))
    monkeypatch.setattr(robot_shapes, "MAX_TRIANGLES", 2000)
    small = robot_shapes.simplified(mesh)
    assert 0 < len(small.triangles) <= 2000
    assert small.triangles.max() < len(small.vertices)
    np.testing.assert_allclose(np.ptp(small.vertices, axis=0), [2, 1, 0.2], atol=0.1)


def test_a_file_above_the_limit_is_refused(replay, tmp_path, monkeypatch):
    monkeypatch.setattr(replay_3d, "MAX_BYTES", 1000)
    with pytest.raises(ParameterError, match="at most 1000 bytes"):
        replay_3d.write_html(replay, tmp_path / "a.html")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [{"rate": 0}, {"max_steps": 0}, {"max_steps": 2.5}])
def test_wrong_numbers_are_refused(wrong):
    with pytest.raises(ParameterError, match=f"^`{next(iter(wrong))}` must be a .*number"):
        replay_3d.record(None, None, **wrong)


def test_other_environments_are_refused():
    env = labkit.make_environment("Pendulum-v1", seed=0)
    assert not replay_3d.can_record(env)
    with pytest.raises(ParameterError, match="`env` must be a PyBullet environment, got 'Pend"):
        replay_3d.record(env, None)


def test_a_notebook_shows_viewer_link_and_strip(replay, tmp_path, monkeypatch):
    import IPython.display

    shown = []
    monkeypatch.setattr(IPython.display, "display", shown.append)
    monkeypatch.chdir(tmp_path)
    replay_3d.show(replay, "videos/a.html", "walk")
    page, strip = shown
    (embedded,) = re.findall('<iframe srcdoc="(.*?)"', page.data)
    assert html.unescape(embedded) == (tmp_path / "videos" / "a.html").read_text()
    assert 'href="videos/a.html"' in page.data
    assert strip._repr_png_()[1]["alt"].startswith("Film strip of walk: MinitaurBulletEnv-v0")
