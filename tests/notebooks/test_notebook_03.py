"""Notebook 03, run for real and small, on copies; the committed file is only read.

tests/browser runs it with whole episodes and with films as a user sees them.
"""

import base64
import json
import os
import re
import subprocess
import sys

import abridged
import attrs
import nbformat
import papermill
import pytest
from test_notebooks import MACHINE_PATH, assert_tagged_outputs_are_committed, outputs

import labkit
from labkit.config import SACConfig
from labkit.plotting import replay_3d
from labkit.training import run_directory

NOTEBOOK = abridged.NOTEBOOK
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
VIDEOS = {"before.mp4", "after.mp4", "worst.mp4", "best.mp4", "replay.html"}
NOISE = re.compile(
    r"reverb/|cuda|TensorRT|pybullet build|urdf_root|argv\[|Warning|WARN|pygame|absl"
)


def papermill_cli(directory, notebook=NOTEBOOK, **parameters):
    pairs = [part for name, value in parameters.items() for part in ("-p", name, value)]
    # Without the flag, papermill writes the whole notebook, films included, after each cell.
    command = [sys.executable, "-m", "papermill", "--no-request-save-on-cell-execute"]
    command += [str(notebook), "out.ipynb", *pairs]
    paths = [str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        command, cwd=directory, env=env, capture_output=True, text=True, timeout=280
    )


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("notebook")
    whole = abridged.write(directory, leave_out=(), short_episodes=True)
    done = papermill_cli(directory, whole, **SMALL)
    assert done.returncode == 0, done.stderr[-3000:]
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


def test_tagged_outputs_are_the_committed_ones(executed):
    assert_tagged_outputs_are_committed(executed[1], nbformat.read(NOTEBOOK, as_version=4))


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
    (replay,) = [d["text/html"] for d in data if "<iframe" in d.get("text/html", "")]
    assert '<iframe srcdoc="' in replay
    assert "estimated Q" in replay
    assert 'href="my run/videos/replay.html"' in replay
    # A frame, seven strips, the figures of the training, the results (six) and the scaling.
    assert sum("image/png" in d for d in data) >= 15


def test_it_runs_again_on_its_finished_run(executed):
    """For its figures: nothing is left to train, and nothing measured changes."""
    directory, _ = executed
    before = (directory / "my run" / "metrics.csv").read_bytes()
    copy = abridged.write(directory, abridged.TRAINING_ALONE, short_episodes=True)
    done = papermill_cli(directory, copy, **SMALL)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (directory / "my run" / "metrics.csv").read_bytes() == before


def test_without_pybullet_the_replay_is_one_line(capsys):
    (cell,) = [cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.id == "replay"]
    env = labkit.make_environment("Pendulum-v1", seed=0)
    names = {"replay_3d": replay_3d, "eval_env": env, "config": SACConfig(env_name="Pendulum-v1")}
    exec(cell.source, names)
    assert capsys.readouterr().out == "no replay: PyBullet does not simulate Pendulum-v1\n"


@pytest.mark.slow
def test_it_collects_in_another_process(tmp_path):
    copy = abridged.write(tmp_path, abridged.TRAINING_ALONE, short_episodes=True)
    done = papermill_cli(tmp_path, copy, **{**SMALL, "num_collectors": "2"})
    assert done.returncode == 0, done.stderr[-3000:]
    notebook = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert all(output.output_type != "error" for output in outputs(notebook))
    run = tmp_path / "my run"
    used = json.loads((run / "ray.json").read_text())["cpu_seconds"]
    assert {"rollout worker 0", "rollout worker 1"} <= used.keys()
    assert run_directory.read_metrics(run).gradient_step.max() == 60
    assert {p.name for p in (run / "videos").iterdir()} == {"before.mp4", "after.mp4"}


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


def test_the_first_picture_is_the_film_strip_of_the_tracked_policy():
    (picture,) = nbformat.read(NOTEBOOK, as_version=4).cells[0].attachments.values()
    strip = NOTEBOOK.parents[1] / run_directory.TRACKED_POLICY / "strip.png"
    assert base64.b64decode(picture["image/png"]) == strip.read_bytes()
