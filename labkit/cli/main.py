"""The console command `labkit`; `python -m labkit.cli.main` is the same.

Each command imports its module when it is called: `--help` loads neither papermill nor TensorFlow.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from labkit import __version__
from labkit.errors import ParameterError, RunError
from labkit.runtime import cpu_cores


class CommandGroup(click.Group):
    """Prints one line for a `ParameterError` (exit status 2) or a `RunError` (exit status 1)."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command that the arguments name."""
        try:
            return super().invoke(ctx)
        except (ParameterError, RunError) as error:
            click.echo(f"{type(error).__name__}: {error}", err=True)
            ctx.exit(2 if isinstance(error, ParameterError) else 1)


def examples(*lines: str) -> str:
    """The end of a help text; click keeps the line breaks of a paragraph that begins with BS."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


class _Path(click.Path):
    """A path with `~` expanded, also in `--out=~/clip.mp4`, where the shell leaves it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Checks that the system can look it up; whether it exists is checked later."""
        try:
            path = Path(str(super().convert(value, param, ctx))).expanduser()
            path.exists()
        except (OSError, RuntimeError) as error:  # a name that is too long, or ~nobody
            reason = getattr(error, "strerror", None) or error
            self.fail(f"{str(value)[:80]!r} is no path here ({reason})", param, ctx)
        return path


PATH = _Path(path_type=Path)
notebook_argument = click.argument("notebook", type=PATH)
parameters_option = click.option(
    *("-p", "--parameters", "pairs"),
    nargs=2,
    multiple=True,
    metavar="NAME VALUE",
    help="Set a parameter of the notebook; may be repeated.",
)


def unique(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The values by parameter.

    Raises:
        ParameterError: a parameter is given twice.
    """
    values: dict[str, str] = {}
    for name, text in pairs:
        if name in values:
            raise ParameterError(f"`{name}` is given twice, as {values[name]!r} and as {text!r}")
        values[name] = text
    return values


@click.group(cls=CommandGroup, context_settings={"show_default": True})
@click.version_option(__version__, prog_name="labkit")
def main() -> None:
    """Train Soft Actor-Critic from notebooks, compare runs, and watch the policies."""


@main.command(
    epilog=examples(
        "labkit run notebooks/03_sac_minitaur.ipynb -p num_iterations 2000 -p seed 3",
        "labkit run notebooks/03_sac_minitaur.ipynb -p run_dir runs/0001",
    )
)
@notebook_argument
@parameters_option
def run(notebook: Path, pairs: tuple[tuple[str, str], ...]) -> None:
    """Run NOTEBOOK in a run directory and show its progress.

    NOTEBOOK does not change. The executed copy, the checkpoints and the results are in the run
    directory: the next number under runs/, or the parameter run_dir. An unfinished run there
    resumes.
    """
    from labkit.cli.run import run_notebook

    sys.exit(run_notebook(notebook, unique(pairs)))


@main.command(
    epilog=examples(
        "labkit sweep notebooks/03_sac_minitaur.ipynb",
        "labkit sweep notebooks/03_sac_minitaur.ipynb --seeds '0 1 2 3' -p gamma 0.98",
    )
)
@notebook_argument
@click.option("--seeds", default="0 1 2", help="Seeds; one run for each.")
@click.option(
    "--into", default="runs/sweep", type=PATH, help="Folder of the run directories, SETTING/seed-N."
)
@click.option(
    "--workers",
    type=int,
    default=cpu_cores,
    show_default=False,
    help="Runs at a time; by default the number of CPU cores that this process may use.",
)
@parameters_option
def sweep(
    notebook: Path, seeds: str, into: Path, workers: int, pairs: tuple[tuple[str, str], ...]
) -> None:
    """Run NOTEBOOK with several seeds in parallel.

    Then notebook 05 compares all runs in the folder. The same command again skips finished runs
    and resumes the others.
    """
    from labkit.cli.sweep import run_sweep

    sys.exit(run_sweep(notebook, seeds.replace(",", " ").split(), unique(pairs), into, workers))


@main.command(
    short_help="Find the tracked clip, or record a new one.",
    epilog=examples(
        "labkit watch", "labkit watch --replay --seed 7", "labkit watch runs/0001 --out my.mp4"
    ),
)
@click.argument("run_dir", metavar="[RUN]", required=False, type=PATH)
@click.option("--replay", is_flag=True, help="Run the tracked policy and record a new clip.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    help="Seed of the first episode, 0 by default; the second episode has the next one.",
)
@click.option(
    "--out", type=PATH, help="A new file that ends in .mp4; by default runs/watch.mp4, replaced."
)
def watch(run_dir: Path | None, replay: bool, seed: int | None, out: Path | None) -> None:
    """Show where the clip of the tracked policy is, or record a new clip.

    RUN is a run directory: labkit plays its policy instead.
    """
    if run_dir is None and not replay and (seed is not None or out is not None):
        raise click.UsageError("--seed and --out need --replay or RUN")
    from labkit.cli.watch import check_out, record, tracked_policy

    folder = run_dir or tracked_policy()
    if run_dir or replay:
        check_out(out)
        record(folder, seed or 0, out or Path("runs/watch.mp4"))
    else:
        click.echo(f"an episode of the tracked policy: {folder / 'after.mp4'}")
        click.echo("run it here and record a new clip: labkit watch --replay")


@main.command(
    epilog=examples("labkit export runs/0001", "labkit export runs/0001 --out my-minitaur")
)
@click.argument("run_dir", metavar="RUN", type=PATH)
@click.option("--out", type=PATH, help="A new or empty folder, exports/<name of RUN> by default.")
def export(run_dir: Path, out: Path | None) -> None:
    """Write the policy of RUN into a folder to copy or to upload.

    RUN is a run directory. The folder has the policy as TensorFlow SavedModel, as ONNX and as NumPy
    arrays with a loader, a model card, the configuration, the metrics, the video and SHA256SUMS.
    `hf upload` of Hugging Face takes it as it is. Needs onnx: pip install '.[export]'.
    """
    from labkit.cli.export import export as export_policy

    export_policy(run_dir, out)


@main.command()
def doctor() -> None:
    """Check that everything labkit needs works on this machine.

    The exit status is 1 if a check fails.
    """
    from labkit.cli.doctor import run_checks

    sys.exit(run_checks())


if __name__ == "__main__":
    main(prog_name="labkit")
