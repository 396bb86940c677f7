"""Runs the training of notebook 02 with several seeds, and ablates its settings one at a time.

    python benchmarks/cartpole_dqn.py                     # writes results/cartpole_dqn.csv
    python benchmarks/cartpole_dqn.py --seeds 7 --plain   # one more seed, no ablations

papermill runs the notebook itself up to the cell tagged `result`; each run becomes a row. Runs
that already have a row are skipped. Remove the output file to run all of them again.
"""

import argparse
import csv
import logging
import re
import sys
import tempfile
from pathlib import Path

import papermill
from papermill.iorw import load_notebook_node, write_ipynb

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "02_replay_buffers.ipynb"
RESULT = re.compile(
    r"weights kept: mean return \+(?P<mean_return>[\d.]+)(?: ± (?P<deviation>[\d.]+))? over "
    r"(?P<episodes>\d+) episodes.*\n"
    r".*last round: mean return \+(?P<last_return>[\d.]+)(?: ± (?P<last_deviation>[\d.]+))? .*\n"
    r"(?P<env_steps>\d+) env steps, "
    r"(?P<training_seconds>\d+) s of training \((?P<cpu_seconds>\d+) s of CPU\)"
)
# One setting at a time has the source document's value; each with seed 0.
ABLATIONS = [
    {"td_loss": "huber"},
    {"target_update_tau": 1.0},
    {"replay_buffer_capacity": 1000},
    {"batch_size": 4},
    {"gamma": 1.0},
]


def main() -> int:
    """Runs the requested settings; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--plain", action="store_true", help="leave out the ablations")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "cartpole_dqn.csv")
    options = parser.parse_args()
    logging.getLogger("papermill").setLevel(logging.ERROR)
    settings: list[dict] = [{"seed": seed} for seed in options.seeds]
    settings += [] if options.plain else [{"seed": 0, **change} for change in ABLATIONS]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    done = finished(options.output)
    with options.output.open("a", newline="") as file:
        fields = ["seed", "changed", "value", *RESULT.groupindex]
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        for setting in settings:
            if key(setting) in done:
                continue
            row = run(setting)
            writer.writerow(row)
            file.flush()
            print(row, file=sys.stderr)
    return 0


def key(setting: dict) -> tuple[str, ...]:
    """Returns a setting as the CSV's first three columns: seed, changed, value."""
    change = [(name, value) for name, value in setting.items() if name != "seed"]
    name, value = change[0] if change else ("", "")
    return str(setting["seed"]), name, str(value)


def finished(path: Path) -> set[tuple[str, ...]]:
    """Returns the settings that have a row in the file; none if there is no file."""
    if not path.exists():
        return set()
    with path.open() as file:
        return {(row["seed"], row["changed"], row["value"]) for row in csv.DictReader(file)}


def run(setting: dict) -> dict:
    """Runs the notebook's training once and returns the CSV's row.

    Raises:
        RuntimeError: the notebook printed no result.
    """
    notebook = load_notebook_node(str(NOTEBOOK))
    tags = [cell.metadata.get("tags", []) for cell in notebook.cells]
    last = next(i for i, tag in enumerate(tags) if "result" in tag)
    notebook.cells = notebook.cells[: last + 1]
    with tempfile.TemporaryDirectory() as folder:
        short, done = Path(folder) / "short.ipynb", Path(folder) / "done.ipynb"
        write_ipynb(notebook, str(short))
        executed = papermill.execute_notebook(
            str(short), str(done), setting, progress_bar=False, cwd=str(NOTEBOOK.parent)
        )
    output = "".join(out.get("text", "") for out in executed.cells[-1].outputs)
    found = RESULT.search(output)
    if found is None:
        raise RuntimeError(f"the notebook's result cell must print a result, got {output!r}")
    seed, name, value = key(setting)
    return {"seed": seed, "changed": name, "value": value, **found.groupdict()}


if __name__ == "__main__":
    sys.exit(main())
