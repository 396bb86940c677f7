"""Plays the tracked policies of the Minitaur under disturbances: `make robustness`.

python scripts/robustness.py                    the missing episodes, then the page and its figure
python scripts/robustness.py page               results/minitaur/robustness/README.md and its figures

What was played is kept in episodes.csv after each episode: the command resumes where it stopped.
"""

# ruff: noqa: E501 (the lines of the page)

import csv
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import pandas as pd
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]
from benchmarks.page_text import listed, markdown  # noqa: E402
from labkit.analysis import robustness, robustness_plots  # noqa: E402
from labkit.analysis.robustness import FACTORS  # noqa: E402
from labkit.plotting import style  # noqa: E402
from labkit.training import saved_weights  # noqa: E402
from labkit.training.run_directory import TRACKED_POLICY  # noqa: E402

KEPT = ROOT / "results" / "minitaur" / "robustness"
# The best of three runs each: of labkit's earlier defaults with a target entropy of -8 after
# 300 000 env steps, and of labkit 0.1.
POLICIES = (KEPT.with_name(TRACKED_POLICY.name), KEPT.with_name("v0.1") / "best")
PLANNED = 20  # episodes of each condition
EPISODES_FILE = KEPT / "episodes.csv"


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Plays what is missing, then writes the page."""
    if context.invoked_subcommand is None:
        context.invoke(play)
        context.invoke(page)


@main.command()
@click.option(
    "--episodes",
    type=click.IntRange(min=1),
    default=PLANNED,
    show_default=True,
    help="Episodes of each condition.",
)
def play(episodes: int) -> None:
    """Plays the missing episodes of each policy in one process, some seconds each."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for folder in POLICIES:
        player = robustness.Player(folder)
        played = robustness.read(EPISODES_FILE)
        todo = list(robustness.missing(played, player.weights, episodes))
        click.echo(f"{folder.name}: {len(todo)} episodes to play")
        for place, (condition, seed) in enumerate(todo, start=1):
            append(player.play(condition, seed))
            if place % 50 == 0:
                click.echo(f"{folder.name}: {place} of {len(todo)}")


