"""Every exercise: its stub, wrong answers and its solution get the verdict that they should.

Stubs and solutions are read out of the notebooks. At its end, pytest prints a row for each exercise
(tests/conftest.py); with `-rA` also what each answer was told.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from exercise_answers import ALSO_RIGHT, WRONG
from test_runs import write_run

from labkit.errors import ParameterError
from labkit.teaching import exercises

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
# The cells between these headings define what answers and checks use: imports, parameters, tables.
SET_UP = {
    "01": ("# ", "## 1. "),
    "02": ("# ", "## Why replay?"),
    "03": ("## Exercises", "### Exercise 03.1"),
    "04": ("# ", "## The picture"),
    "05": ("# ", "## Learning curves"),
    "06": ("# ", "## What can be changed"),
}
CHECK = re.compile(r'^exercises\.check\(\s*"(\d\d\.\d+)", (\w+).*\)$', re.M | re.S)
SOLUTION = re.compile(r"<details><summary>Solution</summary>\n\n.*?```python\n(.*?)```", re.S)


def read(number: str) -> nbformat.NotebookNode:
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    return nbformat.read(path, as_version=4)


def collect(number: str) -> dict[str, tuple[str, str, str, str]]:
    """Exercises of a notebook: number → the answer's name, its stub, the check, the solution."""
    found = {}
    cells = read(number).cells
    for cell, following in pairwise(cells):
        match = CHECK.search(cell.source) if cell.cell_type == "code" else None
        if match:
            (solution,) = SOLUTION.findall(following.source)
            stub = cell.source[: match.start()]
            found[match[1]] = (match[2], stub, match[0], solution)
    return found


EXERCISES = {number: parts for book in exercises.MODULES for number, parts in collect(book).items()}
WRONG_ANSWERS = [(number, what) for number in WRONG for what in WRONG[number]]


@pytest.fixture(scope="module")
def namespaces():
    """The names that each notebook has after its set-up, filled on first use."""
    return {}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs for notebook 05: four settings, of which one has a seed twice and one a single run."""
    folder = tmp_path_factory.mktemp("runs")
    for number, seed in enumerate([0, 1, 2, 3, 4, 4]):
        write_run(folder / f"a{number}", seed, [0.0, [9.0, 14.0, 11.0, 12.0, 13.0, 12.0][number]])
    for seed in range(4):
        write_run(folder / f"b{seed}", seed, [0.0, [4.5, 5.5, 5.0, 5.0][seed]], gamma=0.5)
    for seed in range(2):
        write_run(folder / f"c{seed}", seed, [0.0, 8.0 + 3 * seed], n_step=1)
    write_run(folder / "d", 0, [0.0, 20.0], batch_size=32)
    return str(folder)


@pytest.fixture
def run(namespaces, runs, monkeypatch, capsys, record_property):
    """`run(number, kind, code)` checks an answer as the notebook does; returns the verdict.

    It is printed in lines of at most 100 characters, which are joined here.
    """
    monkeypatch.chdir(NOTEBOOKS)

    def execute(number: str, kind: str, code: str) -> str:
        book = number[:2]
        if book not in namespaces:
            namespaces[book] = set_up(book, runs)
        capsys.readouterr()
        names = dict(namespaces[book])
        exec(f"{code}\n{EXERCISES[number][2]}", names)
        printed = capsys.readouterr().out
        print(printed, end="")  # shown by -rA
        assert printed.endswith("\n")
        assert all(0 < len(line) <= 100 for line in printed.splitlines())
        printed = " ".join(printed.splitlines()) + "\n"
        status = printed.removeprefix(f"Exercise {number}: ").split(". ")[0].strip()
        record_property("exercise", [number, kind, status])
        return printed

    return execute


def set_up(book: str, runs: str) -> dict:
    names: dict = {"__name__": "__main__"}
    cells = read(book).cells
    start, end = (next(heading_at(cells, heading)) for heading in SET_UP[book])
    for cell in cells[start:end]:
        if cell.cell_type == "code":
            exec(cell.source, names)
            if "parameters" in cell.metadata.get("tags", []) and "runs" in names:
                names["runs"] = runs
    return names


def heading_at(cells: list, heading: str) -> Iterator[int]:
    """The places of the cells that contain this heading."""
    for place, cell in enumerate(cells):
        if cell.cell_type == "markdown" and re.search(f"^{heading}", cell.source, re.M):
            yield place


@pytest.mark.parametrize("number", EXERCISES)
def test_a_stub_is_not_answered_yet(number, run):
    assert run(number, "stub", EXERCISES[number][1]) == f"Exercise {number}: not answered yet\n"


@pytest.mark.parametrize(("number", "what"), WRONG_ANSWERS)
def test_a_wrong_answer_gets_its_diagnosis(number, what, run):
    code, diagnosis = WRONG[number][what]
    printed = run(number, "wrong answer", code)
    assert printed.startswith(f"Exercise {number}: not yet. ")
    assert diagnosis in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("number", EXERCISES)
def test_the_solution_of_the_notebook_is_right(number, run):
    why = exercises.find(number).why
    assert run(number, "solution", EXERCISES[number][3]) == f"Exercise {number}: right. {why}\n"


@pytest.mark.parametrize(("number", "code"), ALSO_RIGHT)
def test_another_right_answer_is_right(number, code, run):
    assert run(number, "solution", code).startswith(f"Exercise {number}: right. ")


def test_every_exercise_is_in_its_notebook_and_has_two_wrong_answers():
    assert list(WRONG) == list(EXERCISES)
    assert all(len(answers) >= 2 for answers in WRONG.values())
    for book in exercises.MODULES:
        listed = [number for number in EXERCISES if number[:2] == book]
        assert listed == [f"{book}.{place}" for place in range(1, len(listed) + 1)]
        assert len(listed) >= 5
        with pytest.raises(ParameterError, match=re.escape(", ".join(listed))):
            exercises.find(f"{book}.0")  # the message names those that exist


@pytest.mark.parametrize("book", exercises.MODULES)
def test_the_notebook_is_committed_with_stubs(book):
    """Nobody's answers are committed, and each solution is folded."""
    text = nbformat.writes(read(book))
    cells = [cell for cell in read(book).cells if cell.cell_type == "code"]
    for cell in filter(lambda cell: CHECK.search(cell.source), cells):
        (number, _) = CHECK.search(cell.source).groups()
        (output,) = cell.outputs
        assert output.text == f"Exercise {number}: not answered yet\n"
    assert text.count("<details>") == text.count("</details>")
    assert text.count("<details>") == sum(number[:2] == book for number in EXERCISES)


