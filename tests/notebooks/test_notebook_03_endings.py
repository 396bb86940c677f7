"""Notebook 03 where a run ends in another way: stopped, refused, or another environment.

These tests are not in test_notebook_03.py so that another process of pytest may run them.
"""

import threading
import time

import abridged
import nbformat
import pytest
from test_notebook_03 import SMALL, papermill_cli
from test_notebooks import outputs

from labkit.training import run_directory, signals

# Its episodes are short, and so are the films of them.
OTHER = {**SMALL, "env_name": "InvertedPendulumBulletEnv-v0"}


def test_another_environment_runs_where_reverb_cannot_be_imported(tmp_path):
    (tmp_path / "reverb.py").write_text("raise ImportError('no wheel here')\n")
    done = papermill_cli(tmp_path, **{**OTHER, "replay": "tf_uniform", "run_dir": ""})
    assert done.returncode == 0, done.stderr[-3000:]
    notebook = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert all(output.output_type != "error" for output in outputs(notebook))
    run = tmp_path / "runs" / "0001"
    assert run_directory.read_metrics(run).eval_return.notna().sum() == 3
    config = run_directory.read_config(run)
    assert (config.reward_scale_factor, config.observation_scale) == (1.0, ())


@pytest.mark.slow
def test_a_warm_up_that_ends_within_a_step_of_an_episode_s_end(tmp_path):
    parameters = {**OTHER, "initial_collect_steps": "1000"}
    done = papermill_cli(tmp_path, abridged.write(tmp_path), **parameters)
    assert done.returncode == 0, done.stderr[-3000:]
    notebook = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    text = "".join(output.get("text", "") for output in outputs(notebook))
    assert "windows in the tutorial's table: 999\n" in text
    assert "env steps: 1000  rows: 1000\n" in text


@pytest.mark.slow
def test_stopped_before_its_first_evaluation_it_says_so_and_goes_on_to_its_end(
    tmp_path, monkeypatch
):
    stop, filmed = tmp_path / "stop", tmp_path / "my run" / "videos" / "before.mp4"

    def stop_after_the_warm_up():
        while not filmed.exists():
            time.sleep(0.01)
        stop.touch()  # as `make run` does at the first Ctrl-C

    monkeypatch.setenv(signals.FILE_VARIABLE, str(stop))
    threading.Thread(target=stop_after_the_warm_up, daemon=True).start()
    copy = abridged.write(tmp_path, abridged.TRAINING_ALONE - {"worst", "replay"})
    done = papermill_cli(tmp_path, copy, **OTHER)
    assert done.returncode == 0, done.stderr[-3000:]
    notebook = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    text = "".join(output.get("text", "") for output in outputs(notebook))
    assert "stopped at gradient step 0 of 60" in text
    assert text.count("no table: ") == 1
    assert text.count("no figure: ") == 5
    assert text.count("no score: ") == 1


def test_stopped_during_its_warm_up_it_ends_at_once(tmp_path, monkeypatch):
    (tmp_path / "stop").touch()
    monkeypatch.setenv(signals.FILE_VARIABLE, str(tmp_path / "stop"))
    # On Ray, or in this process: the warm-up of this cell comes first.
    short = abridged.write(tmp_path, abridged.BEFORE_THE_WARM_UP)
    done = papermill_cli(tmp_path, short, **{**OTHER, "initial_collect_steps": "1000000"})
    assert done.stderr.strip().splitlines()[-1] == "KeyboardInterrupt: before training began"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("num_iterations", "`num_iterations` must be a whole number from 1 to 1 000 000 000"),
        ("num_iteration", "`num_iteration` is not a parameter; did you mean 'num_iterations'?"),
    ],
)
def test_a_mistake_is_one_line_in_the_cell_and_the_last_of_papermill(tmp_path, name, line):
    done = papermill_cli(tmp_path, run_dir="never", **{name: "0"})
    line = f"ParameterError: {line}"
    assert done.returncode != 0
    assert done.stderr.strip().splitlines()[-1].startswith(line)
    notebook = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    (error,) = [o for o in outputs(notebook) if o.output_type == "error"]
    assert len(error.traceback) == 1
    assert error.traceback[0].startswith(line)
    assert not (tmp_path / "never").exists()
