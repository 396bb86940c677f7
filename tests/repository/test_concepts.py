"""docs/concepts.md: each section, exercise, test, link and piece of code that it names exists."""

import functools
import re
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "concepts.md"
SECTION = re.compile(r"\[(\d\d), ((?:`[^`]*`|[^\]`])+)\]\[(\d\d)\]")
EXERCISE = re.compile(r"(?<![\d.])0\d\.\d+")
ASSERTS = re.compile(r"\bassert |\bassert_allclose\(|\bsac_checks\.(check_equal|compare)\(")


class Row(NamedTuple):
    """A row of a table."""

    concept: str
    taught: str
    run: str
    checked: str


class Section(NamedTuple):
    """A section of a notebook: its title after those above it, and its code cells.

    The code of its subsections counts.
    """

    titles: list[str]
    code: list[str]


@functools.cache
def sections_of(number: str) -> list[Section]:
    (path,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
    found: list[Section] = []
    above: list[tuple[int, Section]] = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            for _, section in above:
                section.code.append(cell.source)
            continue
        prose = re.sub(r"```.*?```", "", cell.source, flags=re.S)
        for heading in re.finditer(r"^(#+) (.+)$", prose, re.M):
            level = len(heading[1])
            above = [one for one in above if one[0] < level]
            titles = [*(above[-1][1].titles if above else []), heading[2].strip()]
            found.append(Section(titles, []))
            above.append((level, found[-1]))
    return found


def named(number: str, name: str) -> list[Section]:
    """The sections with this name; for "A › B", those named B within a section A."""
    *parents, title = name.split(" › ")
    return [
        section
        for section in sections_of(number)
        if section.titles[-1] == title and set(parents) <= set(section.titles)
    ]


def rows(page: str) -> list[Row]:
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    cells = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]
    return [Row(*row) for row in cells if row != ("concept", "taught", "run", "checked")]


def problems(row: Row) -> list[str]:
    """What is wrong with a row, as short sentences."""
    wrong = []
    code: list[str] = []
    if not SECTION.search(row.taught) and not row.taught.startswith("not taught: "):
        wrong.append("where it is taught is missing")
    for number, name, label in SECTION.findall(" ".join(row)):
        if number != label:
            wrong.append(f"the link of {number}, {name} goes to {label}")
        found = named(number, name)
        if len(found) != 1:
            wrong.append(f"{len(found)} sections of notebook {number} are named {name}")
        code += [cell for section in found for cell in section.code]
    runs, *missing = row.run.split("not run: ")
    pieces = re.findall(r"`([^`]+)`", SECTION.sub("", runs))
    cells = [cell for cell in code for piece in pieces if piece in cell]
    if not (pieces or missing):
        wrong.append("what runs is missing")
    for piece in pieces:
        if not any(piece in cell for cell in code):
            wrong.append(f"no cell of these sections has the code {piece}")
    if "asserted" in row.checked and not any(map(ASSERTS.search, cells)):
        wrong.append("no cell with this code asserts anything")
    exercises = EXERCISE.findall(row.checked)
    for number in exercises:
        if f'exercises.check("{number}"' not in "\n".join(sections_of(number[:2])[0].code):
            wrong.append(f"there is no exercise {number}")
    tests = re.findall(r"`(tests/[^`]+)`", row.checked)
    wrong += [f"{name} does not exist" for name in tests if not (ROOT / name).is_file()]
    if not (tests or exercises or row.checked.startswith(("asserted", "not checked"))):
        wrong.append("what checks it is missing")
    return wrong


@pytest.mark.parametrize("row", rows(PAGE.read_text()), ids=lambda row: row.concept)
def test_a_row_names_only_what_exists(row):
    assert problems(row) == []


def test_each_document_has_a_table_and_each_concept_one_row():
    page = PAGE.read_text()
    _, *documents = re.split(r"^## ", page, flags=re.M)
    assert len(documents) == 4
    for document in documents:
        concepts = [row.concept for row in rows(document)]
        assert "\nSource: " in document
        assert len(concepts) >= 20
        assert len(concepts) == len(set(concepts))


def test_links_have_a_target():
    """Those with a label: test_links.py checks the others."""
    page = PAGE.read_text()
    targets = dict(re.findall(r"^\[(\d\d)\]: (\S+)$", page, re.M))
    assert set(targets) == set(re.findall(r"\]\[(\d\d)\]", page))
    for number, target in targets.items():
        assert (PAGE.parent / target).is_file()
        assert Path(target).name.startswith(f"{number}_")


def test_the_readme_links_to_the_page():
    assert "](docs/concepts.md)" in (ROOT / "README.md").read_text()


GOOD = Row("x", "[01, Too small][01]", "`print(held_steps)`", "asserted; 01.3; `tests/conftest.py`")


@pytest.mark.parametrize(
    ("column", "text", "problem"),
    [
        ("taught", "somewhere", "where it is taught is missing"),
        ("taught", "[01, MaxSize][01]", "0 sections of notebook 01 are named MaxSize"),
        ("taught", "[01, Writing][01]", "2 sections of notebook 01 are named Writing"),
        ("taught", "[01, Too small][02]", "the link of 01, Too small goes to 02"),
        ("run", "a cell", "what runs is missing"),
        (
            "run",
            "`print(held_steps)`, `port = 7`",
            "no cell of these sections has the code port = 7",
        ),
        ("checked", "yes", "what checks it is missing"),
        ("checked", "01.3; 01.99", "there is no exercise 01.99"),
        ("checked", "`tests/test_gone.py`", "tests/test_gone.py does not exist"),
    ],
)
def test_a_wrong_entry_is_found(column, text, problem):
    assert problems(GOOD) == []
    assert problem in problems(GOOD._replace(**{column: text}))


def test_a_cell_without_an_assertion_is_found():
    quiet = Row("x", "[01, The cost of a window][01]", "`taken = `", "asserted")
    assert problems(quiet) == ["no cell with this code asserts anything"]
