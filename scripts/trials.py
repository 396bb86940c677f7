"""Writes the page of the trials: runs that were made while the defaults were chosen.

python scripts/trials.py                        results/minitaur/trials/README.md

A trial's folder holds its `config.json` and its `metrics.csv`. They may name parameters that
labkit no longer has, so they are read as plain files.
"""

# ruff: noqa: E501 (the lines of the page)

import json
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]
from benchmarks.page_text import markdown  # noqa: E402
from labkit.analysis import compare, milestones  # noqa: E402
from labkit.analysis.choices import setting_fields, with_one_rate  # noqa: E402
from labkit.config import ADDED, ADDED_IN, SACConfig  # noqa: E402
from labkit.parameters import brief, grouped  # noqa: E402

TRIALS = ROOT / "results" / "minitaur" / "trials"
SMALL = TRIALS.with_name("study") / "small-table"
# Parameters that labkit no longer has, or never had, with the value that changes nothing.
OTHER_CODE = {"greedy_share": 0.0, "warm_up_correlation": 0.0}
# Trials whose commit has changes that training does not use, by their folders. In any other trial
# of changed code, `changed_code.txt` says what it changed.
UNCHANGED_TRAINING = {
    "averaged-policy": "none in training; averages of the actor were evaluated, too",
    "target-entropy-8": "none in training",
    "target-entropy-12": "none in training",
}


# In these, the wrapped environment counted actions: the env steps of each.
ENV_STEPS_PER_COUNT = {folder.name: 2 for folder in TRIALS.glob("action-repeat*")} | {
    "action-repeat-4_target-entropy-8_two-gradient-steps": 4,
    "action-repeat_target-entropy-8_every-step-stored": 1,
}
# In these, one counted gradient step was several.
GRADIENT_STEPS_PER_COUNT = {"four-gradient-steps-of-64": 4, "small-table_two-gradient-steps": 2}


def read(folder: Path) -> tuple[dict[str, Any], pd.DataFrame]:
    """`config.json` of a trial, and its evaluations with a list of returns each."""
    content = json.loads((folder / "config.json").read_text())
    rows = pd.read_csv(folder / "metrics.csv", dtype={"eval_returns": str})
    rows = rows[rows.eval_returns.notna()]
    returns = [[float(value) for value in text.split()] for text in rows.eval_returns]
    env_steps = rows.env_step * ENV_STEPS_PER_COUNT.get(folder.parent.name, 1)
    gradient_steps = rows.gradient_step * GRADIENT_STEPS_PER_COUNT.get(folder.parent.name, 1)
    return content, pd.DataFrame(
        {"env_step": env_steps, "gradient_step": gradient_steps, "returns": returns}
    )


def short(commit: str | None) -> str:
    """Seven digits of a commit, and whether its files were changed."""
    if not commit:
        return "not recorded"
    return commit[:7] + ("-dirty" if commit.endswith("-dirty") else "")


def ratio(rows: pd.DataFrame) -> float:
    """The update-to-data ratio: gradient steps for each env step after the warm-up."""
    first, last = rows.iloc[0], rows.iloc[-1]
    taken = last.gradient_step - first.gradient_step
    return float(taken / max(last.env_step - first.env_step, 1))


def row(folder: Path) -> dict[str, str]:
    """The row of one trial."""
    content, rows = read(folder)
    means = np.array([np.mean(values) for values in rows.returns])
    last = rows.iloc[-1]
    walks = milestones.sustained(rows.env_step.tolist(), means.tolist(), 10.0)
    values = content["config"]
    return {
        "folder": f"`{folder.parent.name}`",
        "differs from the defaults in": setting(values),
        "change of the code": change(folder.parent),
        "gradient steps per env step": f"{ratio(rows):.3g}",
        "seed": str(values["seed"]),
        "env steps": grouped(int(last.env_step)),
        "return": f"{means[-1]:+.2f} ({len(last.returns)} episodes)",
        "best evaluation": f"{means.max():+.2f}",
        "steps to +10": "–" if walks is None else grouped(walks),
        "commit": short(content.get("commit")),
        "CPU": str(content.get("cpu") or "not recorded"),
    }


def change(folder: Path) -> str:
    """What the code of a trial changed, or nothing."""
    file = folder / compare.CHANGED_CODE
    return file.read_text().strip() if file.exists() else UNCHANGED_TRAINING.get(folder.name, "")


