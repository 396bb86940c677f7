"""Copies the small files of a run into results/ and writes a page about the run.

python scripts/track_run.py notebooks/runs/0001 results/minitaur/default
"""

import json
import shutil
import sys
from pathlib import Path

import attrs
import click
import imageio.v3 as imageio
import numpy as np
import pandas as pd

import labkit  # noqa: F401  (first: it sets what TensorFlow reads when it loads)
from labkit.analysis import tracked_runs
from labkit.config import SACConfig
from labkit.parameters import grouped
from labkit.plotting import run_plots
from labkit.plotting.film_strip import film_strip
from labkit.sac.rollout import Evaluation
from labkit.training import provenance, run_directory
from labkit.training.config_file import read_config

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]


@click.command()
@click.argument("run_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("target", type=click.Path(file_okay=False, path_type=Path))
@click.option("--note", default="", help="A sentence about the run for its page.")
def main(run_dir: Path, target: Path, note: str) -> None:
    """Copies the small files of RUN_DIR to TARGET; another run there is renamed, not replaced."""
    check(run_dir, target)
    if replaced := tracked_runs.keep_replaced(run_dir, target):
        click.echo(f"the run that was there is now {replaced}")
    tracked_runs.copy_records(run_dir, target)
    shutil.copytree(run_dir / "policy", target / "policy", dirs_exist_ok=True)
    shutil.copy(run_dir / "videos" / "after.mp4", target / "after.mp4")
    metrics = run_directory.read_metrics(run_dir)
    run_plots.learning_curve(metrics).savefig(target / "curve.png", dpi=110)
    run_plots.training_figure(metrics).savefig(target / "training.png", dpi=110)
    (target / "strip.png").write_bytes(strip(target / "after.mp4"))
    (target / "README.md").write_text(page(run_dir, metrics, target, note))


def check(run_dir: Path, target: Path) -> None:
    """Rejects a run that lacks a file of its page, and a target that holds anything but a run."""
    needed = ("config.json", "metrics.csv", "policy/saved_model.pb", "videos/after.mp4")
    if missing := [name for name in needed if not (run_dir / name).is_file()]:
        raise click.UsageError(f"{run_dir} has no {missing[0]}: train it with notebook 03")
    if target.exists() and any(target.iterdir()) and not (target / "metrics.csv").exists():
        raise click.UsageError(f"{target} must be new, empty or a tracked run; it holds others")


def strip(clip: Path) -> bytes:
    """A film strip of a clip, with its time below each picture; a clip is in real time."""
    frames = list(imageio.imiter(clip))
    fps = imageio.immeta(clip)["fps"]
    captions = [f"{number / fps:.1f} s" for number in range(len(frames))]
    return film_strip(frames, columns=6, captions=captions)


def page(run_dir: Path, metrics: pd.DataFrame, target: Path, note: str) -> str:
    """The page: command, final score, versions; every number is read from the run."""
    content = json.loads((run_dir / "config.json").read_text())
    config = read_config(run_dir)
    default = attrs.asdict(SACConfig())
    changed = {k: v for k, v in attrs.asdict(config).items() if v != default[k]}
    arguments = "".join(f" -p {name} {quoted(value)}" for name, value in changed.items())
    command = f" ARGS='{arguments.strip()}'" if arguments else ""
    first, last_tenth = speeds(metrics)
    last = metrics.dropna(subset="eval_return").iloc[-1]
    final = Evaluation(last.eval_returns, last.eval_lengths, last.eval_distances)
    versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    length = grouped(config.num_iterations)
    remark = f"- {note}\n" if note else ""
    animation, third = "", ""
    if (target / "after.gif").exists():
        animation = "    .venv/bin/python scripts/animate.py <this directory>/after.mp4\n"
        third = ", the third the GIF"
    return f"""# {config.env_name}, seed {config.seed}, {length} gradient steps

    make run{command}
    .venv/bin/python scripts/track_run.py <the run directory> <this directory>
{animation}
In `notebooks/`, `papermill 03_sac_minitaur.ipynb out.ipynb{arguments}` trains the same.

- Final evaluation, deterministic: {final}.
- Its worst episode: {np.min(final.returns):+.2f}; its best: {np.max(final.returns):+.2f}.
- Training took {last.wall_seconds / 60:.0f} minutes, evaluations and checkpoints included.
{remark}- Gradient steps per second, evaluations excluded: {first:.0f} in the first tenth,
  {last_tenth:.0f} in the last.
- {versions}.
- Made with {provenance.in_words(content)}.
{memory(target / "pace.csv")}
![Learning curve: evaluation return over env steps, next to the published curve](curve.png)

![Returns, losses, α and gradient steps per second over gradient steps](training.png)

![Film strip of one deterministic episode after training](strip.png)

The film strip shows the episode of the clip, [after.mp4](after.mp4). The second command wrote
this page and the other files that it shows{third}.
{replay(target / "replay.html")}"""


def quoted(value: object) -> str:
    """A value for a command line, also inside single quotes; a tuple contains spaces."""
    return f'"{value!r}"' if isinstance(value, tuple) else repr(value)


def speeds(metrics: pd.DataFrame) -> tuple[float, float]:
    """Gradient steps per second in the first and in the last tenth; evaluations excluded.

    Columns used of a run's metrics: `gradient_step`, `wall_seconds` and `eval_return`.
    """
    # An evaluation's row is written at its end; on Ray it may have the seconds of earlier weights.
    metrics = metrics[metrics.wall_seconds >= metrics.wall_seconds.cummax()]
    durations = metrics.wall_seconds.diff().fillna(0.0).mask(metrics.eval_return.notna(), 0.0)
    seconds = durations.cumsum().groupby(metrics.gradient_step).max()
    tenth = seconds.index.max() / 10
    begin, first, ninth, end = np.interp([0, tenth, 9 * tenth, 10 * tenth], seconds.index, seconds)
    return tenth / (first - begin), tenth / (end - ninth)


def replay(file: Path) -> str:
    """A paragraph about the 3D replay; nothing if there is none."""
    if not file.exists():
        return ""
    return """
[replay.html](replay.html) shows an episode in 3D. Open it in a browser: the slider moves through
time, and the view can be turned. Two more commands use the policy:

    .venv/bin/python scripts/replay.py <this directory>       # writes replay.html and replay.png
    make watch REPLAY=1                                       # records a new clip of the policy

`policy/` is a TensorFlow SavedModel. The
[README](../../../README.md#a-trained-policy-in-a-few-lines) uses it in a few lines of Python.
"""


def memory(pace: Path) -> str:
    """A line with the memory that `benchmarks.pace` measured; nothing if it did not."""
    if not pace.exists():
        return ""
    table = pd.read_csv(pace)
    first, last = (grouped(int(table.gradient_step.iloc[at])) for at in (0, -1))
    most = table.resident_mib.max() / 1024
    return f"""- Resident memory from gradient step {first} to {last}: at most {most:.1f} GiB
  ([pace.csv](pace.csv), by `python -m benchmarks.pace <the run directory>`).
"""


if __name__ == "__main__":
    main()
