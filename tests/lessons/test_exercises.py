"""Every exercise: its stub, a wrong answer and its solution get the verdict that they should.

Stubs and solutions are read out of the notebooks.
"""

import re
from itertools import pairwise

import books
import pytest
from exercise_answers import ALSO_RIGHT, WRONG

from labkit.config import SACConfig
from labkit.errors import ParameterError
from labkit.lessons import exercises

# The cells between these headings define what answers and checks use: imports, parameters, tables.
SET_UP = {
    "01": ("# ", "### An agent"),
    "02": ("# ", "## Why replay?"),
    "03": ("# ", "## 1. The idea"),
    "04": ("# ", "### Rollout worker"),
    "05": ("# ", "## Fourteen tests at once"),
    "06": ("# ", "## Takeaways"),
}
CHECK = re.compile(r'^exercises\.check\(\s*"(\d\d\.\d+)", (\w+).*\)$', re.M | re.S)
SOLUTION = re.compile(r"<details><summary>Solution</summary>\n\n.*?```python\n(.*?)```", re.S)


def collect(book: str) -> dict[str, tuple[str, str, str]]:
    """Exercises of a notebook: number → its stub, the check, the solution."""
    found = {}
    for cell, following in pairwise(books.read(book).cells):
        match = CHECK.search(cell.source) if cell.cell_type == "code" else None
        if match:
            solution = following.source  # a code cell, where the notebook goes on with it
            if following.cell_type == "markdown":
                (solution,) = SOLUTION.findall(following.source)
            assert "solution" in following.metadata.get("tags", [])
            found[match[1]] = (cell.source[: match.start()], match[0], solution)
    return found


EXERCISES = {number: parts for book in exercises.MODULES for number, parts in collect(book).items()}


@pytest.fixture(scope="module")
def namespaces():
    """The names that each notebook has after its set-up, filled on first use."""
    return {}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs for notebook 05: four settings, of which one has a seed twice and one a single run."""
    folder = tmp_path_factory.mktemp("runs")
    for number, seed in enumerate([0, 1, 2, 3, 4, 4]):
        end = [9.0, 14.0, 11.0, 12.0, 13.0, 12.0][number]
        books.write_run(folder / f"a{number}", seed, [0.0, end])
    for seed in range(4):
        books.write_run(folder / f"b{seed}", seed, [0.0, [4.5, 5.5, 5.0, 5.0][seed]], gamma=0.5)
    for seed in range(2):
        books.write_run(folder / f"c{seed}", seed, [0.0, 8.0 + 3 * seed], n_step=1)
    books.write_run(folder / "d", 0, [0.0, 20.0], batch_size=32)
    return str(folder)


@pytest.fixture
def verdict(namespaces, runs, monkeypatch, capsys):
    """`verdict(number, code)` checks an answer as the notebook does; returns the line printed."""
    monkeypatch.chdir(books.ROOT / "notebooks")

    def check(number: str, code: str) -> str:
        book = number[:2]
        if book not in namespaces:
            namespaces[book] = set_up(book, runs)
        capsys.readouterr()
        exec(f"{code}\n{EXERCISES[number][1]}", dict(namespaces[book]))
        printed = capsys.readouterr().out
        assert all(0 < len(line) <= 100 for line in printed.splitlines())
        return " ".join(printed.splitlines())

    return check


def set_up(book: str, runs: str) -> dict:
    names: dict = {"__name__": "__main__", "config": SACConfig()}  # the config of notebook 03
    cells = books.read(book).cells
    start, end = (
        next(i for i, c in enumerate(cells) if re.search(f"^{heading}", c.source, re.M))
        for heading in SET_UP[book]
    )
    for cell in cells[start:end]:
        starts_ray = ".remote(" in cell.source or "ray_cluster.connection" in cell.source
        makes_a_run = cell.id == "start-run"
        if cell.cell_type == "code" and not starts_ray and not makes_a_run:
            exec(cell.source, names)
            if "parameters" in cell.metadata.get("tags", []) and "runs" in names:
                names["runs"] = runs
            if "parameters" in cell.metadata.get("tags", []) and "payload_kg_a" in names:
                names["seconds"] = 1
    return names


@pytest.mark.parametrize("number", EXERCISES)
def test_stub_wrong_answer_and_solution(number, verdict):
    stub, _, solution = EXERCISES[number]
    assert verdict(number, stub) == f"Exercise {number}: not answered yet"
    wrong, diagnosis = WRONG[number]
    told = verdict(number, wrong)
    assert told.startswith(f"Exercise {number}: not yet. ")
    assert diagnosis in told
    why = exercises.find(number).why
    assert verdict(number, solution) == f"Exercise {number}: right. {why}"


@pytest.mark.parametrize(("number", "code"), ALSO_RIGHT)
def test_another_right_answer_is_right(number, code, verdict):
    assert verdict(number, code).startswith(f"Exercise {number}: right. ")


def test_every_exercise_is_in_its_notebook_with_a_stub():
    assert list(WRONG) == list(EXERCISES)
    for book in exercises.MODULES:
        listed = [number for number in EXERCISES if number[:2] == book]
        with pytest.raises(ParameterError, match=re.escape(", ".join(listed))):
            exercises.find(f"{book}.0")  # the message names those that exist
        for cell in books.read(book).cells:
            if cell.cell_type == "code" and CHECK.search(cell.source):
                assert cell.outputs[0].text.endswith(": not answered yet\n"), "somebody's answer"


def test_what_a_stub_is():
    def empty(a):
        """A docstring is no answer."""
        ...

    assert all(map(exercises.is_stub, [None, ..., empty, lambda: None, lambda: ...]))
    assert not any(map(exercises.is_stub, [0, "", [], lambda: 0, lambda x: x, print]))
    half = type("Half", (), {"push": empty, "pull": lambda self: 0})
    assert exercises.is_stub(half)
    assert not exercises.is_stub(type("Whole", (), {"pull": lambda self: 0}))


def test_a_class_copy_of_notebook_03_holds_no_answer():
    """Cells tagged `solution` are left out; the training loop then needs the reader's lines."""
    kept = [c for c in books.read("03").cells if "solution" not in c.metadata.get("tags", [])]
    text = "\n".join(cell.source for cell in kept)
    answers = [parts[2] for number, parts in EXERCISES.items() if number.startswith("03")]
    assert len(answers) == 4
    for answer in answers:
        assert answer.splitlines()[-1].strip().removeprefix("return ") not in text
