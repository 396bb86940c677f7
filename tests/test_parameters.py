"""A notebook's parameters: a mistyped name is rejected wherever a reader may type it."""

import contextlib
from pathlib import Path

import nbformat
import pytest

from labkit import SACConfig
from labkit.errors import ParameterError
from labkit.parameters import (
    assigned_parameters,
    brief,
    check_ints,
    check_path,
    check_real,
    from_notebook,
    invalid,
)
from labkit.training.run import start_run

OWN_CELL = """\
num_iterations: int = 100  # gradient steps
gamma: float = 0.9
seed: int = 1
n_step: int = 3
"""
FIELDS = SACConfig.names()


def test_known_parameters_of_both_cells_are_read():
    namespace = {
        "In": ["", "import labkit", OWN_CELL, "# Parameters\nnum_iterations = 5\nrun_dir = 'x'\n"],
        **{"num_iterations": 5, "gamma": 0.9, "seed": 1, "run_dir": "x", "other": 3},
    }
    found = from_notebook(namespace, FIELDS, ("run_dir",))
    assert found == {"num_iterations": 5, "gamma": 0.9, "seed": 1}


@pytest.mark.parametrize(
    "cell",
    [
        "# Parameters\nnum_iteration = 5\n",  # papermill's, for -p num_iteration 5
        OWN_CELL.replace("num_iterations", "num_iteration"),  # edited by hand
        OWN_CELL + "num_iteration = 5\n",
    ],
)
def test_a_mistyped_name_is_rejected_with_the_closest_one(cell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = r"^`num_iteration` is not a parameter; did you mean 'num_iterations'\?$"
    with pytest.raises(ParameterError, match=expected):
        start_run({"In": ["", "import labkit", OWN_CELL, cell], "num_iteration": 5})
    assert list(tmp_path.iterdir()) == []


def test_a_cell_that_was_corrected_counts_in_its_last_version(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = OWN_CELL.replace("gamma", "gama")
    values = {"gama": 0.9, "gamma": 0.9, "num_iterations": 5}
    corrected = {"In": ["", wrong, "start()", OWN_CELL], **values}
    assert from_notebook(corrected, FIELDS) == {"num_iterations": 5, "gamma": 0.9}
    for later in ("seed: int = 2\ngamma: float = 0.5\n", "# Parameters\nseed = 2\n"):
        with pytest.raises(ParameterError, match="did you mean 'gamma'"):  # not corrected by these
            from_notebook({"In": ["", wrong, later], **values}, FIELDS)


@pytest.mark.parametrize(
    "cell",
    [
        "runs = 3\ngamma = 0.9\n",  # a reader's own cell
        "episodes = 3\nfor seed in range(episodes):\n    print(seed)\n",
        "%matplotlib inline\nnum_iteration = 5\n",
        "a = b = 1\nseed = 2",
        "",
    ],
)
def test_other_cells_are_not_parameters_cells(cell):
    assert assigned_parameters(cell, FIELDS) == []


NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


@pytest.mark.parametrize("number", ["01", "04"])
def test_a_notebook_without_a_configuration_rejects_a_mistyped_parameter(number):
    """Its first cells, executed as Jupyter does, before and behind papermill's cell."""
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    place = [
        index for index, one in enumerate(cells) if "parameters" in one.metadata.get("tags", ())
    ]
    own, check = (cells[place[0] + offset].source for offset in (0, 1))
    imports = "from typing import Optional\n"
    for injected, wrong in (
        ("# Parameters\nseed = 3\n", False),
        ("# Parameters\nsede = 3\n", True),
    ):
        namespace = {"In": ["", own, injected]}
        expected = pytest.raises(
            ParameterError, match=r"^`sede` is not a parameter; did you mean 'seed'"
        )
        with expected if wrong else contextlib.nullcontext():
            exec(imports + own + "\n" + injected + "\n" + check, namespace)


def test_a_long_wrong_value_is_cut():
    message = str(invalid("seed", 10**500, "a whole number"))
    assert message.startswith("`seed` must be a whole number, got 1000")
    assert len(message) < 150


@pytest.mark.parametrize(
    ("value", "read"),
    [(2, [2]), ((1, 2), [1, 2]), ([1.0], [1]), ("(1, 2)", [1, 2]), ("3", [3]), ("[4]", [4])],
)
def test_several_whole_numbers_may_come_as_text(value, read):
    found = check_ints("collectors", value, 1, 64, "workers")
    assert found == read
    assert {type(number) for number in found} == {int}


@pytest.mark.parametrize("value", [0, (), "", "many", (1, 65), "(1, 'a')", None, {1: 2}, True, 1.5])
def test_other_values_are_no_whole_numbers(value):
    line = r"`collectors` must be one or more whole numbers from 1 to 64 \(workers\), got "
    with pytest.raises(ParameterError, match=line):
        check_ints("collectors", value, 1, 64, "workers")


def test_a_number_and_a_path_of_a_notebook_are_checked():
    assert check_real("level", "2.5", 0, 9, "return") == 2.5
    assert check_real("level", 0, 0, 9, "return") == 0.0
    for value in ("many", float("nan"), 10, None, True):
        with pytest.raises(ParameterError, match=r"`level` must be a number from 0 to 9 \(return"):
            check_real("level", value, 0, 9, "return")
    with pytest.raises(ParameterError, match=r"`rate` must be a number above 0 and up to 1"):
        check_real("rate", 0, 0, 1, "step size", above=True)
    assert check_path("runs", "a b/c", "a folder") == "a b/c"
    for value in ("", " ", 4, None):
        with pytest.raises(ParameterError, match="`runs` must be the path of a folder, got "):
            check_path("runs", value, "a folder")


def test_equal_neighbours_of_a_tuple_are_counted():
    assert brief((3.14,) * 8 + (1.0,) + (0.15,) * 3) == "(8 × 3.14, 1, 3 × 0.15)"
    assert brief((256, 256)) == "(256, 256)"
    assert brief((256, 128)) == "(256, 128)"
    assert brief(()) == "()"
    assert (brief(0.5), brief(True), brief(None)) == (
        "0.5",
        "True",
        "None",
    )
