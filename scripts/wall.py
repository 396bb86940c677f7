"""Films policies side by side: random actions, a walk, a fall, and other runs.

python scripts/wall.py                                        # results/minitaur/wall/
python scripts/wall.py results/minitaur/best-300000 runs/0001 --out build/wall

The first command films the tracked policy, that of notebook 03's run, and those in
results/minitaur/wall/policies/. Each folder has config.json and policy/: a run directory, or a
policy in results/. For the first folder, the wall shows the first full episode and the first fall
among the seeds 0 to 9, if there are any. For each other folder, it shows the episode with seed 0. A
title names what differs from the defaults.
"""

import tempfile
from pathlib import Path
from typing import Any

import click

import labkit  # noqa: F401  (first: it sets what TensorFlow reads when it loads)
from labkit.analysis.compare import setting_name
from labkit.cli import watch
from labkit.parameters import grouped
from labkit.plotting import video, wall
from labkit.sac.rollout import Policy, play, random_policy
from labkit.training.run_directory import TRACKED_POLICY, read_config

ROOT = Path(__file__).resolve().parent.parent
POLICY = ROOT / TRACKED_POLICY
DEFAULT = POLICY.with_name("default")
WALL = ROOT / "results" / "minitaur" / "wall"
SEEDS = range(10)
PAGE = """# Policies side by side

    .venv/bin/python scripts/wall.py{arguments}

[wall.mp4](wall.mp4) shows these episodes at once; a clip that is over turns grey.

| clip | training, env steps | seed of the episode | seconds | metres forward | return |
|---|---|---|---|---|---|
{rows}

![A film strip of each clip: time, metres forward, return so far](strips.png)

The command wrote this page, wall.mp4 and strips.png. A clip is a single episode. The command
shows the first full episode of `best-300000` with a seed from 0 to 9, and its first fall, if there
is one; every other clip is the episode with seed 0. Scores over 20 episodes:
[best-300000](../best-300000/README.md), [defaults, seed 0](../default/README.md), and
[the study](../README.md), in which `tutorial` is the setting `source`.
"""


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="A folder.")
def main(folders: tuple[Path, ...], out: Path | None) -> None:
    """Writes wall.mp4, strips.png and README.md of the policies in FOLDERS."""
    if folders and not out:
        raise click.UsageError("--out must name a folder: results/minitaur/wall holds the tracked")
    first, *others = folders or (POLICY, DEFAULT, *sorted((WALL / "policies").iterdir()))
    out = out or WALL
    titles = [title_of(folder) for folder in others]
    if len(set(titles)) < len(titles):
        raise click.UsageError(f"two of the folders have the same title: {', '.join(titles)}")
    env, act = watch.load(first)
    shown = {"random actions": (env, random_policy(env.action_spec(), seed=0), 0)}
    trained = {"random actions": "0"}
    for name, seed in episodes(env, act).items():
        title = f"{first.resolve().name}: {name}"
        shown[title], trained[title] = (env, act, seed), env_steps(first)
    for title, folder in zip(titles, others, strict=True):
        shown[title], trained[title] = (*watch.load(folder), 0), env_steps(folder)
    with tempfile.TemporaryDirectory() as drafts:
        clips = {
            title: film(Path(drafts) / f"{number}.mp4", *chosen)
            for number, (title, chosen) in enumerate(shown.items())
        }
        out.mkdir(parents=True, exist_ok=True)
        wall.write_video(clips, out / "wall.mp4", columns=3 if len(clips) <= 6 else 4)
        (out / "strips.png").write_bytes(wall.film_strips(clips))
    arguments = "".join(f" {folder}" for folder in folders) + (f" --out {out}" if folders else "")
    rows = [row(title, trained[title], clip, shown[title][2]) for title, clip in clips.items()]
    (out / "README.md").write_text(PAGE.format(arguments=arguments, rows="\n".join(rows)))
    click.echo(f"written: {out}")


def episodes(env: Any, act: Policy) -> dict[str, int]:
    """The seeds of the first full episode and of the first fall, as far as a seed shows them."""
    found: dict[str, int] = {}
    for seed in SEEDS:
        env.seed(seed)
        *_, (transition, _) = play(env, act, env.reset())
        found.setdefault("a full episode" if transition.discount else "a fall", seed)
        if len(found) == 2:
            break
    return dict(sorted(found.items(), reverse=True))


def title_of(folder: Path) -> str:
    """What differs from the defaults, and the seed of the training: `n_step 1, seed 3`."""
    config = read_config(folder)
    return f"{setting_name(config)}, seed {config.seed}"


def env_steps(folder: Path) -> str:
    """How long a policy was trained, warm-up included: `60 000`."""
    config = read_config(folder)
    learned = config.num_iterations * config.collect_steps_per_iteration
    return grouped(config.initial_collect_steps + learned)


def film(path: Path, env: Any, act: Policy, seed: int) -> video.Recording:
    """One episode."""
    return video.record_episode(env, act, path, seed=seed)


def row(title: str, trained: str, clip: video.Recording, seed: int) -> str:
    """A line of the page's table; the metres are those of the last caption."""
    words = clip.captions[-1].split()
    metres = words[words.index("m") - 1] if "m" in words else ""
    return f"| {title} | {trained} | {seed} | {clip.seconds:.1f} | {metres} | {clip.return_:+.2f} |"


if __name__ == "__main__":
    main()