def setting(values: dict[str, Any]) -> str:
    """The parameters that differ from labkit's defaults now, as in `n_step 8; gamma 0.995`."""
    present = setting_fields(SACConfig(), {}) | OTHER_CODE
    given = with_one_rate({**ADDED, **ADDED_IN[SACConfig().env_name], **values})
    names = sorted(name for name in present if name in given)
    return "; ".join(
        f"{name} {named(given[name])}"
        for name in names
        if not np.array_equal(given[name], present[name])
    )


def named(value: Any) -> str:
    """A value of a parameter; in `config.json`, a tuple is a list."""
    return brief(tuple(value)) if isinstance(value, list) else str(value)


def average() -> str:
    """How the averaged policy scored next to the newest one, after the first 10 000 env steps."""
    table = pd.read_csv(TRIALS / "averaged-policy" / "seed-0" / "average.csv")
    learned = table[table.env_step > 10_000]
    newest = learned.drop_duplicates("env_step").newest
    means = learned.groupby("tau").average.mean()
    parts = " and ".join(f"{value:+.2f} (share {tau:g})" for tau, value in means.items())
    return (
        f"Over the {len(newest)} evaluations after the first 10 000 env steps, the newest actor had a mean return of {newest.mean():+.2f}, and the averages had {parts}. "
        f"The largest difference of these means is {(means - newest.mean()).abs().max():.2f}. The average was not kept."
    )


def final(name: str, seed: int) -> str:
    """The mean return of the last evaluation of a trial, which is in the folder `name`."""
    _, rows = read(TRIALS / name / f"seed-{seed}")
    return f"{np.mean(rows.returns.iloc[-1]):+.2f}"


def small_tables() -> str:
    """What the trials with a smaller replay table gave."""
    shorter = [at(60_000, "capacity-20000", seed) for seed in (21, 22, 23)]
    return (
        "A transition sums five rewards of the policy that collected it, and nothing corrects them for a later policy. So a table of 1 000 000 "
        "transitions, which never drops one here, holds mostly the rewards of weaker policies. With the newest 20 000 transitions alone, three seeds had "
        f"{', '.join(shorter[:-1])} and {shorter[-1]} (seeds 21 to 23) after 60 000 env steps, and the last of them {at(100_000, 'capacity-20000', 23)} after 100 000. "
        f"With the newest 10 000, one seed learned as fast, but fell at once in an evaluation on the way. With the mean of the critics in place of their minimum, a run was at {at(35_000, 'capacity-20000_mean-of-critics', 23)} after 35 000 env steps and was stopped. "
        f"With 20 000 transitions and a target entropy of -8, two seeds had {at(60_000, 'capacity-20000_target-entropy-8', 25, True)} and {at(60_000, 'capacity-20000_target-entropy-8', 26, True)} "
        f"(seeds 25 and 26) after 60 000 env steps, {at(100_000, 'capacity-20000_target-entropy-8', 25)} and {at(100_000, 'capacity-20000_target-entropy-8', 26)} after 100 000. "
        f"{early_falls()} So collected episodes of 250 env steps were tried, which have more beginnings. Early falls became rare, but some robots fell later than 250 env steps, which no training episode reaches."
    )


