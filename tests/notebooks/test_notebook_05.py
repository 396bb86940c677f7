"""Notebook 05, executed on small runs made by the tests, and as committed."""

import base64
import html
import re
import subprocess
import sys
from pathlib import Path

import first_cells
import nbformat
import papermill
import pytest
from labkit.training.run_directory import TRACKED_POLICY
from test_compare import write_run

from labkit.errors import ParameterError

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "05_compare_runs.ipynb"


@pytest.fixture(scope="module")
def committed():
    return nbformat.read(NOTEBOOK, as_version=4)


def execute(tmp_path, **parameters):
    out = tmp_path / "out.ipynb"
    papermill.execute_notebook(str(NOTEBOOK), str(out), parameters, progress_bar=False)
    cells = nbformat.read(out, as_version=4).cells
    return [o for cell in cells if cell.cell_type == "code" for o in cell.outputs]


def text(outputs):
    parts = [o.get("text", "") + o.get("data", {}).get("text/plain", "") for o in outputs]
    return "\n".join(parts)


def test_two_settings_are_ranked_and_drawn(tmp_path):
    for seed in range(5):
        write_run(tmp_path / "runs" / f"a{seed}", seed, [0.0, 10.0 + seed])
        write_run(tmp_path / "runs" / f"b{seed}", seed, [0.0, 3.0 + seed, 9.0], gamma=0.5)
    outputs = execute(tmp_path, runs=str(tmp_path / "runs"), level=5.0)
    assert sum("image/png" in o.get("data", {}) for o in outputs) == 4
    shown = text(outputs)
    assert "runs read: 10; compared after 20 gradient steps" in shown
    assert re.search(r"baseline +5 +12\.0", shown), "interquartile mean of 10 to 14"
    assert re.search(r"gamma 0\.5 +5 +5\.0", shown)
    verdict = r"IQM of gamma 0\.5 minus baseline is -7\.00 .*: lower than baseline"
    assert len(re.findall(verdict, shown)) == 1
    for choice in ("as above", "last runs", "means"):
        assert f"{choice}: 1 of 1 settings differ from the baseline" in shown
    assert "highest IQM of the return: baseline" in shown


def test_the_baseline_can_be_chosen(tmp_path):
    for seed in range(3):
        write_run(tmp_path / "runs" / f"a{seed}", seed, [10.0 + seed])
        write_run(tmp_path / "runs" / f"b{seed}", seed, [3.0 + seed], gamma=0.5)
    shown = text(execute(tmp_path, runs=str(tmp_path / "runs"), baseline="gamma 0.5"))
    assert "IQM of gamma 0.995 minus baseline is +7.00" in shown, "the baseline has gamma 0.5"


def test_repeated_seeds_and_settings_with_one_seed_are_not_ranked(tmp_path):
    for number, seed in enumerate((0, 1, 1)):
        write_run(tmp_path / "runs" / f"a{number}", seed, [0.0, [1.0, 3.0, 90.0][number]])
    write_run(tmp_path / "runs" / "b", 0, [0.0, 50.0], gamma=0.5)
    shown = text(execute(tmp_path, runs=str(tmp_path / "runs")))
    assert "4 runs: 3 count, 1 repeat a seed" in shown
    assert "settings with several seeds: 1, with one: 1" in shown
    assert re.search(r"^baseline +2 +2\.00 ", shown, re.M), "the mean of 1 and 3"
    assert not re.search(r"^gamma 0\.5 +1 +50", shown, re.M), "ranked"
    assert "Nothing to compare" in shown
    assert "highest IQM of the return: baseline" in shown


