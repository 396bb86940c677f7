"""Notebook 03, run for real and small, on a copy; the committed file is only read."""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import attrs
import nbformat
import nbval_run
import papermill
import pytest
from test_notebooks import MACHINE_PATH, outputs

from labkit.config import SACConfig
from labkit.training import run_directory, signals

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "03_sac_minitaur.ipynb"
# As a user types them: a whole float, a tuple as text, a relative run directory.
SMALL = {
    "num_iterations": "6e1",
    "initial_collect_steps": "400.0",
    "actor_fc_layer_params": "(64, 64)",
    "critic_joint_fc_layer_params": "(64, 64)",
    "eval_interval": "30",
    "log_interval": "20",
    "interim_eval_episodes": "1",
    "num_eval_episodes": "2",
    "run_dir": "my run",
}
# Its episodes are short, and so are the films of them.
OTHER = {**SMALL, "env_name": "InvertedPendulumBulletEnv-v0"}
VIDEOS = {"before.mp4", "after.mp4", "worst.mp4", "best.mp4"}
NOISE = re.compile(
    r"reverb/|cuda|TensorRT|pybullet build|urdf_root|argv\[|Warning|WARN|pygame|absl"
)


def papermill_cli(directory, **parameters):
    pairs = [part for name, value in parameters.items() for part in ("-p", name, value)]
    command = [sys.executable, "-m", "papermill", str(NOTEBOOK), "out.ipynb", *pairs]
    paths = [str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        command, cwd=directory, env=env, capture_output=True, text=True, timeout=280
    )


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("notebook")
    before = NOTEBOOK.read_bytes()
    done = papermill_cli(directory, **SMALL)
    assert done.returncode == 0, done.stderr[-3000:]
    assert NOTEBOOK.read_bytes() == before
    return directory, nbformat.read(directory / "out.ipynb", as_version=4)


def test_it_runs_and_its_output_is_clean(executed):
    _, notebook = executed
    nbformat.validate(notebook)
    for output in outputs(notebook):
        assert output.output_type != "error"
        assert output.get("name") != "stderr", output.text
        text = output.get("text") or output.get("data", {}).get("text/plain", "")
        assert not MACHINE_PATH.search(text), text
        assert not NOISE.search(text), text


def test_what_it_leaves(executed):
    directory, _ = executed
    run = directory / "my run"
    assert {p.name for p in (run / "videos").iterdir()} == VIDEOS
    assert (run / "policy" / "saved_model.pb").exists()
    table = run_directory.read_metrics(run)
    assert list(table.gradient_step[table.eval_return.notna()]) == [0, 30, 60]
    assert len(table.eval_returns.iloc[-1]) == 2


def test_pictures_and_videos_are_embedded(executed):
    _, notebook = executed
    data = [output.data for output in outputs(notebook) if "data" in output]
    videos = sum(d.get("text/html", "").count("data:video/mp4;base64,") for d in data)
    assert videos == 6  # the tracked clip, before, both side by side, the worst and the best
    # A frame, six strips, the figures of the training, the results (six) and the scaling.
    assert sum("image/png" in d for d in data) >= 15


def test_it_runs_again_on_its_finished_run(executed):
    """For its figures and videos: nothing is left to train, and nothing measured changes."""
    directory, _ = executed
    before = (directory / "my run" / "metrics.csv").read_bytes()
    done = papermill_cli(directory, **SMALL)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (directory / "my run" / "metrics.csv").read_bytes() == before


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
    done = papermill_cli(tmp_path, **{**OTHER, "initial_collect_steps": "1000"})
    assert done.returncode == 0, done.stderr[-3000:]
    notebook = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    text = "".join(output.get("text", "") for output in outputs(notebook))
    assert "tutorial's: 999  rows: 999\n" in text, "both tables hold the same transitions"


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
    done = papermill_cli(tmp_path, **OTHER)
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
    done = papermill_cli(tmp_path, **{**OTHER, "initial_collect_steps": "1000000"})
    assert done.stderr.strip().splitlines()[-1] == "KeyboardInterrupt: before training began"


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_tagged_outputs_are_the_committed_ones(tmp_path):
    small = {"num_iterations": 20, "initial_collect_steps": 300, "eval_interval": 0}
    small |= {"interim_eval_episodes": 1, "num_eval_episodes": 1, "run_dir": str(tmp_path / "run")}
    nbval_run.compare(NOTEBOOK, tmp_path, small)


@pytest.mark.slow
def test_it_collects_in_another_process(tmp_path):
    done = papermill_cli(tmp_path, **{**SMALL, "num_collectors": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    notebook = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert all(output.output_type != "error" for output in outputs(notebook))
    run = tmp_path / "my run"
    assert (run / "ray.json").exists(), "labkit.train_on_ray was not called"
    assert run_directory.read_metrics(run).gradient_step.max() == 60
    assert {p.name for p in (run / "videos").iterdir()} == VIDEOS


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


def test_every_parameter_is_a_field():
    described = papermill.inspect_notebook(str(NOTEBOOK))
    fields = {field.name for field in attrs.fields(SACConfig)}
    assert set(described) - {"num_collectors"} == fields | {"run_dir", "resume"}


def test_help_notebook_shows_all_of_it():
    command = [sys.executable, "-m", "papermill", "--help-notebook", str(NOTEBOOK)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "Unknown type" not in done.stdout
    assert "warn" not in (done.stdout + done.stderr).lower()
    for name in papermill.inspect_notebook(str(NOTEBOOK)):
        assert re.search(rf"^  {name}: ", done.stdout, re.MULTILINE), name


def test_defaults_are_those_of_the_configuration():
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    (cell,) = [c for c in cells if "parameters" in c.metadata.get("tags", [])]
    namespace = {}
    exec("from typing import Optional\n" + cell.source, namespace)
    ours = {f.name: namespace[f.name] for f in attrs.fields(SACConfig) if f.name in namespace}
    assert SACConfig.parse(ours) == SACConfig()


def test_the_committed_notebook_shows_the_robot_before_and_after():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert sum("<video" in str(o.get("data", {}).get("text/html")) for o in outputs(notebook)) == 5