def from_small_table() -> str:
    """What the trials gave that changed the study's setting `small-table` once more."""
    return (
        "The study has these two changes together as the setting `small-table`. Four runs changed it once more and were stopped: one with collected episodes of 500 env steps "
        f"(mean return {final('small-table_episodes-of-500', 34)} in the last evaluation), one with two gradient steps per env step ({final('small-table_two-gradient-steps', 33)}), "
        f"one with two env steps for each action ({final('small-table_action-repeat-2', 41)}), and one with a warm-up of 1 000 env steps ({final('small-table_warm-up-1000', 35)}). "
        "None of them learned clearly faster. "
        "Seed 1 of `small-table` still fell in some evaluations after 60 000 env steps, often in the first 160 env steps of the episode. Two copies of its checkpoint continued from there with shorter collected episodes, "
        f"which have more beginnings. In the evaluations up to 77 500 env steps, {falls(TRIALS / 'small-table_later-episodes-of-500', 1, 62_500, 77_500)} episodes ended in a fall with 500 env steps, {falls(TRIALS / 'small-table_later-random-truncation', 1, 62_500, 77_500)} "
        f"with a truncation at random, and {falls(SMALL, 1, 62_500, 77_500)} in the run itself. "
        f"Seed 3 of `small-table` fell about as often: in {falls(SMALL, 3, 20_000, 100_000)} evaluation episodes from 20 000 env steps on, seed 1 in {falls(SMALL, 1, 20_000, 100_000)}. "
        "Then half of each batch was drawn from the newest 20 000 transitions and half from all (in the trials, from up to 200 000 in TF-Agents' buffer): "
        f"in the evaluations from 20 000 env steps on, {falls(TRIALS / 'recent-half', 3, 20_000, 60_000)} episodes of seed 3 ended in a fall, and {falls(SMALL, 3, 20_000, 60_000)} of the same seed with `small-table`. Of seed 1, {falls(TRIALS / 'recent-half', 1, 20_000, 52_500)} fell up to 52 500 env steps, and {falls(SMALL, 1, 20_000, 52_500)} with `small-table`. "
        f"In this trial, the last evaluation of seed 3 had {final('recent-half', 3)}, that of seed 1 {final('recent-half', 1)}. With a target entropy of -4, seed 3 learned more slowly and was stopped. So this half became a default, at that time with a target entropy of -8; now it is -4 ([why](../README.md#how-the-plan-changed))."
    )


def scale_and_reflection() -> str:
    """What the trials gave that led to the present observation scale and to the reflection."""
    old, new, half = "defaults-stopped-again", "observation-scale", "reflection"
    both = "observation-scale_reflection"
    return (
        "With the observation scale of the trials above, the motor angles and x, y and z of the quaternion vary little after the division: by about a tenth of what the motor velocities do. The present scale divides them by less. "
        f"After 20 000 env steps, seed 1 had {at(20_000, new, 1)} with the present scale and {at(20_000, old, 1)} with the earlier one. After 12 500, seed 2 had {at(12_500, new, 2)} and {at(12_500, old, 2)}; with the present scale it reached {at(45_000, new, 2)} after 45 000. "
        "The Minitaur is symmetric, so every second transition of a batch can be reflected: left and right are swapped (Mishra et al., 2019). "
        f"With the reflection and the earlier scale, seed 2 had {at(20_000, half, 2)} after 20 000 and {at(27_500, half, 2)} after 27 500. "
        f"With both, seed 1 had {at(20_000, both, 1)} after 20 000 and {at(35_000, both, 1)} after 35 000. Seed 2 had {at(17_500, both, 2)} after 17 500, but {at(20_000, both, 2)} after 20 000; with the scale alone it had {at(20_000, new, 2)} there. "
        "Both became defaults. In these trials, the evidence for the reflection is one seed. The study tested it with five seeds each, at a target entropy of -8 (`earlier-target-entropy-8_no-symmetry_augmentation`); the evidence is still weak. "
        f"With the present scale, no reflection, and batches drawn from all transitions alike, seed 2 had {at(27_500, 'observation-scale_all-alike', 2)} after 27 500 env steps."
    )


def falls(place: Path, seed: int, first: int, last: int) -> str:
    """How many episodes of a run's evaluations between two env steps ended in a fall."""
    rows = pd.read_csv(place / f"seed-{seed}" / "metrics.csv")
    rows = rows[rows.env_step.between(first, last)].eval_lengths.dropna()
    lengths = np.array([float(length) for row in rows for length in row.split()])
    return f"{(lengths < 1000).sum()} of {len(lengths)}"


def early_falls() -> str:
    """How many falls in the evaluations of `earlier-uniform` happened soon after a reset."""
    lengths = {
        file.parent.name: [
            float(length)
            for row in pd.read_csv(file).query("env_step >= 20_000").eval_lengths.dropna()
            for length in row.split()
        ]
        for file in TRIALS.with_name("study").glob("earlier-uniform/*/metrics.csv")
    }
    every = np.concatenate([*lengths.values()])
    parts = [
        f"{(ends <= 80).sum()} of {(ends < 1000).sum()} falls"
        for ends in (every, np.array(lengths["seed-19"]))
    ]
    return (
        f"In the evaluations of `earlier-uniform` in [the study](../README.md) from 20 000 env steps on, {parts[0]} happened in the first 80 env steps of the episode; "
        f"in the weakest run, seed 19, {parts[1]}."
    )