def test_the_command_for_a_class_leaves_out_the_solutions(tmp_path):
    """As README.md gives it."""
    readme = (NOTEBOOKS.parent / "README.md").read_text()
    (command,) = re.findall(r"^    \.venv/bin/(jupyter nbconvert --to .*\\\n.*)$", readme, re.M)
    words = shlex.split(command.replace("\\\n", " ").replace("notebooks/0*.ipynb", ""))
    words[words.index("class")] = str(tmp_path)
    files = sorted(NOTEBOOKS.glob("0*.ipynb"))
    subprocess.run([sys.executable, "-m", *words, *map(str, files)], check=True, timeout=200)
    for file in files:
        cells = nbformat.read(tmp_path / file.name, 4).cells
        assert not any("<details>" in cell.source or cell.get("outputs") for cell in cells)
        asked = [cell for cell in cells if CHECK.search(cell.source)]
        assert len(asked) == sum(number[:2] == file.name[:2] for number in EXERCISES)


def test_a_count_without_the_correction_is_named():
    compared = pd.DataFrame({"p": [0.01, 0.04], "corrected": [0.03, 0.08]}, index=["a", "b"])
    verdict = exercises.grade("05.2", 2, compared=compared)
    assert verdict.text.endswith("You say 2. That is without Holm's correction for 2 tests.")
    assert exercises.grade("05.2", 1, compared=compared).status == exercises.RIGHT


def empty(a):
    """A docstring is no answer."""
    ...


@pytest.mark.parametrize("answer", [None, ..., empty, lambda: None, lambda: ...])
def test_stubs(answer):
    assert exercises.is_stub(answer)


@pytest.mark.parametrize("answer", [0, "", [], lambda: 0, lambda x: x, lambda x: x.flush(), print])
def test_answers(answer):
    assert not exercises.is_stub(answer)


def test_an_unknown_number_is_one_line():
    with pytest.raises(ParameterError) as caught:
        exercises.check("9", 1)
    assert "`number` must be a number that begins with 01 or 02 or 03 or 04 or 05 or 06" in str(
        caught.value
    )
