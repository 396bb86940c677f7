"""Links of the Markdown files and notebooks to files of the repository have a target."""

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r'\]\(<?([^)\s>]+)>?\)|(?:src|href)="([^"]+)"')


def pages() -> list[str]:
    """The Markdown files and notebooks in the folders of this repository."""
    tops = ("docs", "examples", "labkit", "notebooks", "benchmarks", "results")
    found = [*ROOT.glob("*.md"), *(file for top in tops for file in (ROOT / top).rglob("*.md"))]
    return sorted(str(p.relative_to(ROOT)) for p in [*found, *ROOT.glob("notebooks/*.ipynb")])


def prose(path: Path) -> str:
    """The Markdown of a file or notebook."""
    if path.suffix != ".ipynb":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def anchors(path: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", prose(path), re.M)
    plain = [re.sub(r"[`*]|\]\([^)]*\)|\[", "", title).strip().lower() for title in titles]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


def broken(path: Path) -> list[str]:
    """The links of a file to what is not in the repository."""
    text = re.sub(r"```.*?```", "", prose(path), flags=re.S)
    text = re.sub(r"^    .*$|`[^`]*`", "", text, flags=re.M)
    wrong = []
    for target in (match[1] or match[2] for match in LINK.finditer(text)):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / unquote(name)).resolve() if name else path
        known = not anchor or file.suffix != ".md" or (file.exists() and anchor in anchors(file))
        if not file.exists() or not known:
            wrong.append(target)
    return wrong


@pytest.mark.parametrize("name", pages())
def test_links_within_the_repository_have_a_target(name):
    assert broken(ROOT / name) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "a.md"
    page.write_text("# One *title*\n[a](b.md) [b](#one-title) [c](#two) ![d](e.png)")
    assert broken(page) == ["b.md", "#two", "e.png"]
