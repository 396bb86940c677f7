"""Runs SAC on three standard robots, next to published curves: `make standard`.

python scripts/standard.py run                  the missing runs
python scripts/standard.py run --settings published --env Hopper-v4 --seed 1
python scripts/standard.py run --steps 2000     short trials, which are not tracked
python scripts/standard.py reference FILE       results/standard/reference.csv, from the source
python scripts/standard.py page                 results/standard/README.md and its figure
"""

import hashlib
import json
import sys
from pathlib import Path

import attrs
import click
import pandas as pd

import labkit  # noqa: F401  (first: it sets what TensorFlow reads when it loads)
from labkit.analysis import tracked_runs
from labkit.training import provenance

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]
import standard_page  # noqa: E402
from trials import read  # noqa: E402

from benchmarks import implementations, side_by_side, standard_plan  # noqa: E402

KEPT = ROOT / "results" / "standard"
RUNS = ROOT / "runs"
# Of the file `standard_page.SOURCE_PATH` in that commit.
SOURCE_SHA256 = "ad3ad76922293f4f5857625b1a5cccdc0e382b3aff1300c3b20a8d25c4e539b3"


@attrs.frozen
class Job:
    """One run: settings, environment, seed and length in env steps."""

    settings: str
    env: str
    seed: int
    steps: int

    @property
    def folder(self) -> Path:
        """Where the run belongs, below `results/standard` or `runs/standard`."""
        return Path(self.settings, self.env, f"seed-{self.seed}")

    @property
    def run_dir(self) -> Path:
        """Where the run works; that of a trial has another name."""
        trial = "" if self.steps == standard_plan.ENV_STEPS else f"-trial-{self.steps}"
        return RUNS / f"standard{trial}" / self.folder

    def finished(self) -> bool:
        """Whether the run is finished, here or in the repository."""
        places = [self.run_dir]
        if self.steps == standard_plan.ENV_STEPS:
            places.append(KEPT / self.folder)
        return any(is_finished(place, self.steps) for place in places)


def is_finished(folder: Path, steps: int) -> bool:
    """Whether a folder has the final evaluation after `steps`."""
    if not (folder / "metrics.csv").exists():
        return False
    _, rows = read(folder)
    return bool(len(rows)) and standard_page.is_final(rows.iloc[-1], steps)


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Runs what is missing, then writes the page."""
    if context.invoked_subcommand is None:
        side_by_side.invoke_each(context, run, page)


@main.command()
@click.option("--settings", type=click.Choice(list(standard_plan.LABELS)), help="Only these.")
@click.option("--env", type=click.Choice(list(standard_plan.ACTIONS)), help="Only this one.")
@click.option("--seed", type=click.IntRange(min=0), help="Only this seed.")
@click.option(
    "--workers", default=2, show_default=True, type=click.IntRange(min=1), help="Runs in parallel."
)
@click.option(
    "--steps",
    default=standard_plan.ENV_STEPS,
    show_default=True,
    type=click.IntRange(min=1_000),
    help="Env steps of a run; another number makes trials, which are not tracked.",
)
def run(settings: str | None, env: str | None, seed: int | None, workers: int, steps: int) -> None:
    """Runs the planned runs without a result, one core each; labkit's resume."""
    jobs = [
        Job(one, name, number, steps)
        for one in ([settings] if settings else standard_plan.PLANNED)
        for number in ([seed] if seed is not None else standard_plan.SEEDS)
        for name in ([env] if env else standard_plan.ACTIONS)
    ]
    missing = [job for job in jobs if not job.finished()]
    unavailable = ""
    if any(job.settings == standard_plan.SB3 for job in missing):
        try:
            implementations.make_peers_venv()
        except implementations.UnavailableError as error:  # labkit's own runs do not need it
            unavailable = str(error)
            missing = [job for job in missing if job.settings != standard_plan.SB3]
    side_by_side.run_all(run_one, missing, workers)
    if unavailable:
        raise click.ClickException(unavailable)


def run_one(job: Job) -> str:
    """Runs a job in its own process and tracks it; returns why it failed, or nothing."""
    name = str(job.folder)
    worker = [str(implementations.PEERS_PYTHON), "-m", "benchmarks.standard_sb3"]
    extra = ["--made", json.dumps(provenance.describe())]
    if job.settings != standard_plan.SB3:
        worker = [sys.executable, "-m", "benchmarks.standard_labkit"]
        extra = ["--settings", job.settings]
    command = [*worker, "--env", job.env, "--seed", str(job.seed), "--steps", str(job.steps)]
    command += ["--run-dir", str(job.run_dir), *extra]
    log = ROOT / "build" / "standard" / f"{job.steps}-{'-'.join(job.folder.parts)}.log"
    reason = side_by_side.run_logged(name, command, log, ROOT, {"PYTHONWARNINGS": "ignore"})
    if reason:
        return reason
    if not is_finished(job.run_dir, job.steps):
        return f"{name} is not finished: the same command resumes it"
    if job.steps == standard_plan.ENV_STEPS:
        tracked_runs.keep_replaced(job.run_dir, KEPT / job.folder)
        tracked_runs.copy_records(job.run_dir, KEPT / job.folder)
    return ""


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def reference(file: Path) -> None:
    """Takes the numbers that are needed from FILE, the source's own.

    git clone https://github.com/dojeon-ai/SimbaV2 has it, in the commit that the page names.
    """
    if hashlib.sha256(file.read_bytes()).hexdigest() != SOURCE_SHA256:
        raise click.ClickException(f"FILE must be {standard_page.SOURCE}, got another: {file}")
    (KEPT / "reference.csv").write_text(reference_text(pd.read_csv(file)))
    click.echo("written: results/standard/reference.csv")


def reference_text(table: pd.DataFrame) -> str:
    """The curves of the three environments up to 100 000 env steps, with their source."""
    chosen = table.env_name.isin(standard_plan.ACTIONS) & (
        table.env_step <= standard_plan.ENV_STEPS
    )
    rows = table[chosen].astype({"env_step": int})[["env_name", "seed", "env_step", "value"]]
    head = f"# {standard_page.SOURCE}\n# {standard_page.SOURCE_LICENCE}\n"
    return head + rows.rename(columns={"value": "return"}).to_csv(index=False)


@main.command()
def page() -> None:
    """Writes the page and its figure from the tracked runs."""
    runs = standard_page.find(KEPT)
    published = standard_page.read_reference(KEPT)
    standard_page.figure(runs, published).savefig(KEPT / "curves.png", dpi=110)
    (KEPT / "README.md").write_text(standard_page.text(runs, published))
    click.echo("written: results/standard/README.md and curves.png")


if __name__ == "__main__":
    main()
