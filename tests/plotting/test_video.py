"""Recordings of the real Minitaur, read back from the file."""

import base64
import os
import random
import re
from pathlib import Path

import gym
import imageio.v2 as imageio
import numpy as np
import pybullet_envs  # noqa: F401  (registers the Minitaur)
import pytest
from PIL import Image
from small_disk import fill, small_disk

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
from labkit.environments.make import make_environment
from labkit.environments.seeding import raw_env
from labkit.errors import ParameterError, StorageError
from labkit.plotting import film_strip, mp4, rendering, video

WIDTH, HEIGHT = 160, 120  # small, for speed


def stand(_observation):
    return np.zeros(8, np.float32)


@pytest.fixture(scope="module")
def minitaur():
    from tf_agents.environments import suite_gym

    env = suite_gym.wrap_env(gym.make("MinitaurBulletEnv-v0").unwrapped)
    yield env
    env.close()


def record(env, path, policy=stand, **options):
    options = {"width": WIDTH, "height": HEIGHT, "max_steps": 50} | options
    return video.record_episode(env, policy, path, **options)


def read(path):
    with imageio.get_reader(path) as reader:
        return reader.get_meta_data(), list(reader.iter_data())


def leftovers(folder):
    return sorted(path.name for path in folder.iterdir())


def atoms(path):
    """The top-level boxes of an MP4, in order."""
    data, at, names = path.read_bytes(), 0, []
    while at < len(data):
        names.append(data[at + 4 : at + 8].decode())
        at += int.from_bytes(data[at : at + 4], "big")
    return names


def test_video_plays_in_browsers_and_lasts_as_long_as_the_simulation(minitaur, tmp_path):
    recording = record(minitaur, tmp_path / "new" / "folder" / "stand.mp4", seed=1)
    meta, frames = read(recording.path)
    assert meta["codec"] == "h264"
    assert meta["pix_fmt"].startswith("yuv420p")
    assert meta["size"] == (WIDTH, HEIGHT)
    assert meta["fps"] == 25
    assert len(frames) == 13  # steps 0, 4, …, 48
    assert recording.steps == 50
    assert recording.seconds == pytest.approx(0.5)
    assert abs(meta["duration"] - recording.seconds) < 1 / 25
    assert atoms(recording.path).index("moov") < atoms(recording.path).index("mdat")  # faststart
    assert leftovers(recording.path.parent) == ["stand.mp4"]


