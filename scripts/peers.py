"""Trains the peers on the Minitaur and writes their table: `make peers`.

python scripts/peers.py run                     the missing runs (about half an hour each)
python scripts/peers.py page                    results/minitaur/peers/README.md, and the study's page
"""

# ruff: noqa: E501 (the lines of the page)

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]
from benchmarks import implementations, side_by_side  # noqa: E402
from benchmarks.page_text import listed, markdown  # noqa: E402
from labkit.analysis import milestones, statistics  # noqa: E402
from labkit.parameters import grouped  # noqa: E402
from labkit.training import provenance  # noqa: E402

KEPT = ROOT / "results" / "minitaur" / "peers"
ENV_STEPS = 100_000  # of each run, warm-up included
WALKING = 10.0  # a mean return of a robot that walks
EARLIER = "-earlier"  # the end of a name
# Which peer, with which choices, and its seeds. "tuned": labkit's choices, as far as a peer has them.
# Their target entropy is -8, that of labkit's last earlier defaults. "earlier": what labkit chose
# before these, of which only these runs were made.
PLAN = {
    "sb3_sac-defaults": ("Stable-Baselines3 SAC, its defaults", (1,)),
    "sb3_sac-tuned": ("Stable-Baselines3 SAC, labkit's choices", (1, 2, 3)),
    "sbx_sac-tuned": ("SBX SAC, labkit's choices", (1, 2, 3)),
    "sbx_crossq-tuned": ("SBX CrossQ, critics of 256, labkit's choices", (1, 2, 3)),
    "sbx_sac-earlier": ("SBX SAC, labkit's earlier choices", (1, 2, 3)),
    "sbx_crossq-earlier": ("SBX CrossQ, critics of 256, labkit's earlier choices", (1, 2)),
}


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Runs what is missing, then writes the page."""
    if context.invoked_subcommand is None:
        side_by_side.invoke_each(context, run, page)


@main.command()
@click.option("--settings", type=click.Choice(list(PLAN)), help="Only this peer.")
@click.option("--seed", type=click.IntRange(min=0), help="Only this seed.")
@click.option(
    "--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Runs in parallel."
)
def run(settings: str | None, seed: int | None, workers: int) -> None:
    """Runs the planned runs without a result; each takes one core."""
    missing = [
        (name, number)
        for name, (_, seeds) in PLAN.items()
        for number in seeds
        if settings in (None, name)
        and seed in (None, number)
        and not file_of(name, number).exists()
    ]
    try:
        if missing:
            implementations.make_peers_venv()
    except implementations.UnavailableError as error:
        raise click.ClickException(str(error)) from None
    side_by_side.run_all(run_one, missing, workers)


def file_of(name: str, seed: int) -> Path:
    """Where the result of a run is tracked."""
    return KEPT / name / f"seed-{seed}.json"


def run_one(job: tuple[str, int]) -> str:
    """Runs a peer in its own process; returns why it failed, or nothing."""
    name, seed = job
    log = ROOT / "build" / "peers" / f"{name}-{seed}.log"
    command = [str(implementations.PEERS_PYTHON), "-m", "benchmarks.peer_study"]
    command += ["--settings", name, "--seed", str(seed), "--out", str(file_of(name, seed))]
    command += ["--made", json.dumps(provenance.describe())]
    variables = {"PYTHONWARNINGS": "ignore"}
    return side_by_side.run_logged(f"{name}, seed {seed}", command, log, ROOT, variables)


@main.command()
def page() -> None:
    """Writes the page from the tracked results."""
    (KEPT / "README.md").write_text(text(results()))
    click.echo(f"written: {(KEPT / 'README.md').relative_to(ROOT)}")
    study_page = [sys.executable, str(ROOT / "scripts" / "results.py"), "page"]
    if code := subprocess.run(study_page, check=False).returncode:
        raise SystemExit(code)


def results() -> list[dict[str, Any]]:
    """The tracked results, in the order of the plan."""
    files = [file_of(name, seed) for name, (_, seeds) in PLAN.items() for seed in seeds]
    return [json.loads(file.read_text()) for file in files if file.exists()]


def text(found: list[dict[str, Any]]) -> str:
    """The page."""
    done = {(one["settings"], one["seed"]) for one in found}
    missing = []
    for name, (label, seeds) in PLAN.items():
        left = [seed for seed in seeds if (name, seed) not in done]
        if left:
            missing.append(f"{label}, seed{'s' * (len(left) > 1)} {listed(left)}")
    made = sorted({made_with(one) for one in found})
    return f"""# Other libraries on the Minitaur

    make peers                          # runs what is missing, then writes this page, the study's page and README's table
    make peers ARGS=page                # the pages alone

Each run trains in the same registered environment for {grouped(ENV_STEPS)} env steps, with one gradient step for each env step after the warm-up. Then it
plays 20 deterministic episodes. "labkit's choices" (`-tuned`) are scaled observations, rewards × 20, five-step returns, γ = 0.995, a warm-up of 5 000 env steps, a
learning rate of 1e-3 that decays as in labkit, a target entropy of -8 and an initial log α of -4. labkit's target entropy was -8 when these runs were made; now it is -4. Their batches are drawn from all transitions alike, and no transition is reflected. "labkit's earlier choices" (`-earlier`) have a target entropy of -4 and a
scale of the observations that leaves angles and attitude small, as labkit's defaults had. In SBX, fewer rates decay: none in CrossQ, and in SAC not that of
the temperature. The rate of SAC's delayed actor decays by env steps; in labkit it decays by steps of the actor, which are half as many. SBX's SAC also has critics with layer
normalisation and a delayed actor. CrossQ normalises its critics and delays its actor by default. With its defaults, a
library uses unscaled observations and rewards, and a warm-up of 100 env steps. The scores of two seeds differ by several points, so three seeds
show large differences only. A run is evaluated on five episodes every 2 500 env steps. It has reached +10 if two consecutive evaluations have a
mean of at least 10; "steps to +10" is the env step of the first of the two. "Minutes" is the training time without evaluations; other runs used the
machine at the same time.

