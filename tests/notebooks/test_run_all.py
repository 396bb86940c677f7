"""Each notebook, run small with papermill on a copy; the committed files are only read.

In continuous integration, tests/browser runs them instead, and asks the same of them.
"""

import json
import os
import subprocess
import sys

import books
import nbformat
import pytest

from labkit.training import records


@pytest.fixture(autouse=True)
def search_path(monkeypatch, tmp_path):
    """Kernels find modules of the test's folder first."""
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


@pytest.mark.notebook
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", books.NOTEBOOKS)
def test_run_all(number, tmp_path):
    copy = books.write_copy(number, tmp_path, books.SLOW_CELLS if number == "04" else ())
    done = books.papermill(tmp_path, copy, **books.SMALL[number])
    assert done.returncode == 0, done.stderr[-3000:]
    books.check(number, nbformat.read(tmp_path / "out.ipynb", as_version=4), tmp_path)


@pytest.mark.thorough
def test_outputs_of_notebook_05_are_the_committed_ones():
    """As CONTRIBUTING.md has it: it reads tracked runs alone."""
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "notebooks/05_compare_runs.ipynb"]
    done = subprocess.run(command, cwd=books.ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_notebook_03_elsewhere_without_reverb_and_once_more_on_the_finished_run(tmp_path):
    (tmp_path / "reverb.py").write_text("raise ImportError('no wheel here')\n")
    other = {"env_name": "InvertedPendulumBulletEnv-v0", "replay": "tf_uniform"}
    parameters = {**books.SMALL["03"], **other}
    done = books.papermill(tmp_path, books.write_copy("03", tmp_path), **parameters)
    assert done.returncode == 0, done.stderr[-3000:]
    before = (tmp_path / "my run" / "metrics.csv").read_bytes()
    copy = books.write_copy("03", tmp_path, books.derivation())
    done = books.papermill(tmp_path, copy, **parameters)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "my run" / "metrics.csv").read_bytes() == before


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_notebook_03_collects_in_other_processes(tmp_path):
    copy = books.write_copy("03", tmp_path, books.derivation())
    done = books.papermill(tmp_path, copy, **books.SMALL["03"], num_collectors=2)
    assert done.returncode == 0, done.stderr[-3000:]
    run = tmp_path / "my run"
    used = json.loads((run / "ray.json").read_text())["cpu_seconds"]
    assert {"rollout worker 0", "rollout worker 1"} <= used.keys()
    assert records.read_metrics(run).gradient_step.max() == 60


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_notebook_02_where_reverb_cannot_be_imported(tmp_path):
    (tmp_path / "reverb.py").write_text("raise ImportError('no wheel here')\n")
    done = books.papermill(tmp_path, books.write_copy("02", tmp_path), **books.SMALL["02"])
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_notebook_04_on_two_nodes_with_a_token(tmp_path, monkeypatch):
    from ray._private import ray_constants
    from ray._private.authentication import authentication_token_setup
    from ray.cluster_utils import Cluster

    from labkit.distributed import cluster as ray_cluster

    # On loopback, and with the token of this user: as `ray_cluster.connection` starts it.
    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", False)
    monkeypatch.setenv(ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR, "0")
    authentication_token_setup.enable_token_auth_by_default()
    authentication_token_setup.ensure_token_if_auth_enabled(None, create_token_if_missing=True)
    head = {"num_cpus": 1, "_system_config": ray_cluster.SYSTEM}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=3)
    try:
        parameters = {**books.SMALL["04"], "address": cluster.address}
        done = books.papermill(tmp_path, books.write_copy("04", tmp_path), **parameters)
    finally:
        cluster.shutdown()
    assert done.returncode == 0, done.stderr[-3000:]
    books.check("04", nbformat.read(tmp_path / "out.ipynb", as_version=4), tmp_path)
