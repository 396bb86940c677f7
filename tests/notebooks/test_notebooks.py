"""What holds for every committed notebook."""

import ast
import json
import re
import statistics
from itertools import pairwise
from pathlib import Path

import nbformat
import papermill
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
MACHINE_PATH = re.compile(r"(?<![\w.])/(work|root|home|tmp|usr|opt)/[\w.\-]+")


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def outputs(notebook):
    return [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]


def assert_tagged_outputs_are_committed(executed, committed):
    """As nbval does it: the text of the cells with the tag `nbval-check-output`, and no pictures.

    The other outputs depend on the parameters of the execution.
    """
    before = {cell.id: text_of(cell) for cell in committed.cells if is_tagged(cell)}
    after = {cell.id: text_of(cell) for cell in executed.cells if is_tagged(cell)}
    assert len(after) > 1
    assert after == {name: before[name] for name in after}


def is_tagged(cell):
    return "nbval-check-output" in cell.metadata.get("tags", [])


def text_of(cell):
    return "".join(o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.outputs)


def test_it_is_valid_and_executed(notebook):
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in code if cell.execution_count]
    assert counts == sorted(set(counts)), "executed in another order, or in several sessions"
    for cell in code:
        # A long notebook may get a new cell before it is executed again.
        waiting = "not-executed-yet" in cell.metadata.get("tags", [])
        assert bool(cell.execution_count) != waiting, f"add or remove the tag: {cell.id}"
        assert not (waiting and cell.outputs)
    found = outputs(notebook)
    assert not [o for o in found if o.output_type == "error" or o.get("name") == "stderr"]


def test_headings_leave_no_level_out(notebook):
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    prose = re.sub(r"```.*?```", "", prose, flags=re.S)
    levels = [len(marks) for marks in re.findall(r"^(#+) ", prose, re.M)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_every_picture_has_words_for_those_who_cannot_see_it(notebook):
    for output in outputs(notebook):
        if "image/png" in output.get("data", {}):
            assert len(output.metadata.get("image/png", output.metadata).get("alt", "")) > 10
        html = output.get("data", {}).get("text/html", "")
        assert html.count("<video") == html.count('aria-label="')  # in a viewer, " is escaped
        assert html.count("<video") == html.count("object-position:top"), "room for the controls"
        assert html.count("<iframe") == html.count('title="3D replay"')
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert all(re.findall(r"!\[(.*?)\]\(", prose))


def test_no_output_is_larger_than_a_megabyte_but_videos(notebook):
    for output in outputs(notebook):
        if "<video" not in output.get("data", {}).get("text/html", ""):
            assert len(json.dumps(output)) < 1_000_000


def test_cells_are_short(notebook):
    """The cell of the parameters has a line for each, and does not count."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and not is_front(cell)]
    lengths = [len(cell.source.splitlines()) for cell in code]
    assert statistics.median(lengths) <= 9
    assert max(lengths) <= 25


def is_front(cell):
    return cell.id == "colab" or "parameters" in cell.metadata.get("tags", [])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_small_and_names_no_path_of_the_machine(path):
    assert not MACHINE_PATH.search(path.read_text())
    assert path.stat().st_size < 6_000_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_parameter_is_described(path):
    for name, parameter in papermill.inspect_notebook(str(path)).items():
        assert parameter["inferred_type_name"] != "None", name
        assert len(parameter["help"]) > 8, name


# Notebook 03 hands its parameters to labkit (tests/wiring), notebook 06 to `read_settings`. Their
# own tests, and those of notebook 05, execute them with other values.
READ_IN_CELLS = [path for path in NOTEBOOKS if path.name[:2] not in ("03", "05", "06")]


@pytest.mark.parametrize("path", READ_IN_CELLS, ids=lambda path: path.stem)
def test_every_parameter_is_read_after_its_check(path):
    code = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    (place,) = [n for n, c in enumerate(code) if "parameters" in c.metadata.get("tags", [])]
    read = {name for cell in code[place + 2 :] for name in names_read(cell.source)}
    assert set(papermill.inspect_notebook(str(path))) - read == set()


def names_read(source):
    """The variables and attributes that a cell reads."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.id if isinstance(node, ast.Name) else node.attr
