"""Notebook 01: its form, and a copy of it must give the committed outputs."""

import ast
import hashlib
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import nbformat
import papermill
import pytest

from labkit.errors import ParameterError
from labkit.parameters import check_int
from labkit.replay.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "01_overlapping_trajectories.ipynb"
PARAMETERS = {"port", "seed", "measured_items"}
IGNORE = "nbval-ignore-output"


@pytest.fixture(scope="module")
def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.fixture(scope="module")
def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tags(cell):
    return cell.metadata.get("tags", [])


def outputs(code):
    return [(cell, output) for cell in code for output in cell.outputs]


@pytest.mark.timeout(400)
def test_a_copy_gives_the_committed_outputs(notebook, tmp_path):
    """nbval compares text only: the cells assert the data of their figures."""
    before = hashlib.sha256(NOTEBOOK.read_bytes()).hexdigest()
    copy = nbformat.from_dict(notebook)
    [cell] = [cell for cell in copy.cells if "parameters" in tags(cell)]
    cell.source, changed = re.subn(
        r"^port: int = \d+", f"port: int = {free_port()}", cell.source, flags=re.M
    )
    assert changed == 1
    nbformat.write(copy, tmp_path / NOTEBOOK.name)
    sanitize = ROOT / "tests" / "nbval_sanitize.cfg"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:anyio", "-p", "no:cacheprovider"),
            *("--nbval", "--nbval-current-env", "--nbval-cell-timeout", "120", "--rootdir", "."),
            *("--nbval-sanitize-with", str(sanitize), NOTEBOOK.name),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert re.search(r"\d+ passed", done.stdout)
    assert hashlib.sha256(NOTEBOOK.read_bytes()).hexdigest() == before


def test_few_outputs_are_not_compared_and_their_cells_assert(code):
    ignored = [cell for cell in code if IGNORE in tags(cell)]
    assert 0 < len(ignored) <= len(code) / 4
    assert all(re.search(r"^\s*assert ", cell.source, re.M) for cell in ignored)


def test_cells_with_figures_assert_their_data(code):
    drawn = [cell for cell, out in outputs(code) if "image/png" in out.get("data", {})]
    assert len(drawn) >= 10
    assert all("assert " in cell.source for cell in drawn)


def test_cells_are_short_and_follow_prose(notebook, code):
    lengths = [len([line for line in cell.source.splitlines() if line.strip()]) for cell in code]
    assert statistics.median(lengths) <= 8
    assert max(lengths) <= 25
    for above, cell in zip([None, *notebook.cells], notebook.cells, strict=False):
        if cell.cell_type == "code":
            assert above is not None
            assert above.cell_type == "markdown", cell.source


def test_no_helper_is_longer_than_15_lines(code):
    for cell in code:
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno + 1 <= 15, node.name


def test_its_first_lines_say_what_to_read_and_what_to_skip(notebook):
    first = notebook.cells[0].source
    sections = re.findall(r"^## (\d+)\. ", "\n".join(cell.source for cell in notebook.cells), re.M)
    named = re.search(r"\*\*First reading\*\*(.*?)\n\n", first, re.S)[1]
    told = re.findall(r"\b(\d+)\s\(", named)
    assert sorted(told, key=int) == sections, "each section is either read or skipped"
    assert "skip" in named


def test_it_ends_with_takeaways_and_exercises(notebook):
    """What the exercises do is in tests/teaching/test_exercises.py."""
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert prose.index("## Takeaways") < prose.index("## Exercises")


def test_it_imports_labkit_first_and_papermill_reads_its_parameters(code):
    assert code[1].source == "import labkit"  # after the cell for Colab
    found = papermill.inspect_notebook(str(NOTEBOOK))
    assert set(found) == PARAMETERS
    assert all(item["inferred_type_name"] == "int" and item["help"] for item in found.values())


def test_parameters_are_checked_like_those_of_a_run():
    assert check_int("port", 9999.0, 1024, 65535, "TCP port") == 9999
    assert check_int("port", "1e4", 1024, 65535, "TCP port") == 10_000
    allowed = "a whole number from 1 024 to 65 535 (TCP port)"
    for value in (80, 9999.5, "abc", None, True, float("nan")):
        with pytest.raises(ParameterError) as caught:
            check_int("port", value, 1024, 65535, "TCP port")
        assert str(caught.value) == f"`port` must be {allowed}, got {value!r}"


def test_it_is_committed_executed_in_order_without_log_noise(notebook, code):
    nbformat.validate(notebook)
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    for _, output in outputs(code):
        assert output.output_type != "error"
        assert output.get("name") != "stderr"
        text = output.get("text", "") + str(output.get("data", {}).get("text/plain", ""))
        assert not re.search(r"/(tmp|home|root|usr|work)/|site-packages|\[reverb/|Warning", text)
    assert NOTEBOOK.stat().st_size < 1_500_000


def test_the_lesson_on_packed_rows_is_what_the_cell_measured(code):
    [text] = [out["text"] for _, out in outputs(code) if "times as many when packed" in str(out)]
    inserts, samples, bytes_of_memory = map(float, re.findall(r"([\d.]+) times", text))
    assert inserts > 1.5
    assert samples > 1
    assert bytes_of_memory > 1
