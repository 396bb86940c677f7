"""`make run` from the command line: one line for a mistake, and nothing made by it."""

from pathlib import Path

import nbformat
import pytest

from labkit.cli.run import check, execute, main
from labkit.config import SACConfig


def run(*arguments):
    """The exit status of the command line with these arguments."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


NOTEBOOK = str(Path(__file__).parents[2] / "notebooks" / "03_sac_minitaur.ipynb")

REFUSED = [
    (["num_iterations", "0"], "`num_iterations` must be a whole number from 1.*, got '0'"),
    (["num_iterations", "-5"], "num_iterations = '-5'"),
    (["num_iterations", "1.5"], "num_iterations = '1.5'"),
    (["num_iterations", "abc"], "num_iterations = 'abc'"),
    (["batch_size", "0"], "batch_size = '0'"),
    (["gamma", "1.5"], "`gamma` must be a number from 0 to 1.*, got '1.5'"),
    (["critic_learning_rate", "-3e-4"], "critic_learning_rate = '-3e-4'"),
    (["target_update_tau", "2"], "target_update_tau = '2'"),
    (["seed", "-1"], "seed = '-1'"),
    (["env_name", "MinitorBulletEnv-v0"], "did you mean 'MinitaurBulletEnv-v0'?"),
    (["strategy", "quantum"], "`strategy` must be 'auto', 'cpu'.*, got 'quantum'"),
    (["replay_buffer_capacity", "100"], "at least batch_size = 256"),
    (["run_dir", "taken"], "config.json is damaged"),
    (["resume", "maybe"], "`resume` must be 'auto' or 'never'.*, got 'maybe'"),
    (["run_dir", "file/x"], "it cannot be written"),
    (["num_iteration", "5"], "did you mean 'num_iterations'?"),
]


@pytest.mark.parametrize(("pair", "message"), REFUSED)
def test_a_mistake_costs_one_line(pair, message, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "config.json").write_text("{}")
    (tmp_path / "file").write_text("")
    before = sorted(tmp_path.rglob("*"))
    assert run(NOTEBOOK, "-p", *pair) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("ParameterError: ")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_no_such_notebook(capfd):
    assert run("nowhere.ipynb") == 2
    assert capfd.readouterr().err == "ParameterError: there is no notebook 'nowhere.ipynb'\n"


def test_texts_become_typed_values():
    texts = {"num_iterations": "1e3", "actor_fc_layer_params": "(8, 8)", "run_dir": "x"}
    checked, config = check(Path(NOTEBOOK), texts)
    assert config == SACConfig(num_iterations=1000, actor_fc_layer_params=(8, 8))
    assert checked == {"num_iterations": 1000, "actor_fc_layer_params": (8, 8), "run_dir": "x"}
    assert type(checked["num_iterations"]) is int


def test_stopped_before_training_it_says_so(tmp_path, capfd):
    """Asked during the random collection; a cell stands for the notebook, and for the Ctrl-C."""
    cell = """
import os, pathlib
import labkit
from labkit.training import components
config = labkit.SACConfig(initial_collect_steps=10**7, batch_size=32)
made = parts.build(config)
pathlib.Path(os.environ["LABKIT_STOP"]).touch()
parts.warm_up(config, made)
"""
    content = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.strip())])
    content.metadata["kernelspec"] = {"name": "python3", "display_name": "", "language": "python"}
    nbformat.write(content, tmp_path / "small.ipynb")
    (tmp_path / "run").mkdir()
    assert execute(tmp_path / "small.ipynb", tmp_path / "run", {}) == 130
    err = capfd.readouterr().err
    assert "stopped before training began; the same command begins again" in err
    assert not (tmp_path / "run" / "stop").exists()
