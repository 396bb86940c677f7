"""A notebook's parameters: read from its cells, also those that a reader edited by hand."""

import pytest

from labkit import SACConfig
from labkit.errors import ParameterError
from labkit.parameters import brief, check_path, check_real, from_notebook, invalid

OWN_CELL = """\
num_iterations: int = 100  # gradient steps
gamma: float = 0.9
seed: int = 1
n_step: int = 3
"""
VALUES = {"num_iterations": 5, "gamma": 0.9, "seed": 1, "run_dir": "x", "other": 3}
FIELDS = SACConfig.names()


def read(*cells):
    """The parameters of a notebook whose cells were executed in this order."""
    return from_notebook({"In": ["", "import labkit", *cells], **VALUES}, FIELDS, ("run_dir",))


def test_known_parameters_of_both_cells_are_read():
    found = read(OWN_CELL, "# Parameters\nnum_iterations = 5\nrun_dir = 'x'\n")
    assert found == {"num_iterations": 5, "gamma": 0.9, "seed": 1}


@pytest.mark.parametrize(
    "cells",
    [
        [OWN_CELL, "# Parameters\nnum_iteration = 5\n"],  # papermill's, for -p num_iteration 5
        [OWN_CELL.replace("num_iterations", "num_iteration")],  # edited by hand
        [OWN_CELL + "num_iteration = 5\n"],
        [OWN_CELL.replace("num_iterations", "num_iteration"), "# Parameters\nseed = 2\n"],
    ],
)
def test_a_mistyped_name_is_rejected_with_the_closest_one(cells):
    expected = r"^`num_iteration` is not a parameter; did you mean 'num_iterations'\?$"
    with pytest.raises(ParameterError, match=expected):
        read(*cells)


@pytest.mark.parametrize(
    "cells",
    [
        [OWN_CELL.replace("gamma", "gama"), "start()", OWN_CELL],  # corrected, and executed again
        [OWN_CELL, "runs = 3\ngamma = 0.9\n"],  # a reader's own cell
        [OWN_CELL, "for episode in range(3):\n    print(episode)\n"],
        [OWN_CELL, "%matplotlib inline\nnum_iteration = 5\n"],
    ],
)
def test_other_cells_and_corrected_ones_are_not_checked(cells):
    assert read(*cells)["gamma"] == 0.9


def test_values_of_a_notebook_are_checked():
    assert check_real("level", "2.5", 0, 9, "return") == 2.5
    assert check_path("runs", "a b/c", "a folder") == "a b/c"
    for value in ("many", float("nan"), 10, None, True):
        with pytest.raises(ParameterError, match=r"`level` must be a number from 0 to 9 \(return"):
            check_real("level", value, 0, 9, "return")
    for value in ("", " ", 4, None):
        with pytest.raises(ParameterError, match="`runs` must be the path of a folder, got "):
            check_path("runs", value, "a folder")


def test_long_values_are_cut():
    message = str(invalid("seed", 10**500, "a whole number"))
    assert message.startswith("`seed` must be a whole number, got 1000")
    assert len(message) < 150
    assert brief((3.14,) * 8) == "(3.14, 3.14, 3.14, 3.14, 3.14, 3.14, ...)"
