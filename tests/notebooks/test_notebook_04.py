"""Notebook 04, run for real and small, on a copy; the committed file is only read."""

import json
import re
import subprocess
import sys
from pathlib import Path

import attrs
import first_cells
import nbformat
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from test_notebooks import MACHINE_PATH, assert_tagged_outputs_are_committed, outputs

from labkit.errors import ParameterError
from labkit.training import run_directory

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "04_distributed_sac.ipynb"
LANDER, RAY = ROOT / "results" / "lunarlander", ROOT / "results" / "ray_vs_local"
SMALL = {
    "solved_return": -2000.0,  # the first evaluation of trained weights
    "watch_seconds": 1,
    "fault_iterations": 600,
    "num_iterations": 6e1,
    "eval_interval": 30,
    "interim_eval_episodes": 1,
    "num_eval_episodes": 2,
    "collectors": "(2,)",
    "minitaur_iterations": 20,
    "run_dir": "my runs",
    "learning_rate": 1e-3,
    "target_update_tau": 0.02,
    "seed": 5,
}
NOISE = re.compile(r"reverb/|cuda|TensorRT|raylet|Warning|WARN|pygame|absl|\(pid=|Traceback")


def execute(folder, **parameters):
    pairs = [part for name, value in parameters.items() for part in ("-p", name, str(value))]
    # Without the flag, papermill writes the whole notebook, films included, after each cell.
    command = [sys.executable, "-m", "papermill", "--no-request-save-on-cell-execute"]
    command += [str(NOTEBOOK), "out.ipynb", *pairs]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return nbformat.read(Path(folder) / "out.ipynb", as_version=4)


def printed(notebook, cell_id):
    (cell,) = [cell for cell in notebook.cells if cell.id == cell_id]
    return "".join(output.get("text", "") for output in cell.outputs)


def check(folder, notebook):
    assert printed(notebook, "h-31").startswith("solved: ")  # the learner by hand has pushed
    assert re.search(r"worker 1: 0 env steps arrived, worker 0: [1-9]", printed(notebook, "h-43"))
    assert re.search(r"lost for good: \d+ env steps", printed(notebook, "h-47"))
    for output in outputs(notebook):
        assert output.output_type != "error"
        assert output.get("name") != "stderr", output.text
        text = output.get("text") or output.get("data", {}).get("text/plain", "")
        assert not MACHINE_PATH.search(text), text
        assert not NOISE.search(text), text
        assert "nan" not in text.lower(), text
    check_runs(folder / "my runs")


def check_runs(folder):
    for name in ("local", "ray-2"):
        config = run_directory.read_config(folder / name)
        rates = {f"{kind}_learning_rate": 1e-3 for kind in ("actor", "critic", "alpha")}
        wanted = {"target_update_tau": 0.02, "seed": 5, "eval_interval": 30, **rates}
        assert wanted.items() <= attrs.asdict(config).items()
        table = run_directory.read_metrics(folder / name)
        assert table.gradient_step.max() == 60
        assert len(table.eval_returns.iloc[-1]) == 2


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_it_runs_small_on_two_nodes(tmp_path):
    """Two raylets of one cluster on this machine, with a token; tests/browser has one node."""
    from ray.cluster_utils import Cluster

    from labkit.distributed import ray_cluster

    with ray_cluster.on_loopback():
        ray_cluster.require_token()
        head = {"num_cpus": 1, "_system_config": ray_cluster.SYSTEM}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        cluster.add_node(num_cpus=3)
        try:
            notebook = execute(tmp_path, **SMALL, address=cluster.address)
        finally:
            cluster.shutdown()
    check(tmp_path, notebook)
    assert_tagged_outputs_are_committed(notebook, nbformat.read(NOTEBOOK, as_version=4))
    (fault,) = json.loads((tmp_path / "my runs" / "killed" / "ray.json").read_text())["faults"]
    assert fault["actor"] == "rollout worker 0"
    assert "rollout worker 0 failed and was restarted" in printed(notebook, "h-57")


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("collectors", "(0,)", "one or more whole numbers from 1 to 64"),
        ("watch_seconds", 0, "a whole number from 1 to 3 600"),
        ("learning_rate", 0, "a number above 0 and up to 1"),
        ("run_dir", 4, "the path of the directory for the runs"),
        ("eval_interval", -1, "a whole number from 0 to"),
        ("env_name", "Nope", "one of the "),
    ],
)
def test_a_mistake_is_one_line_before_any_work(name, value, allowed):
    with pytest.raises(ParameterError, match=f"^`{name}` must be {allowed}") as caught:
        first_cells.execute(NOTEBOOK, "ray-07d", **{name: value})
    assert "\n" not in str(caught.value)


