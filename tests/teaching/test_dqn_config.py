"""The parameters of notebook 02: accepted values, and one line of error for a wrong one."""

import re
import subprocess
import sys

import attrs
import pytest

from labkit.errors import ParameterError
from labkit.teaching.dqn_config import DQNConfig

INTEGERS = [f.name for f in attrs.fields(DQNConfig) if type(f.default) is int]


@pytest.mark.parametrize("name", INTEGERS)
def test_whole_floats_and_text_become_integers(name):
    value = getattr(DQNConfig(), name) or 1_000
    for given in (float(value), str(value), f"{value:e}"):
        converted = getattr(DQNConfig.from_notebook({name: given}), name)
        assert converted == value
        assert type(converted) is int


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        *[
            ("num_iterations", value, "a whole number from 1 to 1 000 000 000 (rounds of ")
            for value in (0, -5, 1.5, "abc", True, None, float("nan"))
        ],
        ("batch_size", 0, "a whole number from 1 to 1 000 000 (two-step windows)"),
        ("learning_rate", 0, "a number above 0 and up to 1 (Adam step size)"),
        ("gamma", 1.01, "a number from 0 to 1 (discount per env step)"),
        ("target_update_tau", 0, "a number above 0 and up to 1 ("),
        ("replay_buffer_capacity", 1, "a whole number from 2 to 100 000 000 (steps)"),
        ("initial_collect_steps", 1, "a whole number from 2 to "),
        ("epsilon_end", -0.1, "a number from 0 to 1 ("),
        ("td_loss", "mse", "'squared' or 'huber'"),
        ("benchmark_seconds", 0.0, "a number above 0 and up to 600 ("),
        ("seed", -1, "a whole number from 0 to 2 147 483 647 ("),
    ],
)
def test_the_error_names_parameter_range_and_value(name, value, allowed):
    with pytest.raises(ParameterError) as caught:
        DQNConfig.from_notebook({name: value})
    message = str(caught.value)
    assert message.startswith(f"`{name}` must be {allowed}")
    assert message.endswith(f", got {value!r}")
    assert "\n" not in message


def test_a_buffer_smaller_than_a_batch_names_both():
    message = "`replay_buffer_capacity` must be at least `batch_size` = 128 (steps), got 100"
    with pytest.raises(ParameterError, match=f"^{re.escape(message)}$"):
        DQNConfig(replay_buffer_capacity=100)


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param("# Parameters\nnum_iteration = 5\n", id="injected by papermill"),
        pytest.param(
            "num_iteration: int = 5  # rounds\nseed: int = 3\nbatch_size = 64\ngamma = 0.9",
            id="edited by hand",
        ),
    ],
)
def test_a_mistyped_parameter_is_rejected(cell):
    message = "`num_iteration` is not a parameter; did you mean 'num_iterations'?"
    with pytest.raises(ParameterError, match=f"^{re.escape(message)}$"):
        DQNConfig.from_notebook({"In": ["", "import labkit", cell], "num_iteration": 5})


def test_other_cells_of_the_notebook_may_assign_any_name():
    cells = [
        "",
        "import labkit",
        "num_iterations: int = 5\nseed: int = 3\ngamma: float = 0.9",
        "# Parameters\nseed = 4\n",
        "num_steps, rate = 3, 0.1\nwidth = 100",
        "%time x = 1",
    ]
    found = DQNConfig.from_notebook({"In": cells, "num_iterations": 5, "seed": 4, "gamma": 0.9})
    assert found == DQNConfig(num_iterations=5, seed=4, gamma=0.9)


def test_other_names_of_the_notebook_are_ignored():
    assert DQNConfig.from_notebook({"num_steps": 3, "seed": 4}) == DQNConfig(seed=4)


def test_checking_parameters_loads_no_tensorflow():
    code = (
        "import sys, labkit; from labkit.teaching.dqn_config import DQNConfig; "
        "DQNConfig.from_notebook({}); "
        "assert 'tensorflow' not in sys.modules and 'reverb' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
