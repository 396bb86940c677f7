"""Writes an episode of a policy as an HTML file with a 3D scene.

python scripts/replay.py results/minitaur/best-300000        # writes replay.html into it
python scripts/replay.py notebooks/runs/0001 --seed 3        # a run directory
"""

from pathlib import Path

import click

import labkit  # noqa: F401  (first: it sets what TensorFlow reads when it loads)
from labkit.cli import watch
from labkit.plotting import replay_3d
from labkit.plotting.film_strip import film_strip


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the episode.",
)
def main(folder: Path, seed: int) -> None:
    """Writes replay.html and its film strip into FOLDER; FOLDER has config.json and policy/."""
    click.echo(write(folder, seed))


def write(folder: Path, seed: int) -> str:
    """Plays one deterministic episode; returns a line that describes it."""
    env, act = watch.load(folder)
    replay = replay_3d.record(env, act, seed=seed)
    strip = film_strip(replay.frames, captions=replay.captions)
    (folder / "replay.png").write_bytes(strip)
    title = f"{replay.name}, deterministic, seed {seed}"
    file = replay_3d.write_html(replay, folder / "replay.html", title)
    return f"{replay}; {file}: {file.stat().st_size / 1e6:.2f} MB"


if __name__ == "__main__":
    main()
