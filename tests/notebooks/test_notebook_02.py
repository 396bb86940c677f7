"""Notebook 02: its form and results; a copy of it must run, with and without Reverb."""

import ast
import csv
import inspect
import re
import statistics
import subprocess
import sys
from pathlib import Path

import attrs
import nbformat
import papermill
import pytest

from labkit.teaching import replay_results
from labkit.teaching import replay_memories
from labkit.teaching.buffer_comparison import NO_REVERB
from labkit.teaching.dqn_config import DQNConfig
from labkit.teaching.dqn_results import read_seed_runs

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "02_replay_buffers.ipynb"
RESULTS = ROOT / "results" / "cartpole_dqn.csv"
REPLAY = ROOT / "results" / "cartpole_replay" / replay_results.FILE
SMALL = {
    "num_iterations": 30.0,  # as papermill's command line passes 3e1
    "initial_collect_steps": 150,
    "eval_interval": 10,
    "interim_eval_episodes": 2,
    "num_eval_episodes": 3,
    "replay_steps": 1_000,
    "benchmark_seconds": 0.05,
}


@pytest.fixture(scope="module")
def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.fixture
def kernel_path(monkeypatch):
    """`kernel_path(*folders)` sets folders that kernels search before installed packages."""

    def put(*folders: Path) -> None:
        monkeypatch.setenv("PYTHONPATH", ":".join(map(str, [*folders, ROOT])))

    put()
    return put