def at(env_step: int, name: str, seed: int, count: bool = False) -> str:
    """The mean return of a trial's last evaluation at this env step; with `count`, its episodes."""
    _, rows = read(TRIALS / name / f"seed-{seed}")
    returns = rows[rows.env_step == env_step].returns.iloc[-1]
    return f"{np.mean(returns):+.2f}{f' ({len(returns)} episodes)' if count else ''}"


def repeated_actions() -> str:
    """What the trials gave in which an action lasts several env steps."""
    scores = [final("action-repeat_target-entropy-8", seed) for seed in (1, 5, 7)]
    return (
        "With two env steps for each action and a target entropy of -8, three of four seeds had "
        f"{', '.join(scores[:-1])} and {scores[-1]} (seeds 1, 5 and 7) after 60 000 env steps, with half of the usual gradient steps. "
        f"Seed 6 had {final('action-repeat_target-entropy-8', 6)}: its robot kept falling. None of these changes helped seed 6: two gradient steps for each action, "
        "four env steps for each action, the mean of the critics in place of their minimum, an entropy term that is 0 at the target entropy "
        "(so that a low entropy is no penalty for each step in which the robot stays upright), a target entropy of -4, a longer horizon. "
        "With one env step for each action, seed 6 did learn. "
        "In [the study](../README.md), the setting `action-repeat-2` is this one. One of its three seeds scored far below the others, too. So the default is one env step; the parameter "
        "`action_repeat` sets another number."
    )


def page() -> str:
    """The page: one row for each trial, in the order of their settings."""
    rows = [row(file.parent) for file in sorted(TRIALS.glob("*/*/config.json"))]
    return f"""# Trials on the Minitaur

    .venv/bin/python scripts/trials.py              # writes this page from the runs in this folder

This page lists runs that were made while the defaults were chosen, and later, while better ones were sought. Each run had one core, while other programs ran on the machine. The scores of two
seeds differ by several points, so these runs do not rank the settings. [The study](../README.md) has runs of the defaults.

Every 2 500 env steps, a run is evaluated on five episodes. It has reached +10 if two consecutive evaluations have a mean of at least 10; "steps to +10"
is the env step of the first of the two. A run whose last evaluation has fewer than 20 episodes was stopped before its end.
Some commits are not in the history. bd28832 is one of those that the study names; each of the others was made for one trial, and "change of the code" says what it changed.
The runs of `defaults-stopped` and `defaults-stopped-again` had the defaults of their time, with half of each batch from the newest 20 000 transitions. They were stopped for lack of time, or when another trial learned faster.
The observation scale (8 × 3.14, 8 × 20, 8 × 5.7, 4 × 1) is that of earlier defaults.

Some trials used code that labkit no longer has. `warm_up_correlation` is the correlation between successive random actions of the warm-up.
`greedy_share`, a parameter of labkit 0.1, is the share of the collected episodes that were deterministic. Two gradient steps per env step, and actions of several
env steps, needed a change of the code, and so did the first trials with reflected transitions. If an action lasts several env steps in the code of a trial, `gamma`, `n_step` and `initial_collect_steps` count actions; in labkit's parameters, only `n_step` does.

Most trials began from the defaults of their time, `earlier-uniform` in [the study](../README.md): each batch is drawn from all transitions alike, and the target entropy is -4. One change of a single parameter was a lower target entropy: -8 (minus one nat for each dimension of the action, as in Haarnoja et al., 2018) in place of -4. Two seeds that learn slowly with
`earlier-uniform`, 6 and 7, had {final("target-entropy-8", 6)} and {final("target-entropy-8", 7)} with it after 60 000 env steps. But runs of the same two seeds in the study, as the setting `target-entropy-8`, gained less: two runs of one seed differ by as much as
the gain.

{repeated_actions()}

{small_tables()}

{from_small_table()}

{scale_and_reflection()}

The trial `averaged-policy` also evaluated an exponential average of the actor's weights, on the same episodes as the newest actor. In each gradient step,
the newest weights had a share of 0.005 or 0.001 in the average. [average.csv](averaged-policy/seed-0/average.csv) has the returns.
{average()}

{markdown(pd.DataFrame(rows))}
"""


@click.command()
def main() -> None:
    """Writes the page of the trials, results/minitaur/trials/README.md."""
    (TRIALS / "README.md").write_text(page())
    click.echo(f"written: {TRIALS.name}/README.md")


if __name__ == "__main__":
    main()
