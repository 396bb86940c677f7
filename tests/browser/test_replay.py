"""A 3D replay in a real Chromium, without network: dragged in time, turned and played."""

import lab
import numpy as np
import pytest

import labkit
from labkit.plotting import replay_3d

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


@pytest.fixture
def file(tmp_path):
    """A replay of the Ant that does nothing for 60 env steps."""
    env = labkit.make_environment("AntBulletEnv-v0", seed=0)
    replay = replay_3d.record(
        env,
        lambda _: np.zeros(env.action_spec().shape, np.float32),
        tmp_path / "replay.html",
        seed=0,
        max_steps=60,
        estimate=lambda observations, _: observations[:, 0],
    )
    env.close()
    return replay.path


def drag(page, selector, start, end):
    """Drags from one place in an element to another; places are shares of its width and height."""
    box = page.locator(selector).first.bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)]
    page.mouse.move(*places[0])
    page.mouse.down()
    page.mouse.move(*places[1], steps=4)
    page.mouse.up()
    page.wait_for_timeout(800)  # until it is drawn


def test_time_and_camera_follow_the_mouse(file):
    requests, errors = [], []
    with lab.chromium() as browser:
        page = browser.new_context(viewport={"width": 1280, "height": 800}, offline=True).new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(file.as_uri())
        page.wait_for_selector("#dials dd:not(:empty)")
        poses, pictures, share = [], [], "() => replay.time / replay.duration"
        for place in (0.1, 0.9):
            drag(page, "#scrub", (0.0, 0.5), (place, 0.5))
            assert page.evaluate(share) == pytest.approx(place, abs=0.03)
            poses.append(page.evaluate("() => replay.links"))
            pictures.append(page.screenshot())
        assert np.abs(np.subtract(*poses)).max() > 1e-3
        assert pictures[0] != pictures[1]

        before = page.evaluate("() => replay.camera")
        drag(page, "#scene", (0.5, 0.6), (0.3, 0.8))
        after = page.evaluate("() => replay.camera")
        assert after["azimuth"] > before["azimuth"] + 30
        assert after["elevation"] > before["elevation"] + 5

        drag(page, ".chart canvas", (0.3, 0.5), (0.6, 0.5))  # the charts are scrubbers, too
        assert 0.5 < page.evaluate(share) < 0.7
        begun = page.evaluate(share)
        page.click("#play")
        for _ in range(100):  # the page's policy forbids `wait_for_function`
            if page.evaluate(share) != begun:
                break
            page.wait_for_timeout(100)
        assert page.evaluate(share) > begun
    assert errors == []
    assert requests == [file.as_uri()]