def test_a_mistake_is_the_last_line_of_papermill(tmp_path):
    command = [sys.executable, "-m", "papermill", str(NOTEBOOK), "out.ipynb", "-p", "seed", "-1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    line = "ParameterError: `seed` must be a whole number from 0 to"
    assert done.stderr.strip().splitlines()[-1].startswith(line), done.stderr[-2000:]


def test_the_committed_notebook_shows_its_figures():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert sum("image/png" in o.get("data", {}) for o in outputs(notebook)) >= 8
    assert sum("<video" in o.get("data", {}).get("text/html", "") for o in outputs(notebook)) == 4
    assert printed(notebook, "h-31").startswith("solved: ")


def prose(notebook, cell_id):
    (cell,) = [cell for cell in notebook.cells if cell.id == cell_id]
    return cell.source


def test_the_prose_names_the_rates_of_the_committed_outputs():
    """The lander's tracked timing, and the medians of `make bench`."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    timing = json.loads((LANDER / "timing.json").read_text())["seconds_per_20000_steps"]
    seconds = [round(*timing[name]) for name in ("local", "ray")]
    rates = f"({seconds[0]} s\nlocally, {seconds[1]} s with Ray and one worker, one run each"
    assert rates in prose(notebook, "lander-timing")
    bench = json.loads((ROOT / "benchmarks" / "results" / "throughput.json").read_text())
    local, ray = (
        np.median([turn["rate"] for turn in bench["implementations"][name]["repeats"]])
        for name in ("labkit", "ray")
    )
    printed_rates = re.findall(r": (\d+) gradient steps/s", printed(notebook, "h-62-bench-code"))
    assert printed_rates == [f"{local:.0f}", f"{ray:.0f}"], "execute the cell again"
    assert '`make bench` (section "The Minitaur") found it faster' in prose(notebook, "ray-42")


def test_the_prose_compares_each_version_of_the_executor_with_local_runs():
    """Differences and p-values of `ray-36`, from the tracked tables; Holm's by hand."""
    table = pd.read_csv(RAY / "summary.csv")
    lost = pd.read_csv(RAY / "lost.csv").set_index("seed").mean_return
    below, p, holm = {}, {}, {}
    for kept, place in (("first", 0), ("last", -1)):
        one = {
            name: [rows.mean_return[rows.seed == seed].iloc[place] for seed in (1, 2, 3)]
            for name, rows in table.groupby("executor")
        }
        tracked = one["ray"]
        compared = (one["ray, every 50"], [lost[1], lost[2], tracked[2]], tracked)
        below[kept] = [np.mean(one["local"]) - np.mean(runs) for runs in compared]
        p[kept] = [stats.ttest_ind(r, one["local"], equal_var=False).pvalue for r in compared]
        # The order of the p-values decides the factors of Holm's correction: 3, 2, 1.
        order = np.argsort(p[kept])
        steps = np.maximum.accumulate([p[kept][n] * (3 - at) for at, n in enumerate(order)])
        holm[kept] = [steps[list(order).index(n)] for n in range(3)]
    text = prose(nbformat.read(NOTEBOOK, as_version=4), "ray-36")
    first, last = holm["first"], holm["last"]
    assert f"The earlier version: {below['first'][0]:.2f} below it with the first runs" in text
    assert f"a difference (Holm's p = {first[0]:.3f})." in text
    assert f"it is {below['last'][0]:.2f} below, and p = {last[0]:.2f}." in text
    assert f"lost runs: {below['first'][1]:.2f} and {below['last'][1]:.2f} below it, no" in text
    assert f"(Holm's p = {first[1]:.3f} and {last[1]:.2f}; without" in text
    assert f"the correction {p['first'][1]:.3f} and {p['last'][1]:.3f})" in text
    assert f"tracked runs: a mean {below['first'][2]:.2f} below the local mean with the" in text
    assert f"first runs, and {below['last'][2]:.2f} with the last. No detectable" in text
    assert f"(Holm's p = {first[2]:.2f} and {last[2]:.2f})" in text
    assert first[0] < 0.05 < min(*first[1:], *last), "the verdicts"
