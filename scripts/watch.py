"""Runs the best tracked policy in the physics and films two episodes: make watch REPLAY=1.

python scripts/watch.py
python scripts/watch.py --seed 7 --out my.mp4
"""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import click
import imageio_ffmpeg
import numpy as np

import labkit
from labkit.environments.make import make_environment
from labkit.environments.physics import step_seconds
from labkit.plotting import video
from labkit.sac.policies import Policy
from labkit.training import run_directory

ROOT = Path(__file__).resolve().parent.parent
BEST = ROOT / "results" / "minitaur" / "best"


@click.command()
@click.option("--policy", default=BEST, help="A folder with config.json and policy/.", type=Path)
@click.option("--seed", default=0, show_default=True, help="Of the first episode's start.")
@click.option("--out", default=Path("runs/watch.mp4"), show_default=True, type=Path)
def main(policy: Path, seed: int, out: Path) -> None:
    """Plays two greedy episodes, says how they went, and leaves the clip in OUT."""
    recordings = film(policy, seed, out)
    for recording in recordings:
        click.echo(f"return {recording.return_:+.2f}, {recording.steps} of 1000 steps")
    click.echo(f"filmed: {out}")


def load(folder: Path) -> tuple[Any, Policy]:
    """The environment and the saved policy of a run.

    Args:
        folder: with a run's `config.json`, and `policy/`, its SavedModel.
    """
    with labkit.quiet():
        import tensorflow as tf
        from tf_agents.trajectories import time_step as ts

        saved = tf.saved_model.load(str(folder / "policy"))
        env = make_environment(run_directory.read_config(folder).env_name)

    def act(observation: np.ndarray) -> np.ndarray:
        return saved.action(ts.restart(observation[None], batch_size=1)).action[0].numpy()

    return env, act


def film(folder: Path, seed: int, out: Path, max_steps: int = 1000) -> list[video.Recording]:
    """Two episodes one after the other in one MP4.

    Args:
        folder: see `load`.
        seed: of the first episode; the second has the next.
        out: the MP4.
        max_steps: each episode is cut there.
    """
    env, act = load(folder)
    with tempfile.TemporaryDirectory() as drafts:
        parts = [
            video.record_episode(
                env,
                act,
                Path(drafts) / f"{number}.mp4",
                step_seconds=step_seconds(env),
                seed=seed + number,
                max_steps=max_steps,
            )
            for number in range(2)
        ]
        join([part.path for part in parts], out)
    return parts


def join(parts: list[Path], out: Path) -> None:
    """Puts MP4 files of one size and codec behind one another, unchanged."""
    out.parent.mkdir(parents=True, exist_ok=True)
    listing = parts[0].with_suffix(".txt")
    listing.write_text("".join(f"file {part.name}\n" for part in parts))
    draft = parts[0].with_name("joined.mp4")
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-f", "concat", "-i", str(listing)]
    subprocess.run([*command, "-c", "copy", "-movflags", "+faststart", str(draft)], check=True)
    out.write_bytes(draft.read_bytes())


if __name__ == "__main__":
    main()
