"""The console command `labkit`; `python -m labkit.cli.main` is the same.

What a command needs is imported when it is called: `--help` loads neither papermill nor TensorFlow.
A `ParameterError` or `RunError` is printed as one line, see `errors`.
"""

import contextlib
import platform
import sys
import tempfile
from pathlib import Path

import click
import numpy as np

from labkit import __version__, quiet
from labkit.errors import first_line
from labkit.runtime import cpu_cores, installed_version

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


# --- labkit doctor


def reverb() -> str:
    """Writes and samples a transition; tells if other hosts can reach the servers."""
    if installed_version("dm-reverb") is None:
        return "not installed (it has builds for Linux x86-64): use replay=tf_uniform"
    from labkit.replay.reverb_replay import ReverbReplay
    from labkit.replay.server import faces_outward
    from labkit.replay.transitions import Layout, Transition

    with contextlib.closing(ReverbReplay(Layout(1, 1), 10)) as table:
        table.write(Transition(np.array([1]), np.array([2]), 3, 1, np.array([4])))
        table.flush()
        assert table.sample(1).tolist() == [[1, 2, 3, 1, 4]], "a transition has changed"
    who = "other hosts can reach its servers, without a password"
    return f"wrote and sampled a transition; {who if faces_outward() else 'no other host can'}"


def video() -> str:
    """Renders frames of the Minitaur without a display, and writes them as a video."""
    from labkit.environments.make import MINITAUR, make_environment
    from labkit.plotting.video import record_episode

    env = make_environment(MINITAUR, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        record_episode(env, lambda _: np.zeros(8), Path(folder) / "v.mp4", max_steps=8)
    return "rendered the Minitaur and wrote an MP4"


def ray() -> str:
    """Runs one task in a Ray worker process; only notebook 04 and `train_on_ray` need it."""
    if installed_version("ray") is None:
        return "not installed; only notebook 04 needs it (pip install '.[ray]')"
    import ray

    from labkit.distributed import cluster

    with cluster.connection(None, cpus=1):
        ray.get(ray.remote(lambda: None).remote(), timeout=120)
    return "a task returned its result"


CHECKS = (reverb, video, ray)


@main.command()
def doctor() -> None:
    """Check that everything labkit needs works on this machine; the exit status is 1 if not."""
    print(f"labkit {__version__}, Python {platform.python_version()}, {platform.platform()}")
    failed = 0
    for check in CHECKS:
        try:
            with quiet():
                status, text = "ok", check()
        except Exception as error:
            failed += 1
            status, text = "fails", f"{type(error).__name__}: {first_line(error)}"
        print(f"  {status:<6} {check.__name__:<10} {text}", flush=True)
    print(f"{failed} of {len(CHECKS)} checks fail" if failed else "everything works here")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main(prog_name="labkit")