def append(row: dict[str, Any]) -> None:
    """Adds an episode to the file, which begins with the names of the columns."""
    new = not EPISODES_FILE.exists()
    with EPISODES_FILE.open("a", newline="") as file:
        writer = csv.DictWriter(file, robustness.COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


@main.command()
def page() -> None:
    """Writes the page and a figure for each policy from the episodes that were played."""
    written, figures = contents(robustness.read(EPISODES_FILE))
    (KEPT / "README.md").write_text(written)
    for name, figure in figures.items():
        (KEPT / name).write_bytes(style.png_of(figure))
    click.echo("written: results/minitaur/robustness/README.md")


def contents(played: pd.DataFrame) -> tuple[str, dict[str, Figure]]:
    """The page, and its figures by file name."""
    mass = robustness.base_mass_kg()
    groups = {folder: of(folder, played) for folder in POLICIES}
    groups = {folder: own for folder, own in groups.items() if not own.empty}
    figures = {
        f"{folder.name}.png": robustness_plots.card(
            own, mass, f"the policy {name_of(folder)} under disturbances"
        )
        for folder, own in groups.items()
    }
    parts = [
        section(folder, own, style.describe(figure))
        for (folder, own), figure in zip(groups.items(), figures.values(), strict=True)
    ]
    return text(parts, comparison(groups), outside(played), mass), figures


def outside(played: pd.DataFrame) -> str:
    """The episodes that no table shows: of policies or values that are no longer part of this."""
    now = [saved_weights.fingerprint(folder) for folder in POLICIES]
    old = ~played.weights.isin(now)
    shown = pd.MultiIndex.from_frame(played[["factor", "value"]]).isin(robustness.conditions())
    counts = played.weights[old].value_counts(sort=False)
    found = [f"{count} of {earlier_policy(weights)}" for weights, count in counts.items()]
    if values := (~old & ~shown).sum():
        found.append(f"{values} of values that are no longer in the grid")
    return listed(found) if found else "none"


def earlier_policy(weights: str) -> str:
    """A policy by its folder, if it is still there, and its weights."""
    for folder in sorted(KEPT.parent.glob("*/policy")):
        if saved_weights.fingerprint(folder.parent) == weights:
            name = folder.parent.name
            return f"[{name}](../{name}/README.md) (weights {weights})"
    return f"a policy with the weights {weights}"


def of(folder: Path, played: pd.DataFrame) -> pd.DataFrame:
    """The episodes of a policy."""
    return played[played.weights == saved_weights.fingerprint(folder)]


def comparison(groups: dict[Path, pd.DataFrame]) -> str:
    """A table: where each policy breaks, one row per disturbance."""
    tables = {folder: robustness.summary(own) for folder, own in groups.items()}
    rows = [
        {
            "disturbance": factor.label,
            **{
                f"`{name_of(folder)}`": robustness.breaks_at(factor, table)
                for folder, table in tables.items()
            },
        }
        for factor in FACTORS
    ]
    return markdown(pd.DataFrame(rows))


def section(folder: Path, own: pd.DataFrame, alt: str) -> str:
    """Figure, sentences and table of one policy; `alt` describes the figure."""
    table = robustness.summary(own)
    fewest, most = table.episodes.min(), table.episodes.max()
    counts = f"{fewest} episodes of each condition"
    if fewest < most:
        counts = f"{fewest} to {most} episodes of each condition"
    if fewest < PLANNED:
        counts += f"; {PLANNED} are planned, and `make robustness` resumes"
    sentences = "\n".join(f"- {robustness.verdict(factor, table)}" for factor in FACTORS)
    return f"""## The policy `{name_of(folder)}`

Weights {own.weights.iloc[0]}, {counts}.

![{alt}]({folder.name}.png)

{sentences}

{markdown(pd.DataFrame([shown(row) for row in table.itertuples()]))}
"""


def name_of(folder: Path) -> str:
    """`best-300000` or `v0.1/best`."""
    return folder.relative_to(KEPT.parent).as_posix()


def shown(row: Any) -> dict[str, str]:
    """A row of the table in the page."""
    label = next(factor.label for factor in FACTORS if factor.name == row.factor)
    return {
        "disturbance": label,
        "value": f"{row.value:g}",
        "IQM of the return": f"{row.iqm:+.2f}",
        "nominal 95 % interval": robustness.interval(row).removeprefix("interval "),
        "mean": f"{row.mean:+.2f}",
        "falls": f"{row.falls:.0%}",
        "distance": f"{row.distance:.1f} m",
        "episodes": str(row.episodes),
    }


def text(parts: list[str], comparison: str, others: str, mass: float) -> str:
    """The page."""
    drawn = robustness.domain_randomisation()
    ranges = [
        {"drawn at each reset": r.what, "from": f"{r.low:g}", "to": f"{r.high:g}", "unit": r.unit}
        for r in drawn
    ]
    payload, friction = (robustness.covered(FACTORS[n], mass) or (0, 0) for n in (0, 1))
    return f"""# How robust is the walking?

    make robustness                           # plays what is missing, some seconds an episode; then this page
    make robustness ARGS=page                 # this page and its figures from episodes.csv

Here two policies control a robot that is disturbed in one way at a time: [the best of three runs](../{TRACKED_POLICY.name}/README.md) of 300 000 env steps, with a target entropy of -8 and otherwise labkit's defaults, and
[the best one of labkit 0.1](../v0.1/best/README.md). They are not trained further. Every episode is in
[episodes.csv](episodes.csv). Each condition has the same seeds, from {robustness.FIRST_SEED} on; a seed fixes the robot that the environment draws.
The policy takes its mean action, except in the conditions of "sampling temperature". These add the policy's own noise, multiplied by the
temperature. At a temperature of 1, the policy samples as in training.

**The environment's own domain randomisation stays on**, because the policies were trained and scored with it: at each reset, the
environment draws some properties of the robot at random. A disturbance is applied to the drawn values. pybullet {metadata.version("pybullet")} draws these values,
uniformly and independently:

{markdown(pd.DataFrame(ranges))}

So training covered payloads up to {payload[1]:.1f} kg (the base has {mass:g} kg) and friction factors from {friction[0]:.2f} to {friction[1]:.2f}; grey bands in the figure mark these ranges.
(A value counts as covered if the disturbance leaves the midpoint of the drawn range within that range.) Training covered no weak motors: voltage and
damping change the torque of a partial command or of a turning motor, but not the largest torque, 3.5 N m. It also covered no noisy sensors and no late commands.

- The payload is added to the mass of the base, in kg. The foot friction is a factor on the drawn coefficient, the motor strength a factor on the torque.
- The observation noise is normal. Its standard deviation is a share of 3.14 rad for angles, 20 rad/s for velocities, 5.7 N m for torques, and 1 for the
  quaternion.
- The control latency is the time from the choice of an action until the motors receive it. An env step lasts 10 ms, a physics step 2 ms.

Both policies had 300 000 env steps of training, and seed 1. They differ in the hyperparameters and in the version of labkit, and they were trained and played
on different machines. So the page does not show which of these causes a difference in robustness.

The intervals are bootstrap intervals of the interquartile mean (IQM) over the episodes. They describe the variation between episodes of one policy, not
between seeds of training. A policy "breaks" where its whole interval is below {robustness.BROKEN:.0%} of the undisturbed IQM. Fewer than five episodes
give no interval. The policy then breaks where the return of every episode is below that threshold.
A fall is an episode of fewer than {robustness.FULL_LENGTH} steps. episodes.csv also has episodes of earlier tracked policies or conditions, which the tables leave out: {others}.

## Where the policies break

{comparison}

{chr(10).join(parts)}"""


if __name__ == "__main__":
    main()
