"""Links of the Markdown files, the notebooks and the pages of `make site` have a target."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest
import yaml
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import gallery  # noqa: E402

from labkit.training.run import TRACKED_POLICY  # noqa: E402

LINK = re.compile(r'\]\(<?([^)\s>]+)>?\)|(?:src|href)="([^"]+)"')
NOT_OURS = {".venv", ".venv-peers", "runs", "exports", "site", "build", ".pytest_cache"}


def pages() -> Iterator[Path]:
    """The Markdown files of this repository; it does not look into NOT_OURS, which are large."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = set(folders) - NOT_OURS
        yield from (Path(folder, name) for name in files if name.endswith(".md"))


PAGES = sorted(pages())


def prose(path: Path) -> str:
    """The Markdown of a file or notebook without code."""
    if path.suffix == ".ipynb":
        cells = nbformat.read(path, as_version=4).cells
        text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    else:
        text = path.read_text()
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    return re.sub(r"^    .*$|`[^`]*`", "", text, flags=re.M)


def headings(path: Path) -> set[str]:
    """The anchors of a Markdown file on GitHub."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.M)
    return {gallery.slug(re.sub(r"[`*]|\]\([^)]*\)|\[", "", title)) for title in titles}


def broken(path: Path) -> list[str]:
    """The links of a file to missing targets in the repository."""
    wrong = []
    for match in LINK.finditer(prose(path)):
        target = match[1] or match[2]
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / unquote(name)).resolve() if name else path
        known = anchor in headings(file) if anchor and file.suffix == ".md" else True
        if not file.exists() or ROOT not in [file, *file.parents] or not known:
            wrong.append(target)
    return wrong


@pytest.mark.parametrize(
    "path", [*PAGES, *gallery.notebooks()], ids=lambda path: str(path.relative_to(ROOT))
)
def test_links_within_the_repository_have_a_target(path):
    assert broken(path) == []


def test_a_broken_link_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "a.md").write_text("# One *title*\n[a](b.md) [b](#one-title) [c](#two) ![d](e.png)")
    assert broken(tmp_path / "a.md") == ["b.md", "#two", "e.png"]


def test_committed_pages_have_no_badges():
    for path in PAGES:
        assert "badge" not in re.sub(r"<!--.*?-->", "", prose(path)).replace("badges", ""), path


def test_the_readme_animation_is_small_and_ten_seconds_long():
    (name,) = re.findall(r'<img src="([^"]+\.gif)"', (ROOT / "README.md").read_text())
    file = ROOT / name
    assert file.stat().st_size < 2_000_000
    with Image.open(file) as gif:
        assert gif.n_frames > 50
        assert gif.info["duration"] * gif.n_frames == pytest.approx(10_000, rel=0.1)  # ms


def test_the_citation_file_has_the_required_fields_and_the_current_version():
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(cff)
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.M)[1]
    assert cff["version"] == version


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The static pages, with an empty page in place of the API reference."""
    folder = tmp_path_factory.mktemp("site")
    gallery.build(folder)
    (folder / "api").mkdir()
    (folder / "api" / "labkit.html").touch()
    return folder


def test_links_of_the_site_have_a_target(site):
    assert list(gallery.broken(site)) == []
    (site / "new.html").write_text('<a href="gone.html">x</a><a href="#nowhere">y</a>')
    assert list(gallery.broken(site)) == ["new.html: gone.html", "new.html: #nowhere"]


def test_the_site_has_the_tracked_policy_s_replay_as_a_page_and_in_a_notebook(site):
    tracked = TRACKED_POLICY / "replay.html"
    assert (site / tracked).read_bytes() == (ROOT / tracked).read_bytes()
    assert 'best-300000/replay.html"' in (site / tracked.parent / "index.html").read_text()
    page = (site / "notebooks" / "05_compare_runs.html").read_text()
    assert '<iframe srcdoc="' in page
    assert f'href="../{tracked}"' in page


def test_outputs_do_not_link_to_runs_that_are_not_tracked():
    text = '<a href="runs/0001/a.html">a</a><a href="../README.md">b</a><img src="data:x">'
    kept = '<a >a</a><a href="../README.md">b</a><img src="data:x">'
    assert gallery.without_dead_links(text, Path("notebooks/03.ipynb")) == kept


def test_pages_of_the_site_contain_pictures_and_videos(site):
    for path in gallery.notebooks():
        page = (site / "notebooks" / f"{path.stem}.html").read_text()
        source = json.dumps(nbformat.read(path, as_version=4))
        assert page.count("<video") == source.count("<video ")
        assert page.count("data:image/png;base64") >= source.count('"image/png": "')
        assert gallery.NO_ALT not in page
        assert "google.colab" not in page, "the page must not show the cell for Colab"
    assert (site / gallery.FILM).stat().st_size > 10_000
