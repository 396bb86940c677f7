"""The parameters of notebook 02, and the one line that refuses a wrong one."""

import subprocess
import sys

import attrs
import pytest

from labkit.errors import ParameterError
from labkit.teaching import dqn_config
from labkit.teaching.dqn_config import DQNConfig

INTEGERS = [f.name for f in attrs.fields(DQNConfig) if type(f.default) is int]


@pytest.mark.parametrize("name", INTEGERS)
def test_whole_floats_are_integers(name):
    value = getattr(DQNConfig(), name) or 1_000
    for given in (float(value), str(value), f"{value:e}"):
        taken = getattr(DQNConfig.from_notebook({name: given}), name)
        assert taken == value
        assert type(taken) is int


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("num_iterations", value) for value in (0, -5, 1.5, "abc", True, None, float("nan"))],
        ("batch_size", 0),
        ("learning_rate", 0),
        ("gamma", 1.01),
        ("target_update_tau", 0),
        ("replay_buffer_capacity", 1),
        ("initial_collect_steps", 1),
        ("epsilon_end", -0.1),
        ("td_loss", "mse"),
        ("benchmark_seconds", 0.0),
        ("seed", -1),
    ],
)
def test_refusal_names_parameter_value_and_range(name, value):
    with pytest.raises(ParameterError) as caught:
        DQNConfig.from_notebook({name: value})
    message = str(caught.value)
    assert message.startswith(f"`{name}` must be ")
    assert f", got {value!r}"[:80] in message
    assert "\n" not in message


def test_a_buffer_smaller_than_a_batch_names_both():
    with pytest.raises(ParameterError, match=r"capacity = 100 .* at least batch_size = 128"):
        DQNConfig(replay_buffer_capacity=100)


def test_other_names_in_the_notebook_are_left_alone():
    assert DQNConfig.from_notebook({"num_steps": 3, "seed": 4}) == DQNConfig(seed=4)


def test_checking_loads_no_tensorflow():
    code = (
        "import sys, labkit; from labkit.dqn import DQNConfig; DQNConfig.from_notebook({}); "
        "assert 'tensorflow' not in sys.modules and 'reverb' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tracked_runs_are_read_in_a_reader_s_words(tmp_path):
    (tmp_path / "runs.csv").write_text(
        "seed,changed,value,mean_return,deviation,episodes,last_return,last_deviation,env_steps,"
        "training_seconds,cpu_seconds\n3,,,199.5,2.5,20,150.0,30.0,21000,40,38\n"
        "0,td_loss,huber,9.9,1.0,20,9.4,0.8,21000,41,39\n"
    )
    table = dqn_config.read_seed_runs(tmp_path / "runs.csv")
    assert table["taken back"].tolist() == ["nothing", "td_loss huber"]
    assert table["seed"].tolist() == [3, 0]
    assert table["kept"].tolist() == [199.5, 9.9]
    assert table["last round"].tolist() == [150.0, 9.4]
    assert table["training, s"].tolist() == [40, 41]
