"""Notebook 05 on small runs made here: what it ranks, and what it says when it cannot."""

import re

import books
import nbformat
import pytest
from nbclient import NotebookClient


@pytest.fixture
def shown(tmp_path):
    """`shown(name=value, …)` runs the notebook on tmp_path/runs; returns what it printed."""

    def run(**parameters) -> str:
        notebook = books.read("05")
        cells = enumerate(notebook.cells)
        place = next(i for i, c in cells if "parameters" in c.metadata.get("tags", []))
        parameters["runs"] = str(tmp_path / "runs")
        values = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
        notebook.cells.insert(place + 1, nbformat.v4.new_code_cell("# Parameters\n" + values))
        NotebookClient(notebook, timeout=200).execute(cwd=tmp_path)
        return books.text(books.outputs(notebook))

    return run


def test_two_settings_are_ranked(tmp_path, shown):
    for seed in range(5):
        books.write_run(tmp_path / "runs" / f"a{seed}", seed, [0.0, 10.0 + seed])
        books.write_run(tmp_path / "runs" / f"b{seed}", seed, [0.0, 3.0 + seed, 9.0], gamma=0.5)
    found = shown(level=5.0)
    assert "runs read: 10; compared after 20 gradient steps" in found
    assert re.search(r"baseline +5 +12\.0", found), "interquartile mean of 10 to 14"
    assert re.search(r"gamma 0\.5 +5 +5\.0", found)
    assert re.search(r"^gamma 0\.5 +-7\.00 .* lower than baseline", found, re.M)
    assert "the same as labkit's: True" in found
    assert "the baseline beats gamma 0.5 in 100% of the pairs" in found
    assert "highest IQM of the return: baseline" in found


def test_a_repeated_seed_and_a_single_run_are_not_ranked(tmp_path, shown):
    pendulum = {"env_name": "gymnasium:Pendulum-v1", "walks": False}
    for number, seed in enumerate((0, 1, 1)):
        curve = [0.0, [1.0, 3.0, 90.0][number]]
        books.write_run(tmp_path / "runs" / f"a{number}", seed, curve, **pendulum)
    books.write_run(tmp_path / "runs" / "b", 0, [0.0, 50.0], gamma=0.5, **pendulum)
    found = shown()
    assert "4 runs: 3 count, 1 repeat a seed" in found
    assert re.search(r"^baseline +2 +2\.00 ", found, re.M), "the mean of 1 and 3"
    assert "Nothing to compare" in found
    assert "furthest: nothing walks here" in found
