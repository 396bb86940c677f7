"""The console command `labkit`; `python -m labkit.cli.main` is the same.

Each command imports its module when it is called: `--help` loads neither papermill nor TensorFlow.
A `ParameterError` or `RunError` is printed as one line, see `errors`.
"""

import sys
from pathlib import Path

import click

from labkit import __version__
from labkit.runtime import cpu_cores

Pairs = tuple[tuple[str, str], ...]
PATH = click.Path(path_type=Path)
NOTEBOOK = click.argument("notebook", type=PATH)
RUN = click.argument("run_dir", metavar="RUN", type=PATH)
HELP = "Set a parameter of the notebook, or any field of SACConfig; may be repeated."
PARAMETERS = click.option(
    "-p", "--parameters", "pairs", nargs=2, multiple=True, metavar="NAME VALUE", help=HELP
)


@click.group(context_settings={"show_default": True})
@click.version_option(__version__, prog_name="labkit")
def main() -> None:
    """Train Soft Actor-Critic from notebooks, compare runs, and watch the policies."""


@main.command(epilog="Example: labkit run notebooks/03_sac_minitaur.ipynb -p seed 3")
@NOTEBOOK
@PARAMETERS
def run(notebook: Path, pairs: Pairs) -> None:
    """Run NOTEBOOK in a run directory: the parameter run_dir, or a new number under runs/.

    The executed copy and the results are there. An unfinished run resumes.
    """
    from labkit.cli.run import run_notebook

    sys.exit(run_notebook(notebook, dict(pairs)))


@main.command(epilog="Example: labkit sweep notebooks/03_sac_minitaur.ipynb -p gamma 0.98")
@NOTEBOOK
@click.option("--seeds", default="0 1 2", help="Seeds; one run for each.")
@click.option("--into", default="runs/sweep", type=PATH, help="The runs are SETTING/seed-N there.")
@click.option("--workers", type=click.IntRange(1), default=cpu_cores, help="Runs at a time.")
@PARAMETERS
def sweep(notebook: Path, seeds: str, into: Path, workers: int, pairs: Pairs) -> None:
    """Run NOTEBOOK with several seeds in parallel, then compare all runs in notebook 05.

    The same command again skips finished runs and resumes the others.
    """
    from labkit.cli.run import run_sweep

    sys.exit(run_sweep(notebook, seeds.replace(",", " ").split(), dict(pairs), into, workers))


@main.command()
@RUN
@click.option("--seed", type=click.IntRange(0), default=0, help="Of the episode.")
@click.option("--out", type=PATH, help="A new MP4 file; by default runs/watch.mp4, replaced.")
def watch(run_dir: Path, seed: int, out: Path | None) -> None:
    """Record an episode of the policy of RUN, a run directory, as MP4."""
    from labkit.cli.export import record

    record(run_dir, seed, out)


@main.command()
@RUN
@click.option("--out", type=PATH, help="A new folder, exports/<name of RUN> by default.")
def export(run_dir: Path, out: Path | None) -> None:
    """Write the policy of RUN as SavedModel, ONNX and NumPy arrays, with a model card."""
    from labkit.cli.export import export as export_policy

    export_policy(run_dir, out)


@main.command()
def doctor() -> None:
    """Check that everything labkit needs works on this machine; the exit status is 1 if not."""
    from labkit.cli.doctor import run_checks

    sys.exit(run_checks())


if __name__ == "__main__":
    main(prog_name="labkit")
