"""What holds for every committed notebook: executed, clean, described, accessible."""

import re

import attrs
import books
import nbformat
import papermill
import pytest

from labkit.config import SACConfig
from labkit.teaching.dqn_config import DQNConfig

EVERY = pytest.mark.parametrize("number", books.NOTEBOOKS)
MEGABYTES = {"01": 1.5, "02": 1.5, "03": 4}


@EVERY
def test_it_is_executed_in_order_and_clean(number):
    notebook = books.read(number)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    for output in books.outputs(notebook):
        assert output.output_type != "error"
        assert output.get("name") != "stderr"
        # A widget without a kernel is an error in JupyterLab.
        assert "application/vnd.jupyter.widget-view+json" not in output.get("data", {})
    path = books.NOTEBOOKS[number]
    assert not books.MACHINE_PATH.search(path.read_text())
    assert path.stat().st_size < 1e6 * MEGABYTES.get(number, 6)


@EVERY
def test_every_picture_has_words_for_those_who_cannot_see_it(number):
    notebook = books.read(number)
    for output in books.outputs(notebook):
        if "image/png" in output.get("data", {}):
            assert len(output.metadata.get("image/png", output.metadata).get("alt", "")) > 10
        html = output.get("data", {}).get("text/html", "")
        assert html.count("<video") == html.count('aria-label="')  # in a viewer, " is escaped
        assert html.count("<iframe") == html.count('title="3D replay"')
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert all(re.findall(r"!\[(.*?)\]\(", prose))


@EVERY
def test_papermill_describes_every_parameter(number):
    described = papermill.inspect_notebook(str(books.NOTEBOOKS[number]))
    for name, parameter in described.items():
        assert parameter["inferred_type_name"] != "None", name
        assert len(parameter["help"]) > 8, name


@pytest.mark.parametrize(("number", "configuration"), [("02", DQNConfig), ("03", SACConfig)])
def test_parameters_are_fields_and_their_defaults(number, configuration):
    (cell,) = [c for c in books.read(number).cells if "parameters" in c.metadata.get("tags", [])]
    names: dict = {}
    exec("from typing import Optional\n" + cell.source, names)
    names = {name: names[name] for name in names["__annotations__"]}
    fields = {field.name for field in attrs.fields(configuration)}
    further = {"run_dir", "resume", "num_collectors"} if number == "03" else set()
    assert names.keys() - fields == further
    if number == "02":  # notebook 03 lists the tutorial's, and takes the others with -p
        assert fields <= names.keys()
    listed = {name: value for name, value in names.items() if name in fields}
    assert configuration(**listed) == configuration()
