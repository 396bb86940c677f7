"""The notebooks, small parameters for each, short copies of them, and what every run must show."""

import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import nbformat
import numpy as np

import labkit
from labkit.sac.rollout import Evaluation
from labkit.training import records
from labkit.training import run as run_directory

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = {path.stem[:2]: path for path in sorted(ROOT.glob("notebooks/[0-9]*.ipynb"))}
# As a user types them: whole floats, tuples as text, paths with a space.
SMALL = {
    "01": {"draws": "5e2"},
    "02": {
        "num_iterations": "2e1",
        "initial_collect_steps": 150,
        "eval_interval": 10,
        "num_eval_episodes": 2,
        "replay_steps": 1_200,
    },
    "03": {
        "num_iterations": "6e1",
        "initial_collect_steps": "400.0",
        "actor_fc_layer_params": "(64, 64)",
        "critic_joint_fc_layer_params": "(64, 64)",
        "eval_interval": 30,
        "log_interval": 20,
        "interim_eval_episodes": 1,
        "num_eval_episodes": 2,
        "run_dir": "my run",
    },
    "04": {
        "solved_return": -2000.0,  # the first evaluation of trained weights
        "watch_seconds": 1,
        "fault_iterations": "6e2",
        "num_iterations": 60,
        "initial_collect_steps": 300,
        "eval_interval": 30,
        "interim_eval_episodes": 1,
        "num_eval_episodes": 2,
        "run_dir": "my runs",
    },
    "05": {"runs": str(ROOT / "results" / "minitaur" / "study")},
    "06": {"seconds": 1, "policy": str(ROOT / run_directory.TRACKED_POLICY)},
}
# Of notebook 04: each starts many processes. The browser runs them.
SLOW_CELLS = ("two", "killed")
SHORT_EPISODES = """\
# Added by the tests: episodes of 200 env steps, and small films with few pictures.
from labkit.plotting import rendering

labkit.make_environment.__defaults__ = (None, 200, True, None)  # max_episode_steps is the second
video.record_episode.__kwdefaults__.update(fps=5, width=160, height=120)
rendering.frame.__defaults__ = (160, 120)
"""
SHORT = "env_steps, returns, total, begin = 800"
MACHINE_PATH = re.compile(r"(?<![\w.])/(work|root|home|tmp|usr|opt)/[\w.\-]+")
NOISE = re.compile(r"reverb/|cuda|TensorRT|pybullet build|raylet|Warning|WARN|pygame|absl|\(pid=")


def read(number: str) -> nbformat.NotebookNode:
    """The committed notebook."""
    return nbformat.read(NOTEBOOKS[number], as_version=4)


def derivation() -> set[str]:
    """The cells of notebook 03 that its run does not need, and `labkit run` does not execute."""
    return {cell.id for cell in read("03").cells if "lesson" in cell.metadata.get("tags", [])}


def write_copy(number: str, folder: Path, leave_out: Collection[str] = ()) -> Path:
    """Writes a copy without outputs, and without the cells that have these ids, into `folder`."""
    notebook = read(number)
    cells = [cell for cell in notebook.cells if cell.id not in leave_out]
    assert len(cells) == len(notebook.cells) - len(leave_out), "a cell has another id now"
    for cell in cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    if number == "03":
        place = next(i for i, cell in enumerate(cells) if cell.id == "imports") + 1
        cells.insert(place, nbformat.v4.new_code_cell(SHORT_EPISODES, id="short-episodes"))
        for cell in cells:  # the pendulum needs 6 000 steps, and tests/lessons takes them
            cell.source = cell.source.replace("env_steps, returns, total, begin = 6_000", SHORT)
    notebook.cells = cells
    copy = folder / NOTEBOOKS[number].name
    nbformat.write(notebook, copy)
    return copy


