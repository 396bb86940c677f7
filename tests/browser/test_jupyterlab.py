"""Every notebook in a real JupyterLab: runs to its end, shows its pictures, plays its videos."""

import os
import re
import time
from pathlib import Path

import nbformat
import papermill
import pytest
from exercise_answers import WRONG
from test_exercises import EXERCISES, SET_UP, heading_at, read

from labkit.replay.ports import free_port
from labkit.training.run import TRACKED_POLICY

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
import lab

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
# Two processes get them in pairs: the two that take longest must not be one.
LONGEST_FIRST = [NOTEBOOKS[place] for place in (2, 0, 3, 1, 4, 5)]
SMALL = {
    "01_overlapping_trajectories": {"measured_items": 200},
    "02_replay_buffers": {
        "num_iterations": 30,
        "initial_collect_steps": 150,
        "eval_interval": 10,
        "interim_eval_episodes": 2,
        "num_eval_episodes": 3,
        "replay_steps": 1_000,
        "benchmark_seconds": 0.05,
    },
    "03_sac_minitaur": {
        "num_iterations": 300,
        "initial_collect_steps": 400,
        "log_interval": 20,
        "eval_interval": 150,
        "interim_eval_episodes": 1,
        "num_eval_episodes": 2,
    },
    "04_distributed_sac": {
        "solved_return": -2000.0,
        "watch_seconds": 1,
        "fault_iterations": 0,
        "num_iterations": 60,
        "initial_collect_steps": 300,
        "eval_interval": 30,
        "interim_eval_episodes": 1,
        "num_eval_episodes": 2,
        "collectors": "(1,)",
        "minitaur_iterations": 0,
    },
    "05_compare_runs": {"runs": str(ROOT / "results" / "minitaur" / "v0.1" / "study")},
    "06_policy_playground": {
        "policy": str(ROOT / TRACKED_POLICY),
        "seconds": 2,
    },
}
LOOKS = {1280: "JupyterLab Light", 1920: "JupyterLab Dark"}  # width: theme

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(lab.find_chromium() is None, reason=f"no {' or '.join(lab.NAMES)} here"),
]


