"""Recordings of real robots, read back from the file."""

import os

import gym
import imageio.v2 as imageio
import numpy as np
import pytest
from PIL import Image
from small_disk import fill, small_disk

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
from labkit.environments.make import make_environment, raw_env
from labkit.errors import ParameterError, StorageError
from labkit.plotting import rendering, video

WIDTH, HEIGHT = 160, 120  # small, for speed


def stand(_observation):
    return np.zeros(8, np.float32)


@pytest.fixture(scope="module")
def minitaur():
    env = make_environment("MinitaurBulletEnv-v0", seed=0)
    yield env
    env.close()


def record(env, path, policy=stand, **options):
    options = {"width": WIDTH, "height": HEIGHT, "max_steps": 50} | options
    return video.record_episode(env, policy, path, **options)


def read(path):
    with imageio.get_reader(path) as reader:
        return reader.get_meta_data(), list(reader.iter_data())


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_video_plays_in_browsers_and_lasts_as_long_as_the_simulation(minitaur, tmp_path):
    recording = record(minitaur, tmp_path / "new" / "12:30:00" / "stand.mp4", seed=1)
    meta, frames = read(recording.path)
    assert (meta["codec"], meta["size"], meta["fps"]) == ("h264", (WIDTH, HEIGHT), 25)
    assert meta["pix_fmt"].startswith("yuv420p")
    assert len(frames) == 13  # env steps 0, 4, …, 48 of 10 ms
    assert recording.steps == 50
    assert recording.seconds == pytest.approx(0.5)
    data = recording.path.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat"), "a browser plays before it has the whole file"
    assert names(recording.path.parent) == ["stand.mp4"]


@pytest.mark.parametrize(
    ("step_seconds", "fps", "steps"),
    [(0.01, 25, 7), (0.0165, 25, 33), (0.02, 30, 41), (0.1, 25, 9), (1 / 30, 60, 1)],
)
def test_the_duration_is_right_for_any_ratio_of_rates(
    minitaur, tmp_path, monkeypatch, step_seconds, fps, steps
):
    blank = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    monkeypatch.setattr(video, "capture", lambda *_: (lambda: blank, int))
    monkeypatch.setattr(video, "step_seconds", lambda _: step_seconds)
    recording = record(minitaur, tmp_path / "a.mp4", fps=fps, max_steps=steps)
    meta, frames = read(recording.path)
    assert meta["fps"] == pytest.approx(min(fps, 1 / step_seconds), abs=0.01)
    assert abs(len(frames) / meta["fps"] - steps * step_seconds) < 1 / meta["fps"]


def test_the_clock_of_a_robot_is_right_from_its_first_episode(tmp_path):
    """Before the reset, this robot reports 60 steps a second: that is 1 % too fast."""
    env = make_environment("InvertedPendulumBulletEnv-v0", seed=0)
    recording = record(env, tmp_path / "a.mp4", lambda _: np.zeros(1, np.float32), max_steps=4)
    assert recording.seconds == pytest.approx(4 * 0.0165)


def test_a_recording_is_the_episode(minitaur, tmp_path):
    place = lambda: raw_env(minitaur).minitaur.GetBasePosition()[0]  # noqa: E731
    actions, start = [], []

    def policy(observation):
        start.append(place())
        actions.append(np.full(8, 0.1 * np.sin(len(actions) / 5), np.float32))
        return actions[-1]

    recording = record(minitaur, tmp_path / "a.mp4", policy, seed=3)
    walked = place() - start[0]
    minitaur.seed(3)
    minitaur.reset()
    rewards = [float(minitaur.step(action).reward) for action in actions]
    assert len(actions) == recording.steps == 50
    assert recording.return_ == pytest.approx(sum(rewards))
    # The pictures include the first and the last state, each with its caption.
    assert recording.captions[0] == "0.0 s   0.00 m\nreturn +0.00"
    end = f"0.5 s   {walked:.2f} m\nreturn {recording.return_:+.2f}".replace("-0.00", "0.00")
    assert recording.captions[-1] == end
    corner = np.s_[-20:, :60]
    first = read(recording.path)[1][0][corner].astype(int)
    assert np.abs(first - recording.frames[0][corner]).max() > 100, "the caption is in the video"