{table(found)}

"labkit's choices" were searched with labkit, on this robot; the other libraries were not tuned. [The study](../README.md#other-libraries-100-000-env-steps) has labkit's own runs, and the differences with their intervals.

Not run yet: {"; ".join(missing) or "nothing"}.

{chr(10).join(f"- {line}" for line in made)}
"""


def made_with(one: dict[str, Any]) -> str:
    """The versions, the commit and the CPU of a result."""
    versions = ", ".join(f"{name} {version}" for name, version in one["versions"].items())
    return f"{versions}; commit {one['commit']}, CPU {one['cpu']}"


def table(found: list[dict[str, Any]]) -> str:
    """One row per peer, every seed in it."""
    rows = []
    for name, (label, _) in PLAN.items():
        runs = [one for one in found if one["settings"] == name]
        if not runs:
            continue
        scores = final_returns(runs)
        rows.append(
            {
                "library": label,
                "seeds": ", ".join(str(one["seed"]) for one in runs),
                "returns": " ".join(f"{score:+.2f}" for score in scores),
                "mean": f"{np.mean(scores):+.2f}",
                "steps to +10": ", ".join(map(steps_to_walk, runs)),
                "minutes": ", ".join(f"{value:.0f}" for value in minutes(runs)),
            }
        )
    return markdown(pd.DataFrame(rows)) if rows else "No run yet."


def final_returns(runs: Sequence[dict[str, Any]]) -> list[float]:
    """Each run's mean return of its last evaluation."""
    return [float(np.mean(one["evaluations"][-1]["returns"])) for one in runs]


def runs_by_peer(found: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The runs of each peer that has one, by its label."""
    by_peer = {
        label: [one for one in found if one["settings"] == name]
        for name, (label, _) in PLAN.items()
    }
    return {label: runs for label, runs in by_peer.items() if runs}


def returns_by_peer(found: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """The final returns of each peer that has a run, by its label."""
    return {label: final_returns(runs) for label, runs in runs_by_peer(found).items()}


def minutes(runs: Sequence[dict[str, Any]]) -> list[float]:
    """Each run's minutes of training, without evaluations."""
    return [one["evaluations"][-1]["training_seconds"] / 60 for one in runs]


def section(own: Sequence[float]) -> str:
    """A section of the study's page: the table, and how labkit compares; or nothing.

    Args:
        own: final returns of labkit after as many env steps, with the target entropy of the peers.
    """
    found = results()
    if not found:
        return ""
    return f"""## Other libraries, {grouped(ENV_STEPS)} env steps

[Their page](peers/README.md) gives their settings, and what they share with labkit's.

{table(found)}

{differences(own, found)}
"""


def differences(own: Sequence[float], found: Sequence[dict[str, Any]]) -> str:
    """The difference of `own` to each library with several seeds, tested; or nothing.

    Runs with labkit's earlier choices are left out: not only the library differs.
    """
    present = [one for one in found if not one["settings"].endswith(EARLIER)]
    several = {name: runs for name, runs in returns_by_peer(present).items() if len(runs) > 1}
    if len(own) < 2 or not several:
        return ""
    compared = [statistics.mean_difference(own, runs) for runs in several.values()]
    corrected = statistics.holm([p for _, _, p in compared])
    lines = [
        f"- {name}: {difference:+.2f} (95 % interval {low:+.2f} to {high:+.2f}; p = {p:.2g} after Holm's correction)"
        for name, (difference, (low, high), _), p in zip(several, compared, corrected, strict=True)
    ]
    counts = (len(own), min(map(len, several.values())))
    power = statistics.power(2.0, (1.0, 1.0), counts, 0.05 / len(several))
    return f""""labkit's choices" include a target entropy of -8, as in labkit's earlier defaults `earlier-target-entropy-8` ({len(own)} seeds). These have a mean of {np.mean(own):+.2f}. This list gives their mean minus that of each library with labkit's choices and several
seeds, with Welch's t-test. More than the library differs: labkit also draws half of each batch from the newest transitions and reflects every second one, and its critics have layer normalisation, which those of Stable-Baselines3 lack ([their page](peers/README.md)). Runs with labkit's earlier choices are left out, because they differ in still more. How the machines of the other libraries round is not known, so each test may also compare different machines.
A true difference of two standard deviations would be detected with a probability of {power:.0%} by the strictest of these tests, so a large p-value does not show that two libraries are equal.

{chr(10).join(lines)}"""


def steps_to_walk(one: dict[str, Any]) -> str:
    """See `milestones.sustained`, of the interim evaluations; – where there is none."""
    interim = one["evaluations"][:-1]
    means = [float(np.mean(row["returns"])) for row in interim]
    step = milestones.sustained([row["env_step"] for row in interim], means, WALKING)
    return "–" if step is None else grouped(step)


if __name__ == "__main__":
    main()