def code_of(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(cell):
    """All text in the outputs of a cell."""
    for output in cell.outputs:
        yield output.get("text", "")
        for kind, data in output.get("data", {}).items():
            if kind.startswith("text/"):
                yield data


def test_cells_are_short(notebook):
    lengths = [len(cell.source.splitlines()) for cell in code_of(notebook)]
    assert statistics.median(lengths) <= 8
    assert max(lengths) <= 25
    for cell in code_of(notebook):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 15, node.name


def test_prose_comes_before_code(notebook):
    kinds = [cell.cell_type for cell in notebook.cells]
    runs = re.findall("c+", "".join(kind[0] for kind in kinds))
    assert kinds[0] == "markdown"
    assert max(map(len, runs)) <= 3


def test_committed_executed_in_order_without_log_noise(notebook):
    assert NOTEBOOK.stat().st_size < 1_500_000
    counts = [cell.execution_count for cell in code_of(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    for cell in code_of(notebook):
        assert not any(out.get("name") == "stderr" for out in cell.outputs), cell.source
        for text in texts(cell):
            assert not re.search(r"/tmp|/home|/root|site-packages|pypi|https?://", text)
            assert not re.search("warning|deprecated and", text, re.I)
            assert NO_REVERB not in text


def test_parameters_equal_the_fields_of_the_configuration():
    found = papermill.inspect_notebook(str(NOTEBOOK))
    fields = attrs.fields_dict(DQNConfig)
    assert found.keys() == fields.keys()
    for name, parameter in found.items():
        assert parameter["help"], name
        assert ast.literal_eval(parameter["default"]) == fields[name].default


def test_figures_and_video_are_present(notebook):
    kinds = [
        kind for cell in code_of(notebook) for out in cell.outputs for kind in out.get("data", {})
    ]
    assert (
        kinds.count("image/png") >= 7
    )  # correlation, coverage, five memories, windows, curve, film strip, speeds
    assert any("data:video/mp4" in text for cell in code_of(notebook) for text in texts(cell))


def test_four_of_five_seeds_solve_the_task_within_four_minutes():
    with RESULTS.open() as file:
        plain = [row for row in csv.DictReader(file) if not row["changed"]]
    assert sorted(int(row["seed"]) for row in plain) == [0, 1, 2, 3, 4]
    assert all(int(row["episodes"]) >= 20 for row in plain)
    assert sum(float(row["mean_return"]) >= 195 for row in plain) >= 4
    assert all(float(row["training_seconds"]) <= 240 for row in plain)


def test_the_notebook_shows_the_tracked_runs(notebook):
    shown = "\n".join(text for cell in code_of(notebook) for text in texts(cell))
    table = read_seed_runs(RESULTS)
    assert len(table) == 10
    for row in table.itertuples():
        label = row.seed if row.ablated == "nothing" else row.ablated
        assert re.search(rf"^{label} +(0 +)?{row.kept:.2f} ", shown, re.M), label


def classes_of(source):
    """The classes of a module or cell as text, without docstrings and types."""
    found = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for part in [node, *(one for one in node.body if isinstance(one, ast.FunctionDef))]:
            if ast.get_docstring(part):
                part.body = part.body[1:]
            if isinstance(part, ast.FunctionDef):
                part.returns = None
                for argument in part.args.args:
                    argument.annotation = None
        found[node.name] = ast.unparse(node)
    return found


def test_the_notebook_shows_the_classes_that_made_the_runs(notebook):
    shown = {}
    for cell in code_of(notebook):
        shown.update(classes_of(cell.source))
    made = classes_of(inspect.getsource(replay_memories))
    assert set(made) == {"RingBuffer", "PrioritizedBuffer"}
    for name, source in made.items():
        assert shown[name] == source


def test_the_notebook_shows_the_runs_with_five_memories(notebook):
    shown = "\n".join(text for cell in code_of(notebook) for text in texts(cell))
    table = replay_results.read(REPLAY)
    for runs in (replay_results.reported(table), replay_results.at_common_rate(table)):
        assert all(sentence in shown for sentence in replay_results.verdicts(runs))
        for memory, row in replay_results.summary(runs).iterrows():
            assert re.search(rf"{memory} +{row['learning rate']} +5 +{row['whole run']} ", shown)


def test_changes_in_the_prose_equal_the_defaults(notebook):
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    defaults = DQNConfig()
    for what, value in [
        ("iterations", defaults.num_iterations),
        ("random steps first", defaults.initial_collect_steps),
        ("capacity, steps", defaults.replay_buffer_capacity),
        ("batch size", defaults.batch_size),
        ("discount factor γ", defaults.gamma),
        ("target update τ", defaults.target_update_tau),
        ("loss", defaults.td_loss),
    ]:
        assert re.search(rf"^\| {what} \| [^|]+ \| {value} \|", prose, re.M), what


@pytest.mark.timeout(600)
def test_deterministic_outputs_with_small_parameters(tmp_path, kernel_path):
    before = NOTEBOOK.read_bytes()
    copy = tmp_path / "small.ipynb"
    papermill.execute_notebook(str(NOTEBOOK), str(copy), SMALL, prepare_only=True)
    command = [sys.executable, "-m", "pytest", "--nbval", "-q", "-p", "no:anyio", copy.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert NOTEBOOK.read_bytes() == before


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_runs_where_reverb_cannot_be_imported(tmp_path, kernel_path):
    (tmp_path / "reverb").mkdir()
    (tmp_path / "reverb" / "__init__.py").write_text("raise ImportError('no wheel here')\n")
    kernel_path(tmp_path)
    done = papermill.execute_notebook(
        str(NOTEBOOK), str(tmp_path / "done.ipynb"), SMALL, progress_bar=False, log_output=False
    )
    cells = {cell.source: "".join(texts(cell)) for cell in code_of(done)}
    assert all(out.output_type != "error" for cell in code_of(done) for out in cell.outputs)
    skipped = [
        source for source in cells if source.startswith("if buffer_comparison.reverb_here()")
    ]
    assert len(skipped) >= 3
    assert all(cells[source] == NO_REVERB + "\n" for source in skipped)
    table = next(text for source, text in cells.items() if "api_table" in source)
    assert "PyUniform" in table
    assert "Reverb" not in table


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "batch_size",
            0,
            "`batch_size` must be a whole number from 1 to 1 000 000 (two-step windows), got 0",
        ),
        (
            "num_iteration",
            5,
            "`num_iteration` is not a parameter; did you mean 'num_iterations'?",
        ),
    ],
)
def test_a_wrong_parameter_stops_before_any_work(tmp_path, kernel_path, name, value, message):
    with pytest.raises(papermill.exceptions.PapermillExecutionError) as caught:
        papermill.execute_notebook(
            str(NOTEBOOK), str(tmp_path / "x.ipynb"), {name: value}, progress_bar=False
        )
    assert caught.value.ename == "ParameterError"
    assert caught.value.evalue == message
    assert "DQNConfig" in caught.value.source