def noise(count):
    """Pictures that x264 cannot make small."""
    return np.random.default_rng(0).integers(0, 255, (count, HEIGHT, WIDTH, 3), dtype=np.uint8)


def test_a_large_video_is_encoded_at_lower_quality(tmp_path, monkeypatch):
    env = make_environment("Pendulum-v1", seed=0)
    frames = iter(noise(200))
    monkeypatch.setattr(video, "capture", lambda *_: (lambda: next(frames), int))
    still = lambda _: np.zeros(1, np.float32)  # noqa: E731
    full = record(env, tmp_path / "full.mp4", still, max_steps=60).path.stat().st_size
    small = record(env, tmp_path / "a.mp4", still, max_steps=60, max_bytes=full // 3)
    assert small.path.stat().st_size <= full // 3
    assert len(read(small.path)[1]) == 60 * 0.05 * 20


def test_an_interrupt_leaves_no_incomplete_file(tmp_path):
    def pictures():
        yield from noise(3)
        assert any(name.startswith(".recording") for name in names(tmp_path)), "a draft to remove"
        raise KeyboardInterrupt

    (tmp_path / "a.mp4").write_bytes(b"an older video")
    for name in ("a.mp4", "b.mp4"):
        with pytest.raises(KeyboardInterrupt):
            video.write_mp4(tmp_path / name, pictures(), 25)
    assert names(tmp_path) == ["a.mp4"]
    assert (tmp_path / "a.mp4").read_bytes() == b"an older video"


@pytest.mark.parametrize("leave", [0, 8_000, 40_000])
def test_a_full_disk_is_one_line_and_leaves_no_half_file(tmp_path, capfd, leave):
    with small_disk(tmp_path / "disk", 256) as disk:
        (disk / "a.mp4").write_bytes(b"an older video")
        fill(disk, leave=leave)
        with pytest.raises(StorageError, match=r"a\.mp4 cannot be written") as error:
            video.write_mp4(disk / "a.mp4", noise(30), 25)
        assert "\n" not in str(error.value)
        assert (disk / "a.mp4").read_bytes() == b"an older video"
        assert names(disk) == [".filler", "a.mp4"]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "value"), [("width", 0), ("fps", float("nan")), ("max_steps", 2.5)]
)
def test_wrong_numbers_are_rejected_before_recording(tmp_path, name, value):
    with pytest.raises(ParameterError, match=f"^`{name}` must be"):
        record(None, tmp_path / "a.mp4", **{name: value})
    assert names(tmp_path) == []


def test_the_camera_follows_the_robot(minitaur):
    minitaur.reset()
    client, body = rendering.client_of(minitaur), raw_env(minitaur).minitaur.quadruped
    here = rendering.frame(minitaur, 320, 240)
    assert (here.shape, here.dtype) == ((240, 320, 3), np.uint8)
    (x, y, z), turn = client.getBasePositionAndOrientation(body)
    client.resetBasePositionAndOrientation(body, (x + 40.5, y + 3, z), turn)
    far = rendering.frame(minitaur, 320, 240)
    # The mean row and column of the robot's dark body.
    places = [np.argwhere(picture.max(axis=2) < 80).mean(axis=0) for picture in (here, far)]
    np.testing.assert_allclose(*places, atol=2)
    assert np.abs(places[0] - (120, 160)).max() < 50  # near the centre
    assert np.mean(np.abs(far.astype(int) - here) > 20) > 0.2  # the ground has moved


@pytest.mark.parametrize("name", ["MinitaurBulletEnv-v0", "AntBulletEnv-v0", "Pendulum-v1"])
def test_a_captured_state_is_drawn_later_and_changes_no_episode(name):
    def play(look):
        env = make_environment(name, seed=0)
        env.seed(5)
        env.reset()
        pictures, kept = [], []
        for _ in range(12):
            step = env.step(np.full(env.action_spec().shape, 0.3, np.float32))
            if look:
                pictures.append(rendering.frame(env, 64, 48))
                kept.append(rendering.capture(env, 64, 48))
        drawn = [draw() for draw, _ in kept]
        env.close()
        return step.observation, pictures, drawn

    observation, pictures, drawn = play(look=True)
    np.testing.assert_array_equal(drawn, pictures)
    np.testing.assert_array_equal(play(look=False)[0], observation)
    assert np.any(pictures[0] != pictures[-1])