@pytest.mark.parametrize(
    ("step_seconds", "fps", "steps"),
    [(0.01, 25, 7), (0.0165, 25, 33), (0.02, 30, 41), (0.1, 25, 9), (1 / 30, 60, 1)],
)
def test_duration_for_any_ratio_of_the_rates(
    minitaur, tmp_path, monkeypatch, step_seconds, fps, steps
):
    monkeypatch.setattr(video, "frame", lambda *_: np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    monkeypatch.setattr(video.physics, "step_seconds", lambda _: step_seconds)
    recording = record(minitaur, tmp_path / "a.mp4", fps=fps, max_steps=steps)
    meta, frames = read(recording.path)
    assert meta["fps"] == pytest.approx(min(fps, 1 / step_seconds), abs=0.01)
    assert abs(len(frames) / meta["fps"] - steps * step_seconds) < 1 / meta["fps"]


def test_the_clock_of_a_robot_is_right_from_its_first_episode(tmp_path):
    """Before the reset, this robot reports 60 steps a second: that is 1 % too fast."""
    env = make_environment("InvertedPendulumBulletEnv-v0", seed=0)
    policy = lambda _: np.zeros(1, np.float32)  # noqa: E731
    recording = record(env, tmp_path / "a.mp4", policy, max_steps=4)
    assert recording.seconds == pytest.approx(4 * 0.0165)


def test_a_colon_in_a_path_is_no_protocol(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("12:30:00") / "clip.mp4"
    with mp4.writing(path, (WIDTH, HEIGHT), 25) as write:
        for shade in (0, 100, 200):
            write(np.full((HEIGHT, WIDTH, 3), shade, np.uint8))
    assert mp4.count_frames(path) == 3


def minitaur_position(env):
    return raw_env(env).minitaur.GetBasePosition()[0]


def test_recording_is_the_episode(minitaur, tmp_path):
    actions = []

    start = []

    def policy(observation):
        start.append(minitaur_position(minitaur))  # before the first step: where it began
        assert observation.shape == (28,)
        actions.append(np.full(8, 0.1 * np.sin(len(actions) / 5), np.float32))
        return actions[-1]

    rewards, step = [], minitaur.step
    minitaur.step = lambda action: rewards.append(step(action)) or rewards[-1]
    try:
        recording = record(minitaur, tmp_path / "a.mp4", policy)
    finally:
        del minitaur.step
    assert len(actions) == recording.steps == 50
    assert recording.return_ == pytest.approx(sum(float(each.reward) for each in rewards))
    # The pictures include the first and the last state, each with its caption.
    assert recording.captions[0] == "0.0 s   0.00 m\nreturn +0.00"
    walked = minitaur_position(minitaur) - start[0]
    end = f"0.5 s   {walked:.2f} m\nreturn {recording.return_:+.2f}"
    assert recording.captions[-1] == end
    assert len(recording.frames) == len(recording.captions) == 14
    assert np.any(recording.frames[0] != recording.frames[-1])
    caption_corner = read(recording.path)[1][0][-20:, :60].astype(int)
    assert (
        np.abs(caption_corner - recording.frames[0][-20:, :60]).max() > 100
    )  # the caption is drawn into the frame


def test_episode_that_ends_early(minitaur, tmp_path):
    def jump(_observation):
        return np.array([-1, 1, -1, 1, 1, 1, -1, -1], np.float32)

    recording = record(minitaur, tmp_path / "fall.mp4", jump, max_steps=1000, seed=0, fps=5)
    assert 1 < recording.steps < 1000
    assert minitaur.current_time_step().is_last()
    assert len(recording.frames) >= 2


def test_recordings_of_long_episodes_keep_few_frames(minitaur, tmp_path, monkeypatch):
    monkeypatch.setattr(film_strip, "KEPT_FRAMES", 6)
    recording = record(minitaur, tmp_path / "a.mp4", fps=100)
    times = [caption.split()[0] for caption in recording.captions]
    assert times == ["0.0", "0.2", "0.3", "0.5", "0.5"], "of steps 0, 16, 32, 48 and 50"


def test_frame_follows_the_robot(minitaur):
    minitaur.reset()
    raw = raw_env(minitaur)
    here = rendering.frame(minitaur, 320, 240)
    assert here.shape == (240, 320, 3)
    assert here.dtype == np.uint8

    def dark(picture):
        """The mean row and column of the robot's dark body."""
        return np.argwhere(picture.max(axis=2) < 80).mean(axis=0)

    place, turn = raw._pybullet_client.getBasePositionAndOrientation(raw.minitaur.quadruped)
    try:
        x, y, z = place
        raw._pybullet_client.resetBasePositionAndOrientation(
            raw.minitaur.quadruped, (x + 40.5, y + 3, z), turn
        )
        far = rendering.frame(minitaur, 320, 240)
    finally:
        raw._pybullet_client.resetBasePositionAndOrientation(raw.minitaur.quadruped, place, turn)
    np.testing.assert_allclose(dark(far), dark(here), atol=2)
    assert np.abs(dark(here) - (120, 160)).max() < 50  # near the centre
    assert np.mean(np.abs(far.astype(int) - here) > 20) > 0.2  # the ground has moved


def test_drawing_does_not_touch_the_simulation(minitaur, tmp_path):
    def play(draw):
        random.seed(5)
        np.random.seed(5)
        minitaur.reset()
        for _ in range(12):
            time_step = minitaur.step(np.full(8, 0.3, np.float32))
            if draw:
                rendering.frame(minitaur, 64, 48)
        return time_step.observation

    np.testing.assert_array_equal(play(draw=True), play(draw=False))


@pytest.mark.parametrize(
    "name", ["HalfCheetahBulletEnv-v0", "InvertedPendulumBulletEnv-v0", "CartPole-v1"]
)
def test_other_environments_can_be_drawn(name):
    from tf_agents.environments import suite_gym

    env = suite_gym.wrap_env(gym.make(name).unwrapped)
    with pytest.raises(ParameterError, match=r"^`env` must be reset .*env\.reset\(\) first$"):
        rendering.frame(env)
    env.reset()
    picture = rendering.frame(env, 200, 150)
    assert picture.shape == (150, 200, 3)
    assert picture.dtype == np.uint8
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 5
    env.close()


@pytest.mark.parametrize(
    ("methods", "found"),
    [
        ({}, r"NotImplementedError\(\)"),
        ({"render": lambda self: np.zeros((9, 9, 3))}, r"TypeError\(.*'mode'.*"),
        ({"render": lambda self, mode: None}, "None"),
        ({"render": lambda self, mode: np.zeros((9, 9))}, r"array\(.*"),
    ],
)
def test_an_environment_that_cannot_be_drawn_is_one_line(methods, found):
    box = gym.spaces.Box(-1, 1, (1,), np.float32)
    spaces = {"observation_space": box, "action_space": box}
    start = {"reset": lambda self: np.zeros(1, np.float32)}
    env = make_environment(type("Mine", (gym.Env,), {**spaces, **start, **methods}))
    env.reset()
    with pytest.raises(ParameterError, match=f"^`make_env` must be .*, got {found}$") as caught:
        rendering.frame(env)
    assert "\n" not in str(caught.value)


def test_metre_marks_are_drawn_where_the_ground_is(minitaur, monkeypatch):
    minitaur.reset()
    marked = rendering.frame(minitaur, 320, 240).astype(int)
    nothing = (np.zeros((240, 320, 3), np.float32), np.zeros((240, 320), np.float32))
    monkeypatch.setattr(rendering.metre_marks, "overlay", lambda *_: nothing)
    plain = rendering.frame(minitaur, 320, 240).astype(int)
    changed = np.abs(marked - plain).max(axis=2) > 20
    assert 0.005 < changed.mean() < 0.2
    assert not changed[plain.max(axis=2) < 60].any()  # the robot's dark body is in front of them


def test_metre_marks_stand_at_whole_metres():
    """A camera that looks straight down: 100 pixels a metre, x to the right."""
    to_pixel = np.array([[100.0, 0, 50], [0, -100, 200], [0, 0, 1]])
    _, opacity = rendering.metre_marks.overlay(to_pixel, (1.5, 0.0), 1.0, (400, 400))
    row = opacity[230]  # y = −0.3 m: right of the robot, below ticks and numbers
    np.testing.assert_array_equal(np.unique(np.flatnonzero(row > 0.7) // 100), [0, 1, 2, 3])
    assert (row[50::100] > 0.7).all()
    assert (row[100::100] == 0).all()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("before", [None, b"an older video"])
def test_an_interrupt_leaves_no_incomplete_file(minitaur, tmp_path, error, before):
    path, calls = tmp_path / "a.mp4", []
    if before:
        path.write_bytes(before)

    def policy(observation):
        calls.append(leftovers(tmp_path))
        if len(calls) == 20:
            raise error
        return stand(observation)

    with pytest.raises(error):
        record(minitaur, path, policy)
    assert any(name.startswith(".recording") for name in calls[-1])  # there was a draft to remove
    assert leftovers(tmp_path) == (["a.mp4"] if before else [])
    assert not before or path.read_bytes() == before


def test_a_large_video_is_encoded_at_lower_quality(minitaur, tmp_path):
    full = record(minitaur, tmp_path / "a.mp4")
    limit = full.path.stat().st_size * 2 // 3
    smaller = record(minitaur, tmp_path / "b.mp4", max_bytes=limit)
    assert smaller.path.stat().st_size <= limit
    meta, frames = read(smaller.path)
    assert (meta["codec"], len(frames)) == ("h264", 13)
    assert "moov" in atoms(smaller.path)[:3]


def test_an_impossible_size_limit_is_reported(minitaur, tmp_path):
    expected = r"^`max_bytes` must be at least \d+, .* \(or record fewer steps, .*\), got 500$"
    with pytest.raises(ParameterError, match=expected) as error:
        record(minitaur, tmp_path / "a.mp4", max_bytes=500)
    assert "\n" not in str(error.value)
    assert leftovers(tmp_path) == []


def test_lost_frames_are_detected(minitaur, tmp_path, monkeypatch):
    monkeypatch.setattr(mp4.imageio_ffmpeg, "count_frames_and_secs", lambda _: (7, 0.28))
    with pytest.raises(RuntimeError, match="all 13 frames"):
        record(minitaur, tmp_path / "a.mp4")
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "wrong",
    [
        *({"width": 161}, {"width": True}, {"height": 0}),
        *({"fps": 0}, {"fps": float("nan")}, {"max_steps": 0}, {"max_steps": 2.5}),
    ],
)
def test_invalid_numbers_are_rejected_before_recording(tmp_path, wrong):
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}` must be"):
        record(None, tmp_path / "a.mp4", **wrong)
    assert leftovers(tmp_path) == []


def pictures(count):
    """Grey pictures; each has the value of 10 times its index."""
    return [np.full((60, 80, 3), 10 * i, np.uint8) for i in range(count)]


def strip_of(png, tmp_path):
    (tmp_path / "strip.png").write_bytes(png)
    return np.asarray(Image.open(tmp_path / "strip.png").convert("RGB")).astype(int)


def test_film_strip_holds_first_last_and_evenly_spaced_frames(tmp_path):
    strip = strip_of(film_strip.film_strip(pictures(21), columns=6), tmp_path)
    assert strip.shape == (150, 6 * 206 - 6, 3)
    centres = strip[75, 100::206, 0]
    np.testing.assert_allclose(centres, [0, 40, 80, 120, 160, 200], atol=3)


def test_film_strip_of_a_short_episode(tmp_path):
    strip = strip_of(
        film_strip.film_strip(pictures(2), captions=["0.0 s", "0.1 s"], title="fell"), tmp_path
    )
    assert strip.shape == (150 + 44, 2 * 206 - 6, 3)
    assert strip[:22].min() < 100  # the title
    assert strip[-22:, :200].min() < 100  # a caption below each picture
    assert strip[-22:, 206:].min() < 100
    with pytest.raises(ParameterError, match=r"^`frames` must be one or more pictures, got \[\]$"):
        film_strip.film_strip([])
    with pytest.raises(ParameterError, match=r"^`columns` must be a whole number from 1 to"):
        film_strip.film_strip(pictures(2), columns=0)
    with pytest.raises(ParameterError, match=r"^`captions` must be one for each of the 2 fram"):
        film_strip.film_strip(pictures(2), captions=["a"])


@pytest.fixture
def recording(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"the video")
    captions = tuple(f"{i}.0 s" for i in range(8))
    return video.Recording(tmp_path / "a.mp4", tuple(pictures(8)), captions, 800, 3.25, 8.0)


def test_html_embeds_the_video_and_escapes_the_title(recording, tmp_path):
    title = 'a"><script>alert(1)</script>'
    page = video.video_html([recording], [title])
    assert "<script" not in page
    assert "a&quot;&gt;&lt;script&gt;" in page
    (data,) = re.findall(r'src="data:video/mp4;base64,([^"]*)"', page)
    assert base64.b64decode(data) == b"the video"
    (tag,) = re.findall(r"<video [^>]*>", page)
    for attribute in ("controls", "loop", "muted", "playsinline", "max-width:100%", "aria-label="):
        assert attribute in tag
    height, width, _ = recording.frames[0].shape
    assert f"width:{width}px;" in tag
    assert f"aspect-ratio:{width}/{round(1.2 * height)};" in tag, "room for the controls"
    assert str(tmp_path) not in page


def test_show_displays_video_and_strip_as_two_outputs(recording, monkeypatch):
    import IPython.display

    shown = []
    monkeypatch.setattr(IPython.display, "display", shown.append)
    assert video.show(recording, "walking") is None
    page, strip = shown
    assert "<video" in page.data
    png, metadata = strip._repr_png_()
    assert png  # base64
    assert metadata["alt"] == "Film strip of walking: 8.0 s, 800 steps, return 3.25"

    shown.clear()
    video.side_by_side(recording, recording, ("untrained", "trained"))
    assert shown[0].data.count("<video") == 2
    assert "untrained" in shown[0].data
    assert [strip.alt.split(":")[0] for strip in shown[1:]] == [
        "Film strip of untrained",
        "Film strip of trained",
    ]


def test_a_full_disk_is_named(minitaur, tmp_path, capfd):
    with small_disk(tmp_path / "disk", 64) as disk:
        fill(disk, leave=8_000)
        with pytest.raises(StorageError, match=r"a\.mp4") as error:
            record(minitaur, disk / "a.mp4")
        assert "\n" not in str(error.value)
        assert leftovers(disk) == [".filler"]
        fill(disk)
        with pytest.raises(StorageError, match=r"b\.mp4 cannot be written \(ffmpeg ended: is"):
            record(minitaur, disk / "videos" / "b.mp4")
    assert capfd.readouterr().err == ""


def noise(count):
    """Frames that x264 cannot make small."""
    return np.random.default_rng(0).integers(0, 255, (count, HEIGHT, WIDTH, 3), dtype=np.uint8)


@pytest.mark.parametrize("spare", [4_000, 12_000])
def test_a_disk_that_fills_up_while_a_video_is_made_smaller_is_named(tmp_path, capfd, spare):
    """The draft fits; of its re-encoding nothing fits, or not all frames."""
    with mp4.writing(tmp_path / "fits.mp4", (WIDTH, HEIGHT), 25) as write:
        for frame in noise(5):
            write(frame)
    size = (tmp_path / "fits.mp4").stat().st_size
    with small_disk(tmp_path / "disk", 256) as disk:
        (disk / "a.mp4").write_bytes(b"an older video")
        fill(disk, leave=size + spare)

        def shrink():
            with mp4.writing(disk / "a.mp4", (WIDTH, HEIGHT), 25, max_bytes=size * 4 // 5) as write:
                for frame in noise(5):
                    write(frame)

        with pytest.raises(StorageError, match=r"a\.mp4.*: is the disk full\?") as error:
            shrink()
        assert "\n" not in str(error.value)
        assert (disk / "a.mp4").read_bytes() == b"an older video"
        assert leftovers(disk) == [".filler", "a.mp4"]
    assert capfd.readouterr().err == ""


def test_an_evaluated_episode_is_recorded_to_its_end(tmp_path, monkeypatch):
    """Some environments have longer episodes than the Minitaur: BipedalWalker has 1600 steps."""
    env = make_environment("Pendulum-v1", seed=0, max_episode_steps=1_600)
    recorded, full_size = [], video.record_episode

    def small(*args, **options):
        recorded.append(full_size(*args, width=WIDTH, height=HEIGHT, **options))
        return recorded[-1]

    monkeypatch.setattr(video, "record_episode", small)
    blank = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    monkeypatch.setattr(video, "frame", lambda *_: blank)  # 1 600 pictures take half a minute
    still = lambda _: np.zeros(1, np.float32)  # noqa: E731
    video.record_evaluated(env, still, {"best": 0}, tmp_path, seed=5)
    assert recorded[0].steps == 1_600


def test_episodes_of_an_evaluation_are_recorded_again(tmp_path):
    import labkit

    env = labkit.make_environment("InvertedPendulumBulletEnv-v0", seed=0)

    def policy(observation):
        return np.full(1, 0.1, np.float32)

    seen = labkit.evaluate(env, policy, 3, seed=5)
    chosen = {"best": 2, "worst": 0}
    found = video.record_evaluated(env, policy, chosen, tmp_path, seed=5)
    assert list(found) == ["best", "worst"]
    assert {path.name for path in tmp_path.iterdir()} == {"best.mp4", "worst.mp4"}
    assert len(set(seen.returns)) > 1
    for name, place in chosen.items():
        assert found[name].return_ == pytest.approx(seen.returns[place])


def test_a_caption_has_no_minus_before_zero():
    assert video.caption_of(3.2, None, -0.003) == "3.2 s\nreturn +0.00"
    assert video.caption_of(3.2, 0.58, -0.006) == "3.2 s   0.58 m\nreturn -0.01"


def test_a_video_without_a_frame_replaces_none(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"an older video")
    writing = mp4.writing(tmp_path / "a.mp4", (WIDTH, HEIGHT), 25)
    with pytest.raises(ParameterError, match="one frame or more"), writing:
        pass
    assert (tmp_path / "a.mp4").read_bytes() == b"an older video"
    assert leftovers(tmp_path) == ["a.mp4"]
