"""A replay in a real Chromium, without network and in JupyterLab: dragged in time, and turned."""

import os
from pathlib import Path

import nbformat
import numpy as np
import pytest
from PIL import Image

import labkit
from labkit.plotting import replay_3d
from labkit.training.run import TRACKED_POLICY

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
import lab

ROOT = Path(__file__).resolve().parents[2]
TRACKED = ROOT / TRACKED_POLICY / "replay.html"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.skipif(lab.find_chromium() is None, reason=f"no {' or '.join(lab.NAMES)} here"),
]


@pytest.fixture(scope="module")
def screenshots(tmp_path_factory):
    folder = Path(os.environ.get("SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def replay_of(name, folder):
    if name == TRACKED_POLICY.name:
        return TRACKED
    env = labkit.make_environment(name, seed=0)
    replay = replay_3d.record(
        env,
        lambda _: np.zeros(env.action_spec().shape, np.float32),
        seed=0,
        max_steps=60,
        estimate=lambda observations, _: observations[:, 0],
    )
    env.close()
    return replay_3d.write_html(replay, folder / f"{name}.html")


def drag(frame, selector, start, end):
    """Drags from one place in an element to another; places are shares of its width and height."""
    page, box = frame.page, frame.locator(selector).first.bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)]
    page.mouse.move(*places[0])
    page.mouse.down()
    page.mouse.move(*places[1], steps=4)
    page.mouse.up()
    page.wait_for_timeout(800)  # until it is drawn


def shot(frame, file):
    frame.locator("body").screenshot(path=file)
    return np.asarray(Image.open(file).convert("RGB")).astype(int)


def use(frame, screenshots, name):
    """Three moments, another camera angle, a drag in a chart, and the play button."""
    frame.wait_for_selector("#dials dd:not(:empty)")
    pictures, poses, times = [], [], []
    for number, share in enumerate((0.0, 0.4, 0.9)):
        drag(frame, "#scrub", (0.0, 0.5), (share, 0.5))
        times.append(frame.evaluate("() => replay.time / replay.duration"))
        poses.append(frame.evaluate("() => replay.links"))
        pictures.append(shot(frame, screenshots / f"replay-{name}-time-{number}.png"))
    np.testing.assert_allclose(times, [0, 0.4, 0.9], atol=0.03)
    height = frame.evaluate("() => document.getElementById('stage').clientHeight")
    scene = np.s_[100 : height - 30]  # of the page's rows: neither dials nor charts
    for one, two in ((0, 1), (1, 2)):
        assert np.abs(np.subtract(poses[one], poses[two])).max() > 1e-3
        assert (np.abs(pictures[one] - pictures[two])[scene] > 20).mean() > 1e-4

    before = frame.evaluate("() => replay.camera")
    drag(frame, "#scene", (0.5, 0.6), (0.3, 0.8))
    after = frame.evaluate("() => replay.camera")
    assert after["azimuth"] > before["azimuth"] + 30
    assert after["elevation"] > before["elevation"] + 5
    turned = shot(frame, screenshots / f"replay-{name}-turned.png")
    assert (np.abs(turned - pictures[-1])[scene] > 20).mean() > 0.05

    drag(frame, ".chart canvas", (0.3, 0.5), (0.6, 0.5))  # the charts are scrubbers, too
    assert 0.5 < frame.evaluate("() => replay.time / replay.duration") < 0.7
    begun = frame.evaluate("() => replay.time")
    frame.click("#play")
    for _ in range(100):  # looks; the first frame may take a second
        if frame.evaluate("() => replay.time") > begun:
            break
        frame.page.wait_for_timeout(100)
    assert frame.evaluate("() => replay.time") > begun


@pytest.mark.parametrize(
    "name", [TRACKED_POLICY.name, "AntBulletEnv-v0", "InvertedPendulumBulletEnv-v0"]
)
def test_time_and_camera_follow_the_mouse(name, tmp_path, screenshots):
    file = replay_of(name, tmp_path)
    requests, errors = [], []
    with lab.chromium() as browser:
        page = browser.new_context(viewport={"width": 1280, "height": 800}, offline=True).new_page()
        page.set_default_timeout(60_000)
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(file.as_uri())
        use(page.main_frame, screenshots, name)
    assert errors == []
    assert requests == [file.as_uri()]


# What the cell of notebook 03 needs, without a training.
BEFORE_03 = """
from pathlib import Path
from types import SimpleNamespace

import labkit
from labkit.plotting import replay_3d
from labkit.sac.rollout import random_policy
from labkit.training.run import TRACKED_POLICY

eval_env = labkit.make_environment("MinitaurBulletEnv-v0", seed=0, max_episode_steps=100)
trained_policy = random_policy(eval_env.action_spec(), seed=0)
config = SimpleNamespace(seed=0, env_name="MinitaurBulletEnv-v0")
tf_agent = SimpleNamespace(estimated_q=lambda observations, _: observations[:, 0])
run = SimpleNamespace(path=Path("runs/0001"))
"""
SHOWN = {  # notebook: (id of its cell, what comes before, charts)
    "03_sac_minitaur": ("replay", BEFORE_03, 3),
    "05_compare_runs": ("code-05-15", "", 2),
}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A JupyterLab with the cell of each notebook that shows a replay, as it is committed."""
    folder, home = tmp_path_factory.mktemp("replays"), tmp_path_factory.mktemp("home")
    for name, (cell_id, before, _) in SHOWN.items():
        notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
        kept = [cell for cell in notebook.cells if cell.id == cell_id]
        notebook.cells = [nbformat.v4.new_code_cell(before), *kept]
        nbformat.write(notebook, folder / f"{name}.ipynb")
    with lab.jupyterlab(folder, home) as found:
        yield found


@pytest.mark.parametrize("name", SHOWN)
def test_jupyterlab_shows_the_replay_of_a_cell_that_was_run(name, address, screenshots):
    with lab.chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 1400})
        page.set_default_timeout(60_000)
        lab.open_notebook(page, address, f"{name}.ipynb")
        pictures = lab.wait_for_pictures(page)
        # Not trusted yet: JupyterLab hides the viewer, and shows the film strip that is committed.
        assert page.locator(".jp-Notebook iframe").count() == 0
        assert page.locator(".jp-Notebook .jp-OutputArea img").count() == pictures
        lab.run_all(page, seconds=200)
        assert lab.failures(page) == []
        assert lab.wait_for_pictures(page) == 1
        viewer = page.locator(".jp-Notebook iframe")
        viewer.scroll_into_view_if_needed()
        frame = viewer.element_handle().content_frame()
        use(frame, screenshots, f"in-{name}")
        assert frame.locator(".chart").count() == SHOWN[name][2]
        page.screenshot(path=screenshots / f"replay-in-{name}.png")


def test_in_jupyterlab_the_link_opens_the_file(address):
    with lab.chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 1400})
        page.set_default_timeout(60_000)
        lab.open_notebook(page, address, "03_sac_minitaur.ipynb")
        lab.run_all(page, seconds=200)
        page.locator(".jp-Notebook a", has_text="videos/replay.html").click()
        page.get_by_text("Trust HTML").click()
        opened = page.locator(".jp-HTMLViewer iframe").element_handle().content_frame()
        opened.wait_for_selector("#dials dd:not(:empty)")
