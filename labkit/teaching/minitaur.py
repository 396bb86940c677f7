"""The tracked robot that walks: its clip, its 3D replay and its score (notebooks 03, 04 and 05)."""

import textwrap
from pathlib import Path

import labkit
from labkit.parameters import grouped
from labkit.sac.rollout import Evaluation
from labkit.training.run import TRACKED_POLICY, read_config, read_metrics

RESULTS = Path(labkit.__file__).parents[1] / "results" / "minitaur"  # only in the repository
POLICY = RESULTS / TRACKED_POLICY.name
CLIP = "one episode of the trained robot: it walks forward"


def show_clip(folder: Path = POLICY) -> None:
    """Displays the tracked clip of a trained robot, its film strip and how it was made.

    Without the repository, as after `pip install`, it prints one line.
    """
    from IPython import display

    from labkit.plotting import video  # loads gym

    if not (folder / "after.mp4").exists():
        print("no clip: the tracked results are in the repository only")
        return
    display.display(display.HTML(video.video_html([folder / "after.mp4"], [CLIP])))
    strip = (folder / "strip.png").read_bytes()
    display.display(display.Image(strip, alt=f"Film strip of {CLIP}"))
    print(description(folder))


def show_replay(folder: Path = POLICY) -> None:
    """Displays the tracked 3D replay of a trained robot, and a film strip of the same episode.

    The viewer is embedded, because JupyterLab and Colab do not serve files outside of the
    notebook's folder. Without the repository, as after `pip install`, it prints one line.
    """
    from IPython import display

    from labkit.plotting import replay_3d  # loads gym

    if not (folder / "replay.html").exists():
        print("no replay: the tracked results are in the repository only")
        return
    display.display(display.HTML(replay_3d.viewer_html(folder / "replay.html")))
    alt = "Film strip of the episode in the replay"
    display.display(display.Image((folder / "replay.png").read_bytes(), alt=alt))
    print(description(folder))


def description(folder: Path = POLICY) -> str:
    """How long a tracked run trained, and its final evaluation, in lines of a notebook's width."""
    last = read_metrics(folder).dropna(subset="eval_return").iloc[-1]
    score = Evaluation(last.eval_returns, last.eval_lengths, last.eval_distances)
    seed, steps = read_config(folder).seed, grouped(int(last.env_step))
    return textwrap.fill(
        f"Training seed {seed} after {steps} env steps, deterministic: {score}.", 95
    )