def test_other_environments_are_drawn_after_a_reset():
    env = make_environment("HalfCheetahBulletEnv-v0", seed=0)
    with pytest.raises(ParameterError, match=r"^`env` must be reset .*env\.reset\(\)$"):
        rendering.frame(env)
    env.reset()
    picture = rendering.frame(env, 200, 150)
    assert (picture.shape, picture.dtype) == ((150, 200, 3), np.uint8)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 5
    env.close()


def test_an_environment_that_cannot_be_drawn_is_one_line():
    class Mine(gym.Env):
        observation_space = action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

        def reset(self):
            return np.zeros(1, np.float32)

    env = make_environment(Mine)
    env.reset()
    with pytest.raises(ParameterError, match=r"^Mine cannot be drawn: .*Error: ") as error:
        rendering.frame(env)
    assert "\n" not in str(error.value)


def test_metre_marks_are_on_the_ground_and_behind_the_robot(minitaur, monkeypatch):
    minitaur.reset()
    marked = rendering.frame(minitaur, 320, 240).astype(int)
    monkeypatch.setattr(rendering, "_metre_marks", lambda *_: np.zeros((240, 320, 1)))
    plain = rendering.frame(minitaur, 320, 240).astype(int)
    changed = np.abs(marked - plain).max(axis=2) > 20
    assert 0.005 < changed.mean() < 0.2
    assert not changed[plain.max(axis=2) < 60].any()  # the robot's dark body is in front of them


def test_metre_marks_stand_at_whole_metres():
    """A camera that looks straight down: 100 pixels a metre, x to the right."""
    to_pixel = np.array([[100.0, 0, 50], [0, -100, 200], [0, 0, 1]])
    row = rendering._metre_marks(((1.5, 0.0, 0.0), 1.0, True), to_pixel, (400, 400))[230, :, 0]
    # y = −0.3 m: right of the robot, below the numbers
    np.testing.assert_array_equal(np.unique(np.flatnonzero(row > 0.7) // 100), [0, 1, 2, 3])
    assert (row[50::100] > 0.7).all()
    assert (row[100::100] == 0).all()


@pytest.fixture
def recording(tmp_path):
    grey = [np.full((60, 80, 3), 10 * i, np.uint8) for i in range(21)]
    video.write_mp4(tmp_path / "a.mp4", grey, 5)
    captions = [f"{i}.0 s   1.00 m\nreturn +3.25" for i in range(21)]
    return video.Recording(tmp_path / "a.mp4", grey, captions, 800, 3.25, 8.0)


def test_a_film_strip_holds_first_last_and_evenly_spaced_frames(recording, tmp_path):
    (tmp_path / "strip.png").write_bytes(video.film_strip(recording, "walking"))
    strip = np.asarray(Image.open(tmp_path / "strip.png").convert("RGB")).astype(int)
    assert strip.shape == (38 + 150 + 48, 6 * 208 + 8, 3)
    np.testing.assert_allclose(strip[90, 100::208, 0], [0, 40, 80, 120, 160, 200], atol=3)
    assert max(strip[:36].min(), strip[-44:].min()) < 100, "title and captions"


def test_a_notebook_shows_video_and_strip(recording, monkeypatch):
    import IPython.display

    shown = []
    monkeypatch.setattr(IPython.display, "display", shown.append)
    video.show(recording, "walking")
    page, strip = shown
    assert strip._repr_png_()[1]["alt"] == "Film strip of walking: 20.0 s   1.00 m   return +3.25"
    assert "aspect-ratio:80/132;" in page.data, "room for the controls"
    assert str(recording.path) not in page.data

    shown.clear()
    video.side_by_side(recording, recording, titles=('a"><script>alert(1)</script>', "trained"))
    assert shown[0].data.count("<video") == 2
    assert "<script" not in shown[0].data
    assert shown[0].data.count('src="data:video/mp4;base64,AAAA') == 2
    assert len(shown) == 3