@pytest.fixture(scope="module")
def screenshots(tmp_path_factory):
    """Where screenshots go: the folder that SCREENSHOTS names, or a temporary one."""
    folder = Path(os.environ.get("SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def first_exercise():
    """Notebook 01 without the sections between its set-up and its first exercise, not executed."""
    notebook = read("01")
    headings = (SET_UP["01"][1], "### Exercise 01.1", "### Exercise 01.2")
    set_up, begin, end = (next(heading_at(notebook.cells, heading)) for heading in headings)
    notebook.cells = [*notebook.cells[:set_up], *notebook.cells[begin:end]]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A JupyterLab in a folder with a copy of each notebook, small parameters put in."""
    folder, home = tmp_path_factory.mktemp("notebooks"), tmp_path_factory.mktemp("home")
    for notebook in NOTEBOOKS:
        parameters = dict(SMALL[notebook.stem])
        if "port" in papermill.inspect_notebook(str(notebook)):
            parameters["port"] = free_port()
        copy = papermill.execute_notebook(str(notebook), None, parameters, prepare_only=True)
        for cell in copy.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        nbformat.write(copy, folder / notebook.name)
    broken = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("1 / 0")],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(broken, folder / "broken.ipynb")
    nbformat.write(first_exercise(), folder / "exercise.ipynb")
    with lab.jupyterlab(folder, home) as found:
        yield found


@pytest.fixture
def page(address):
    with lab.chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 1400})
        page.set_default_timeout(60_000)
        yield page


PICTURES = """
found => found.map(picture => ({
    size: [picture.naturalWidth, picture.naturalHeight],
    shown: picture.getBoundingClientRect().width,
    room: picture.closest('.jp-OutputArea, .jp-RenderedHTMLCommon').clientWidth,
    alt: picture.alt || '',
}))
"""
# Plays each video for up to ten seconds, until its time has moved on: [seconds moved, width, pixels
# below the picture, where the browser draws its controls].
# Some clips last a fraction of a second and begin anew: between two looks they may stand where
# they stood.
PLAY = """
async found => Promise.all(found.map(async video => {
    video.muted = true;
    video.scrollIntoView();
    await video.play();
    const before = video.currentTime;
    for (let look = 0; look < 1000 && video.currentTime === before; look++)
        await new Promise(resolve => setTimeout(resolve, 10));
    video.pause();  // or it slows the screenshots
    const picture = video.clientWidth * video.videoHeight / video.videoWidth;
    return [Math.abs(video.currentTime - before), video.videoWidth, video.clientHeight - picture];
}))
"""


@pytest.mark.parametrize("notebook", LONGEST_FIRST, ids=lambda path: path.stem)
def test_run_all_cells(notebook, address, page, screenshots):
    lab.open_notebook(page, address, notebook.name)
    lab.run_all(page, seconds=900)
    assert lab.failures(page) == []
    assert lab.waiting(page) == []

    count = lab.wait_for_pictures(page)
    pictures = page.eval_on_selector_all(".jp-Notebook .jp-OutputArea img", PICTURES)
    assert len(pictures) >= count > 0
    for picture in pictures:
        assert min(picture["size"]) > 0, picture
        assert 0 < picture["shown"] <= picture["room"] + 1, f"cut off: {picture}"
    videos = page.eval_on_selector_all(".jp-Notebook video", PLAY)
    for moved, width, below in videos:
        assert moved > 0
        assert width > 0
        assert below > 35, "the controls would hide the caption"
    assert bool(videos) == ("<video" in notebook.read_text())

    for width, theme in LOOKS.items():
        page.set_viewport_size({"width": width, "height": 1400})
        lab.change_theme(page, theme)
        name = f"{notebook.stem}-{width}-{theme.split()[-1].lower()}"
        # Without a folder, nobody looks at them.
        most = None if os.environ.get("SCREENSHOTS") else 2
        files = lab.photograph(page, screenshots, name, most=most)
        assert files
        assert all(file.stat().st_size > 10_000 for file in files)


# What the sliders of notebook 06 show: status, sources of the film strips, titles of the videos.
ROBOTS = """
cell => ({
    status: cell.querySelector('.widget-label:not(.widget-inline-hbox *)')?.innerText || '',
    strips: [...cell.querySelectorAll('img')].map(picture => picture.src),
    titles: [...cell.querySelectorAll('figcaption')].map(title => title.innerText),
})
"""


def test_a_slider_plays_its_robot_again(address, page, screenshots):
    lab.open_notebook(page, address, "06_policy_playground.ipynb")
    lab.run_all(page, seconds=600)
    cell = page.locator(".jp-CodeCell", has=page.locator(".widget-slider"))
    strength = cell.locator(".widget-slider").nth(8)  # B's third
    shown = [cell.evaluate(ROBOTS)]
    assert shown[0]["titles"] == []
    for share in (0.2, 0.4):
        track = strength.locator(".noUi-base")
        track.scroll_into_view_if_needed()
        box = track.bounding_box()
        strength.locator(".noUi-handle").hover()
        page.mouse.down()
        page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2, steps=5)
        page.mouse.up()
        began = time.monotonic()
        while cell.evaluate(ROBOTS)["titles"] == shown[-1]["titles"]:
            assert time.monotonic() < began + 300, cell.evaluate(ROBOTS)
            page.wait_for_timeout(200)
        print(f"a moved slider shows its robot after {time.monotonic() - began:.1f} s")
        page.wait_for_timeout(1000)
        shown.append(cell.evaluate(ROBOTS))
        cell.screenshot(path=screenshots / f"06_policy_playground-slider-{share}.png")
    _, first, second = shown
    assert first["titles"][0] == second["titles"][0]  # A was not moved
    assert re.search(r"B: motor strength 0.*, return", second["titles"][1])
    assert first["titles"][1] != second["titles"][1]
    assert first["strips"][0] == second["strips"][0]
    assert first["strips"][1] != second["strips"][1]
    assert lab.failures(page) == []


# Of the text of an output: lines that were printed, and lines that are drawn.
LINES = """
text => [
    text.innerText.trimEnd().split('\\n').length,
    Math.round(text.clientHeight / parseFloat(getComputedStyle(text).lineHeight)),
]
"""


def test_a_wrong_answer_is_explained_and_the_right_one_passes(address, page, screenshots):
    lab.open_notebook(page, address, "exercise.ipynb")
    lab.run_all(page, seconds=120)
    assert lab.failures(page) == []
    cell = page.locator(".jp-CodeCell", has_text='exercises.check("01.1"')
    _, _, check, solution = EXERCISES["01.1"]
    wrong, diagnosis = WRONG["01.1"]["window of 5"]
    answers = {
        "wrong": (wrong, f"Exercise 01.1: not yet. {diagnosis}"),
        "right": (solution, "Exercise 01.1: right. "),
    }
    shown = cell.locator(".jp-OutputArea-output")
    assert shown.inner_text().strip() == "Exercise 01.1: not answered yet"
    for name, (answer, verdict) in answers.items():
        lab.type_over(cell, f"{answer.strip()}\n\n\n{check}")
        page.keyboard.press("Control+Enter")
        shown.filter(has_text=verdict).wait_for()
        assert shown.count() == 1
        printed, drawn = shown.locator("pre").evaluate(LINES)
        assert printed == drawn, "lines are broken, maybe in the middle of a word"
        cell.screenshot(path=screenshots / f"01_exercise-{name}.png")
    page.locator("details", has_text="num_keep_alive_refs").locator("summary").click()
    page.screenshot(path=screenshots / "01_exercise-solution.png")
    assert lab.failures(page) == []


def test_an_error_is_seen(address, page):
    """That the checks above can fail."""
    lab.open_notebook(page, address, "broken.ipynb")
    lab.run_all(page, seconds=60)
    assert "ZeroDivisionError" in lab.failures(page)[0]
