"""Replays of real PyBullet robots: poses, shapes and the HTML file."""

import base64
import html
import json
import re

import numpy as np
import pytest

import labkit
from labkit.errors import ParameterError
from labkit.plotting import replay_3d, video
from labkit.plotting.rendering import client_of
from labkit.sac.rollout import random_policy

SAMPLE = ["MinitaurBulletEnv-v0", "AntBulletEnv-v0", "ReacherBulletEnv-v0"]


def episode_in(text):
    (data,) = re.findall(r'id="episode">(.*?)</script>', text, re.S)
    return json.loads(data)


def decoded(text, dtype):
    return np.frombuffer(base64.b64decode(text), dtype).astype(float)


@pytest.mark.parametrize("name", SAMPLE)
def test_poses_and_shapes_are_those_of_pybullet(name, tmp_path):
    env = labkit.make_environment(name, seed=0)
    assert replay_3d.can_record(env)
    policy = random_policy(env.action_spec(), seed=0)
    recording = replay_3d.record(env, policy, tmp_path / "a.html", seed=1, max_steps=12)
    episode, client = episode_in(recording.path.read_text()), client_of(env)
    poses = decoded(episode["poses"], "<f2").reshape(-1, len(episode["links"]), 7)
    root = decoded(episode["root"], "<f4").reshape(-1, 3)
    for link, pose in zip(episode["links"], poses[-1], strict=True):
        position, turn = replay_3d.link_frame(client, link)
        np.testing.assert_allclose(pose[:3] + root[-1], position, atol=5e-4)
        assert abs(np.dot(pose[3:], turn)) == pytest.approx(1, abs=1e-3)
    assert {shape["link"] for shape in episode["shapes"]} == set(range(len(episode["links"])))
    for shape in episode["shapes"]:  # PyBullet's box around a link has the length of its capsule
        if shape["ends"]:
            place, turn = replay_3d.link_frame(client, episode["links"][shape["link"]])
            ends = [client.multiplyTransforms(place, turn, end, [0, 0, 0, 1])[0]
                    for end in np.reshape(shape["ends"], (2, 3)).tolist()]  # fmt: skip
            low, high = np.array(client.getAABB(*episode["links"][shape["link"]]))
            assert (np.min(ends, axis=0) > low - 0.02).all()
            assert (np.max(ends, axis=0) < high + 0.02).all()
        if shape["kind"] == "mesh":
            assert {line[:2] for line in shape["mesh"].splitlines()} == {"v ", "f "}
    env.close()


def test_recording_does_not_change_the_episode(tmp_path):
    ends = []
    for look in (True, False):
        env = labkit.make_environment("AntBulletEnv-v0", seed=0)
        policy = random_policy(env.action_spec(), seed=0)
        if look:
            ends.append(replay_3d.record(env, policy, tmp_path / "a", seed=3, max_steps=30))
        else:
            ends += [moment for moment in video.moments(env, policy, 3, 30) if moment.last]
        env.close()
    assert ends[0].return_ == ends[1].return_


@pytest.fixture(scope="module")
def replay(tmp_path_factory):
    env = labkit.make_environment("MinitaurBulletEnv-v0", seed=0)
    path, title = tmp_path_factory.mktemp("new") / "folder" / "a.html", "</script><!--<b>walk</b>"
    policy = random_policy(env.action_spec(), seed=0)
    estimate = lambda seen, acts: seen[:, 0] + acts[:, 0]  # noqa: E731
    options = {"title": title, "seed": 0, "max_steps": 25, "estimate": estimate}
    yield replay_3d.record(env, policy, path, **options)
    env.close()


def test_the_page_holds_the_episode_fetches_nothing_and_escapes(replay):
    text = replay.path.read_text()
    assert len(text) < 1_000_000
    assert "<b>walk" not in text
    assert "<title>&lt;/script&gt;&lt;!--" in text
    assert "default-src 'none'" in text  # the browser refuses every request
    assert not re.search(r"""(src|href)\s*=|@import|url\(|fetch\(|XMLHttp|https?:""", text)
    episode = episode_in(text)
    assert decoded(episode["poseSteps"], "<i4").tolist() == [*range(0, 25, 4), 25]
    assert decoded(episode["rewards"], "<f4").sum() == pytest.approx(replay.return_, abs=1e-6)
    sizes = {each["title"]: (len(decoded(each["values"], "<f4")), len(each["names"]))
             for each in episode["signals"]}  # fmt: skip
    assert sizes == {"motor torque": (25 * 8, 8), "estimated Q": (25, 1), "reward": (25, 1)}


def test_values_from_a_run_are_escaped(replay, tmp_path):
    """A link or a joint may have any name, too."""
    page = replay_3d._page({"signals": ["</script><img src=x>"]}, "<img src=x>")
    assert "<img" not in page
    assert episode_in(page) == {"signals": ["</script><img src=x>"]}


def test_other_environments_are_rejected(tmp_path):
    env = labkit.make_environment("Pendulum-v1", seed=0)
    assert not replay_3d.can_record(env)
    with pytest.raises(ParameterError, match="`env` must be a PyBullet environment, got 'Pend"):
        replay_3d.record(env, None, tmp_path / "a.html")


def test_a_notebook_shows_viewer_link_and_strip(replay, monkeypatch):
    import IPython.display

    shown = []
    monkeypatch.setattr(IPython.display, "display", shown.append)
    replay_3d.show(replay, "walk")
    page, strip = shown
    (embedded,) = re.findall('<iframe srcdoc="(.*?)"', page.data)
    assert html.unescape(embedded) == replay.path.read_text()
    assert f'href="{replay.path.as_posix()}"' in page.data
    assert strip._repr_png_()[1]["alt"].startswith("Film strip of walk: 0.2 s")