def test_outputs_are_the_committed_ones():
    """It reads tracked runs only: nbval compares all of its outputs, in its own folder."""
    before = NOTEBOOK.read_bytes()
    command = [sys.executable, "-m", "pytest", "--nbval", "notebooks/05_compare_runs.ipynb"]
    done = subprocess.run(command, cwd=NOTEBOOK.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert NOTEBOOK.read_bytes() == before


def test_a_single_run_is_enough(tmp_path):
    write_run(tmp_path / "runs" / "only", 0, [0.0, 1.0])
    shown = text(execute(tmp_path, runs=str(tmp_path / "runs"), budget=10))
    assert "runs read: 1; compared after 10 gradient steps" in shown
    assert "Nothing to compare" in shown


def test_runs_of_a_gymnasium_environment_without_distances(tmp_path):
    pendulum = {"env_name": "gymnasium:Pendulum-v1", "walks": False}
    for seed in range(3):
        write_run(tmp_path / "runs" / f"a{seed}", seed, [-1200.0, -150.0 - seed], **pendulum)
        changed = {**pendulum, "gamma": 0.5}
        write_run(tmp_path / "runs" / f"b{seed}", seed, [-1300.0, -400.0 - 9 * seed], **changed)
    outputs = execute(tmp_path, runs=str(tmp_path / "runs"), level=-200.0)
    shown = text(outputs)
    assert re.search(r"^baseline +3 +-151\.00 ", shown, re.M), "the defaults of that environment"
    assert "IQM of gamma 0.5 minus baseline is -258.00" in shown
    assert re.search(r"^baseline +30 +30 +30$", shown, re.M), "env steps to -200"
    assert "highest IQM of the return: baseline; furthest: nothing walks here" in shown
    assert not [o for o in outputs if o.get("name") == "stderr"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"budgt": 10}, "`budgt` is not a parameter; did you mean 'budget'?"),
        (
            {"level": "many"},
            "`level` must be a number from -1e+09 to 1e+09 (return), got 'many'",
        ),
        ({"runs": ""}, "`runs` must be the path of a folder with run directories, got ''"),
        ({"runs": "nowhere"}, "`runs` must be an existing folder, got 'nowhere'"),
        (
            {"budget": "many"},
            "`budget` must be a whole number from 1 to 1 000 000 000 (gradient steps), got 'many'",
        ),
        (
            {"budget": 0},
            "`budget` must be a whole number from 1 to 1 000 000 000 (gradient steps), got 0",
        ),
        (
            {"baseline": "best"},
            "`baseline` must be a folder in `runs` whose runs have one setting, or one of these: "
            "'defaults', got 'best'",
        ),
    ],
)
def test_a_wrong_parameter_is_one_line(tmp_path, parameters, message):
    write_run(tmp_path / "runs" / "only", 0, [0.0, 1.0])
    with pytest.raises(ParameterError) as caught:
        first_cells.execute(NOTEBOOK, "4a77cd75", **{"runs": str(tmp_path / "runs"), **parameters})
    assert str(caught.value) == message


def test_a_wrong_parameter_stops_the_notebook(tmp_path):
    with pytest.raises(papermill.PapermillExecutionError) as error:
        execute(tmp_path, runs="")
    assert error.value.ename == "ParameterError"
    assert error.value.evalue.startswith("`runs` must be the path of a folder")


def test_committed_executed_in_order_on_the_tracked_runs(committed):
    code = [cell for cell in committed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [o for cell in code for o in cell.outputs]
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    assert sum("image/png" in o.get("data", {}) for o in outputs) == 4
    tracked = NOTEBOOK.parent.parent / "results" / "minitaur" / "v0.1" / "study"
    count = len(list(tracked.rglob("config.json")))
    assert f"runs read: {count}; compared after" in text(outputs)


def test_the_committed_replay_is_the_tracked_file(committed):
    (cell,) = [cell for cell in committed.cells if cell.id == "code-05-15"]
    viewer, strip, described = cell.outputs
    tracked = NOTEBOOK.parents[1] / TRACKED_POLICY
    page = re.search('<iframe srcdoc="(.*?)"', viewer.data["text/html"])[1]
    assert html.unescape(page) == (tracked / "replay.html").read_text()
    assert base64.b64decode(strip.data["image/png"]) == (tracked / "replay.png").read_bytes()
    assert described.text.startswith("Training seed ")
