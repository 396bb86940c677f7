"""What holds for every committed notebook: executed, clean, described, accessible."""

import re

import attrs
import books
import nbformat
import papermill
import pytest

from labkit.config import SACConfig

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


def test_parameters_are_fields_and_their_defaults():
    (cell,) = [c for c in books.read("03").cells if "parameters" in c.metadata.get("tags", [])]
    names: dict = {}
    exec("from typing import Optional\n" + cell.source, names)
    names = {name: names[name] for name in names["__annotations__"]}
    fields = {field.name for field in attrs.fields(SACConfig)}
    assert names.keys() - fields == {"run_dir", "resume", "num_collectors"}
    # The notebook lists the tutorial's fields, and takes the others with -p.
    listed = {name: value for name, value in names.items() if name in fields}
    assert SACConfig(**listed) == SACConfig()
