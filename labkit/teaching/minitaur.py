"""The Minitaur: what it observes and does, and the tracked robot that walks (notebooks 03, 05)."""

import itertools
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import labkit
from labkit.parameters import grouped
from labkit.sac.rollout import Evaluation
from labkit.symmetry import REFLECTIONS
from labkit.training.run import TRACKED_POLICY, read_config, read_metrics

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment
    from tf_agents.typing.types import BoundedArraySpec

RESULTS = Path(labkit.__file__).parents[1] / "results" / "minitaur"  # only in the repository
POLICY = RESULTS / TRACKED_POLICY.name
CLIP = "one episode of the trained robot: it walks forward"
LEGS = ("front left", "back left", "front right", "back right")
OBSERVATION_GROUPS = (  # (what, unit, numbers), in the order of the observation
    ("motor angle", "rad", 8),
    ("motor velocity", "rad/s", 8),
    ("motor torque", "N m", 8),
    ("attitude of the base: x, y, z of a quaternion", "none", 3),
    ("attitude of the base: w", "none", 1),
)
# As pybullet names them: each leg has a left (L) and a right (R) motor.
MOTORS = tuple(f"{leg} {motor}" for leg in LEGS for motor in "LR")


def random_observations(env: "PyEnvironment", steps: int = 1_000, seed: int = 0) -> np.ndarray:
    """Plays uniformly random actions in `env`; returns what it observes, `[steps, obs] float32`."""
    spec, generator = env.action_spec(), np.random.default_rng(seed)
    found, step = [], env.reset()
    for _ in range(steps):
        action = generator.uniform(spec.minimum, spec.maximum, spec.shape).astype(spec.dtype)
        step = env.reset() if step.is_last() else env.step(action)
        found.append(step.observation)
    return np.array(found, np.float32)


def reflected_angles(steps: int = 20, seed: int = 0) -> pd.DataFrame:
    """Plays drawn actions in one robot, and the same actions reflected in a second one.

    Both robots have the same masses and friction. See `labkit.symmetry`.

    Args:
        steps: env steps before the angles are read.
        seed: of the robots and of the actions, which change slowly from step to step.

    Returns:
        One row per motor of the first robot: its angle in rad; the opposite motor of the second
        robot, and its angle.
    """
    reflection, generator = REFLECTIONS["MinitaurBulletEnv-v0"], np.random.default_rng(seed)
    drawn = np.zeros((steps, 8), np.float32)
    for before, now in itertools.pairwise(drawn):
        now[:] = np.clip(0.8 * before + 0.3 * generator.normal(size=8), -1, 1)
    angles = []
    for actions in (drawn, drawn[:, reflection.action_order] * reflection.action_signs):
        env = labkit.make_environment("MinitaurBulletEnv-v0", seed=seed)
        env.reset()
        for action in actions.astype(np.float32):
            step = env.step(action)
        angles.append(step.observation[:8])
    opposite = list(reflection.observation_order[:8])
    columns = {
        "angle, rad": angles[0],
        "opposite motor": np.array(MOTORS)[opposite],
        "its angle, reflected actions": angles[1][opposite],
    }
    return pd.DataFrame(columns, index=list(MOTORS)).round(2)


def observation_table(
    spec: "BoundedArraySpec", observation_scale: tuple[float, ...], observations: np.ndarray
) -> pd.DataFrame:
    """The groups of an observation: their bounds, how much they vary, and their divisor.

    An environment other than the Minitaur has one group, `observation`.

    Args:
        spec: of the observation `[obs] float32`.
        observation_scale: what the networks divide by, `[obs]`, or empty.
        observations: `[n, obs] float32`, such as `random_observations` returns.

    Returns:
        One row per group, with the columns numbers, unit, lowest, highest, varies by (the root mean
        square of the standard deviations of its numbers), divided by, quotient varies by.
    """
    size = int(spec.shape[0])
    known = sum(count for *_, count in OBSERVATION_GROUPS)
    groups = OBSERVATION_GROUPS if size == known else (("observation", "not known", size),)
    low, high = (np.broadcast_to(bound, size) for bound in (spec.minimum, spec.maximum))
    divisors = np.broadcast_to(np.asarray(observation_scale or 1.0, float), size)
    variance = observations.var(axis=0, dtype=float)
    rows, first = {}, 0
    for name, unit, count in groups:
        part = slice(first, first + count)
        spread, scaled = (
            float(np.sqrt(values[part].mean())) for values in (variance, variance / divisors**2)
        )
        extremes = (float(low[part].min()), float(high[part].max()))
        rows[name] = (count, unit, *extremes, spread, float(divisors[part].max()), scaled)
        first += count
    columns = ["numbers", "unit", "lowest", "highest"]
    columns += ["varies by", "divided by", "quotient varies by"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).round(2)


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