def papermill(folder: Path, notebook: Path, **parameters) -> subprocess.CompletedProcess[str]:
    """`papermill notebook out.ipynb -p name value …` in `folder`."""
    pairs = [part for name, value in parameters.items() for part in ("-p", name, str(value))]
    # Without the flag, papermill writes the whole notebook, films included, after each cell.
    command = [sys.executable, "-m", "papermill", "--no-request-save-on-cell-execute"]
    command += [str(notebook), "out.ipynb", *pairs]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def outputs(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """All outputs, in order."""
    return [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]


def text(found: list[nbformat.NotebookNode]) -> str:
    """The text of outputs."""
    return "\n".join(o.get("text", "") + o.get("data", {}).get("text/plain", "") for o in found)


def write_run(path: Path, seed: int, curve: list[float], walks: bool = True, **changes) -> None:
    """A finished run with these mean returns after 10, 20, … gradient steps, of two episodes."""
    config = labkit.SACConfig(seed=seed, num_iterations=10 * len(curve), **changes)
    run = labkit.open_run(path, config)
    run.log(gradient_step=5, env_step=15, critic_loss=1.0)
    for number, value in enumerate(curve, start=1):
        distances = (value / 2 if walks else np.nan,) * 2
        score = Evaluation((value - 1, value + 1), (100.0 * number,) * 2, distances)
        steps = {"env_step": 10 * number + 10, "gradient_step": 10 * number}
        run.log_evaluation(score, **steps, wall_seconds=60.0 * number)


# --- what an executed notebook must show, whoever executed it


def check(number: str, executed: nbformat.NotebookNode, folder: Path) -> None:
    """Checks outputs, and the files that the notebook left in `folder`."""
    found = outputs(executed)
    for output in found:
        assert output.output_type != "error", output
        assert output.get("name") != "stderr", output.text
    shown = text(found)
    assert not MACHINE_PATH.search(shown.replace(str(ROOT), "…"))  # a parameter's
    assert not NOISE.search(shown)
    tagged, committed = text_of_tagged(executed), text_of_tagged(read(number))
    assert tagged == {name: committed[name] for name in tagged}
    films = sum(o.get("data", {}).get("text/html", "").count("<video") for o in found)
    pictures = sum("image/png" in o.get("data", {}) for o in found)
    least_films, least_pictures = PICTURES[number]
    assert films >= least_films
    assert pictures >= least_pictures
    FURTHER.get(number, lambda *_: None)(shown, folder)


# Films and pictures that each notebook shows at least.
PICTURES = {"01": (0, 7), "02": (1, 4), "03": (3, 12), "04": (1, 5), "05": (0, 3), "06": (2, 3)}


def text_of_tagged(notebook: nbformat.NotebookNode) -> dict[str, list[str]]:
    """The lines of the cells with nbval's tag: outputs that depend on no parameter.

    Without empty ones: what a cell prints may come in one message or in several.
    """
    checked = [c for c in notebook.cells if "nbval-check-output" in c.metadata.get("tags", [])]
    return {c.id: [line for line in text(c.outputs).splitlines() if line] for c in checked}


def check_reverb(shown: str, _: Path) -> None:
    """Notebook 01: the windows of 2, 3 and 4, batches of two, a blocked insert."""
    assert "num_keep_alive_refs=2: ValueError" in shown
    assert all(f"num_keep_alive_refs={window}: 432 bytes stored" in shown for window in (3, 4))
    assert "observations (2, 3, 10, 10) uint8" in shown
    assert "insert 5 is blocked, balance 12.0" in shown
    assert "the second server starts with 2 items" in shown


def check_buffers(shown: str, _: Path) -> None:
    """Notebook 02: the windows of the three buffers, and DQN's mask."""
    uniform = "5→6  6→7  7→8  8→9  9→10  10→11  11→12"
    assert f"TFUniform: {uniform}" in shown
    assert f"PyUniform: {uniform}" in shown
    assert "their loss: 0.0" in shown


def check_training(_: str, folder: Path) -> None:
    """Notebook 03."""
    run = folder / "my run"
    assert {path.name for path in (run / "videos").iterdir()} == {
        *("before.mp4", "after.mp4", "replay.html")
    }
    assert (run / "policy" / "saved_model.pb").exists()
    table = records.read_metrics(run)
    assert list(table.gradient_step[table.eval_return.notna()]) == [0, 30, 60]
    assert len(table.eval_returns.iloc[-1]) == 2


def check_ray(shown: str, folder: Path) -> None:
    """Notebook 04, in which a rollout worker is killed."""
    assert "solved: " in shown  # the learner by hand has pushed
    assert re.search(r"worker 0: [1-9]\d* env steps arrived\nworker 1: 0 env steps", shown)
    for name in ("local", "ray-2"):
        assert records.read_metrics(folder / "my runs" / name).gradient_step.max() == 60


def check_playground(shown: str, _: Path) -> None:
    """Notebook 06: a setting that makes the robot fall."""
    returns = dict(re.findall(r"^([AB]) .* (-?\d+\.\d+) +\d\.\d+$", shown, re.M))
    assert float(returns["A"]) > 0.5


FURTHER = {
    "01": check_reverb,
    "02": check_buffers,
    "03": check_training,
    "04": check_ray,
    "06": check_playground,
}
