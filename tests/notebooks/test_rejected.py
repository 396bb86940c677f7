"""A wrong parameter stops a notebook with one line, before any work."""

from pathlib import Path
from typing import Any

import books
import nbformat
import pytest

from labkit.errors import ParameterError


def run_to_check(number: str, **parameters: Any) -> None:
    """Runs the first cells, which check parameters, in this process, as papermill does.

    A kernel would take seconds; one for all is below.
    """
    injected = "# Parameters\n" + "".join(f"{name} = {v!r}\n" for name, v in parameters.items())
    namespace: dict[str, Any] = {"In": [""]}
    after = None  # cells after the parameters
    for cell in books.read(number).cells:
        if cell.cell_type != "code" or cell.id == "colab":
            continue
        tagged = "parameters" in cell.metadata.get("tags", [])
        for source in [cell.source, injected] if tagged else [cell.source]:
            namespace["In"].append(source)
            exec(source, namespace)
        after = 0 if tagged else after + 1 if after is not None else None
        if after == 2:
            return


@pytest.mark.parametrize(
    ("number", "name", "value", "message"),
    [
        ("01", "port", 80, "`port` must be a whole number from 1 024 to 65 535 (TCP port), got 80"),
        ("02", "batch_size", 0, "`batch_size` must be a whole number from 1 to 1 000 000 "),
        ("02", "num_iteration", 5, "`num_iteration` is not a parameter; did you mean 'num_itera"),
        ("03", "num_iterations", 0, "`num_iterations` must be a whole number from 1 to 1 000 000"),
        ("03", "num_iteration", 1, "`num_iteration` is not a parameter; did you mean 'num_itera"),
        ("03", "n_stpe", 3, "`n_stpe` is not a parameter; did you mean 'n_step'?"),
        ("03", "n_step", 0, "`n_step` must be a whole number from 1 to 100 (env steps whose"),
        ("04", "collectors", 0, "`collectors` must be a whole number from 1 to 64 (rollout work"),
        ("04", "watch_seconds", 0, "`watch_seconds` must be a whole number from 1 to 3 600"),
        ("04", "learning_rate", 0, "`learning_rate` must be a number above 0 and up to 1"),
        ("04", "env_name", "Nope", "`env_name` must be a registered id of Gym"),
        ("05", "runs", "nowhere", "`runs` must be an existing folder, got 'nowhere'"),
        ("05", "budgt", 10, "`budgt` is not a parameter; did you mean 'budget'?"),
        ("05", "budget", 0, "`budget` must be a whole number from 1 to 1 000 000 000 (gradient s"),
        ("05", "baseline", "best", "`baseline` must be a folder in `runs` whose runs have one se"),
        ("06", "seconds", 11, "`seconds` must be a whole number from 1 to 10 (seconds of the rob"),
        ("06", "policy", 5, "`policy` must be the path of a run directory, got 5"),
        ("06", "payload_kg_b", -1, "`payload_kg_b` must be a number from 0 to 20 (kg on the base"),
        ("06", "latency_b", 0.1, "`latency_b` is not a parameter"),
    ],
)
def test_a_wrong_parameter_is_one_line(number, name, value, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parameters = {name: value}
    if number == "05" and name != "runs":
        books.write_run(tmp_path / "runs" / "only", 0, [0.0, 1.0])
        parameters["runs"] = "runs"
    with pytest.raises(ParameterError) as caught:
        run_to_check(number, **parameters)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert {path.name for path in Path().iterdir()} <= {"runs"}, "only what this test wrote"


def test_papermill_ends_with_the_line_and_the_cell_shows_it_alone(tmp_path):
    done = books.papermill(tmp_path, books.NOTEBOOKS["03"], run_dir="never", num_iteration=0)
    line = "ParameterError: `num_iteration` is not a parameter; did you mean 'num_iterations'?"
    assert done.returncode != 0
    assert done.stderr.strip().splitlines()[-1] == line
    notebook = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    (error,) = [output for output in books.outputs(notebook) if output.output_type == "error"]
    assert error.traceback == [line]
    assert not (tmp_path / "never").exists()
