"""Every notebook in a real JupyterLab: runs to its end, shows its pictures, plays its videos.

In continuous integration these are the runs of the notebooks, so they are checked as those of
tests/notebooks are.
"""

import os
import re
from pathlib import Path

import books
import lab
import nbformat
import papermill
import pytest

from labkit.replay.server import free_port

# Two processes get them in pairs: the two that take longest must not be one.
LONGEST_FIRST = ["04", "03", "02", "01", "05", "06"]
SCREENSHOTS = os.environ.get(
    "SCREENSHOTS"
)  # without it, nobody looks at them: the first are enough
LOOKS = {1280: "JupyterLab Light", 1920: "JupyterLab Dark"}  # width: theme

pytestmark = [pytest.mark.browser, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a copy of each notebook, small parameters put in."""
    folder = tmp_path_factory.mktemp("notebooks")
    for number in books.NOTEBOOKS:
        copy = books.write_copy(number, folder)
        port = {"port": free_port()} if number == "01" else {}
        parameters = {**books.SMALL[number], **port}
        papermill.execute_notebook(str(copy), str(copy), parameters, prepare_only=True)
    cells = [nbformat.v4.new_code_cell("1 / 0")]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    broken = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    nbformat.write(broken, folder / "broken.ipynb")
    return folder


@pytest.fixture(scope="module")
def address(folder, tmp_path_factory):
    """The address of a JupyterLab in that folder."""
    with lab.jupyterlab(folder, tmp_path_factory.mktemp("home")) as found:
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
}))
"""
# Plays each video for up to ten seconds, until its time has moved on: [seconds moved, width, pixels
# below the picture, where the browser draws its controls]. A short clip may begin anew meanwhile.
PLAY = """
async found => Promise.all(found.map(async video => {
    video.muted = true;
    video.scrollIntoView();
    // What `play` promises may never come: a limit, and a second attempt.
    for (const attempt of [1, 2]) {
        const limit = new Promise(resolve => setTimeout(resolve, 15_000, 'late'));
        if (await Promise.race([video.play(), limit]) !== 'late') break;
        video.load();
    }
    const before = video.currentTime;
    for (let look = 0; look < 1000 && video.currentTime === before; look++)
        await new Promise(resolve => setTimeout(resolve, 10));
    video.pause();  // or it slows the screenshots
    const picture = video.clientWidth * video.videoHeight / video.videoWidth;
    return [Math.abs(video.currentTime - before), video.videoWidth, video.clientHeight - picture];
}))
"""


@pytest.mark.parametrize("number", LONGEST_FIRST)
def test_run_all_cells(number, address, folder, page, tmp_path_factory):
    name = books.NOTEBOOKS[number].name
    lab.open_notebook(page, address, name)
    lab.run_all(page, seconds=900)
    assert lab.failures(page) == []
    assert lab.waiting(page) == []
    lab.save(page)
    executed = nbformat.read(folder / name, as_version=4)
    books.check(number, executed, folder)
    killed = "rollout worker 0 failed and was restarted"
    assert (killed in books.text(books.outputs(executed))) == (number == "04")

    count = lab.wait_for_pictures(page)
    pictures = page.eval_on_selector_all(".jp-Notebook .jp-OutputArea img", PICTURES)
    assert len(pictures) >= count > 0
    for picture in pictures:
        assert min(picture["size"]) > 0, picture
        assert 0 < picture["shown"] <= picture["room"] + 1, f"cut off: {picture}"
    for moved, width, below in page.eval_on_selector_all(".jp-Notebook video", PLAY):
        assert moved > 0
        assert width > 0
        assert below > 35, "the controls would hide the caption"
    for frame in page.locator(".jp-Notebook iframe").element_handles():
        frame.scroll_into_view_if_needed()
        frame.content_frame().wait_for_selector("#dials dd:not(:empty)")
    FURTHER.get(number, lambda _: None)(page)

    shots = Path(SCREENSHOTS or tmp_path_factory.mktemp("screenshots")).resolve()
    shots.mkdir(parents=True, exist_ok=True)
    for width, theme in LOOKS.items():
        page.set_viewport_size({"width": width, "height": 1400})
        lab.change_theme(page, theme)
        stem = f"{Path(name).stem}-{width}-{theme.split()[-1].lower()}"
        files = lab.photograph(page, shots, stem, most=None if SCREENSHOTS else 1)
        assert all(file.stat().st_size > 10_000 for file in files)


def answer_an_exercise(page):
    """Notebook 01: a wrong answer is explained, and the right one passes."""
    cell = page.locator(".jp-CodeCell", has_text='exercises.check("01.1"')
    shown = cell.locator(".jp-OutputArea-output")
    assert shown.inner_text().strip() == "Exercise 01.1: not answered yet"
    for answer, verdict in (
        ("lambda T, L: L", "Exercise 01.1: not yet. "),
        ("lambda T, L: L * (T - L + 1) / T", "Exercise 01.1: right. "),
    ):
        check = 'exercises.check("01.1", sharing_factor)'
        lab.type_over(cell, f"sharing_factor = {answer}\n\n\n{check}")
        page.keyboard.press("Control+Enter")
        shown.filter(has_text=verdict).wait_for()
    assert lab.failures(page) == []


# What the sliders of notebook 06 show: the titles of its videos, each with the return.
TITLES = "cell => [...cell.querySelectorAll('figcaption')].map(title => title.innerText)"


def move_a_slider(page):
    """Notebook 06: the third slider of B plays B again, and not A."""
    cell = page.locator(".jp-CodeCell", has=page.locator(".widget-slider"))
    slider, shown = cell.locator(".widget-slider").nth(8), []
    for share in (0.2, 0.4):
        track = slider.locator(".noUi-base")
        track.scroll_into_view_if_needed()
        box = track.bounding_box()
        slider.locator(".noUi-handle").hover()
        page.mouse.down()
        page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2, steps=5)
        page.mouse.up()
        for _ in range(600):
            if (titles := cell.evaluate(TITLES)) and [titles] != shown[-1:]:
                break
            page.wait_for_timeout(200)
        shown.append(titles)
    first, second = shown
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert re.search(r"^B: .*motor strength 0", second[1])
    assert lab.failures(page) == []


FURTHER = {"01": answer_an_exercise, "06": move_a_slider}


def test_an_error_is_seen(address, page):
    """That the checks above can fail."""
    lab.open_notebook(page, address, "broken.ipynb")
    lab.run_all(page, seconds=60)
    assert "ZeroDivisionError" in lab.failures(page)[0]
