"""Writes the page of `make standard`; every number in it is computed from tracked files."""

# ruff: noqa: E501 (the lines of the page)

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from trials import read

from benchmarks import standard_plan
from benchmarks.page_text import counted, listed, markdown
from labkit.analysis import statistics
from labkit.config import SACConfig
from labkit.parameters import grouped
from labkit.plotting import run_plots, style

# In requirements.lock when the runs were made that did not record these.
LOCKED = "gymnasium 1.3.0, mujoco 4.0.0"
SOURCE_REPOSITORY = "https://github.com/dojeon-ai/SimbaV2"
SOURCE_COMMIT = "14fafb27e6f78f0b65d19b8873b4433547a2193c"
SOURCE_PATH = "results/baseline/sac.csv"
SOURCE = f"{SOURCE_REPOSITORY}, {SOURCE_PATH} in commit {SOURCE_COMMIT}"
SOURCE_LICENCE = "Apache License 2.0"
SOURCE_EVERY = 16_666  # env steps between two points of its curves
STEPS_PER_CALL = SACConfig().steps_per_call
LEVEL = 0.05  # of the tests
COLORS = dict(
    zip(
        standard_plan.LABELS,
        (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, "#E69F00"),
        strict=True,
    )
)
Scores = Mapping[tuple[str, str], Sequence[float]]  # (settings, env) → a return for each seed


@attrs.frozen(eq=False)
class TrackedRun:
    """A run in the repository.

    Attributes:
        settings: a key of `standard_plan.LABELS`.
        env: id of its environment in Gymnasium.
        name: of its folder, such as `seed-1` or `seed-1-replaced-1`.
        content: what its `config.json` holds.
        rows: its evaluations: `env_step`, and `returns`, a list of each episode's.
    """

    settings: str
    env: str
    name: str
    content: dict[str, Any]
    rows: pd.DataFrame

    @property
    def score(self) -> float | None:
        """Mean return of the final evaluation; None for a run without one."""
        last = self.rows.iloc[-1]
        return float(np.mean(last.returns)) if is_final(last) else None

    @property
    def replaced(self) -> bool:
        """Whether another run has taken its place."""
        return "replaced" in self.name


def is_final(row: pd.Series, steps: int = standard_plan.ENV_STEPS) -> bool:
    """Whether an evaluation is the one after the last env step."""
    return bool(row.env_step == steps and len(row.returns) >= standard_plan.FINAL_EPISODES)


def find(folder: Path) -> list[TrackedRun]:
    """All runs in `folder`, the replaced ones included, in the order of the plan."""
    return [
        TrackedRun(settings, env, file.parent.name, *read(file.parent))
        for env in standard_plan.ACTIONS
        for settings in standard_plan.LABELS
        for file in sorted((folder / settings / env).glob("seed-*/metrics.csv"))
    ]


def read_reference(folder: Path) -> pd.DataFrame:
    """The published curves: `env_name`, `seed`, `env_step` and `return`."""
    return pd.read_csv(folder / "reference.csv", comment="#")


def published_scores(reference: pd.DataFrame, env: str) -> np.ndarray:
    """The published returns at the last env step, `[seeds]` float64."""
    rows = reference[reference.env_name == env]
    return rows["return"][rows.env_step == rows.env_step.max()].to_numpy()


def spread(values: np.ndarray) -> tuple[float, float]:
    """Mean − 2 and mean + 2 sample standard deviations."""
    mean, twice = float(np.mean(values)), 2 * float(np.std(values, ddof=1))
    return mean - twice, mean + twice


def scores_of(runs: Sequence[TrackedRun]) -> dict[tuple[str, str], list[float]]:
    """The final returns of the finished runs, without replaced ones."""
    found: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        if run.score is not None and not run.replaced:
            found.setdefault((run.settings, run.env), []).append(run.score)
    return found


# --- the page


def text(runs: Sequence[TrackedRun], reference: pd.DataFrame) -> str:
    """The page."""
    scores = scores_of(runs)
    missing = [
        f"{settings} on {env} ({len(scores.get((settings, env), ()))} of {len(standard_plan.SEEDS)} seeds)"
        for settings in standard_plan.PLANNED
        for env in standard_plan.ACTIONS
        if len(scores.get((settings, env), ())) < len(standard_plan.SEEDS)
    ]
    power = statistics.power(2.0, (1.0, 1.0), len(standard_plan.SEEDS), LEVEL)
    return f"""# SAC on standard robots, next to published curves

This page compares labkit's SAC with published curves and with Stable-Baselines3, on HalfCheetah, Hopper and Walker2d.{f"{chr(10)}Not run yet: {'; '.join(missing)}." if missing else ""}

    make standard                       # runs what is missing, then writes this page
    make standard ARGS=page             # the page alone
    .venv/bin/python scripts/standard.py reference FILE     # rewrites reference.csv from SimbaV2's {SOURCE_PATH}

For the Minitaur we know of two published SAC curves, each of one run: that of TF-Agents' tutorial, where the robot does not walk, and [one](https://github.com/Rafael1s/Deep-Reinforcement-Learning-Algorithms/tree/master/Minitaur-Soft-Actor-Critic) that reaches +15.10 after about 550 000 env steps. For these three robots
there are published SAC curves with several seeds. Far lower returns would show that labkit's SAC is wrong, or only tuned to one robot.

Each run takes {grouped(standard_plan.ENV_STEPS)} env steps in an environment of Gymnasium. The first {grouped(standard_plan.WARM_UP)} have random actions; each later env step is followed by one gradient step. The score of a
run is the mean return of {standard_plan.FINAL_EPISODES} deterministic episodes after the last env step. Its curve shows the mean return of {standard_plan.EVAL_EPISODES} deterministic episodes every
{grouped(standard_plan.EVAL_EVERY)} env steps.

{chr(10).join(verdict(env, scores, published_scores(reference, env)) for env in standard_plan.ACTIONS)}

The published spread is that of single seeds, and a mean of three seeds is rarely outside such a spread. So only a large fault would be noticed by that. The intervals (Welch's, not corrected for their number) are stricter.{lower(scores, reference)}

Two pairs of settings are compared with a test. The section "The settings" explains each setting.

{comparison("published", standard_plan.SB3, scores)}
{comparison("improved", "published", scores)}

With {len(standard_plan.SEEDS)} seeds in each group, Welch's test at a level of {LEVEL:g} detects a true difference of two standard deviations with a probability of {power:.0%}.
Holm's correction makes this probability smaller. So a test without a significant difference does not show that two settings are equal.

![Return over env steps on the three robots: published curves with their spread, labkit and Stable-Baselines3](curves.png)

{means(scores, reference)}

## The settings

`published` and `sb3` have the hyperparameters of Haarnoja et al. (2018), appendix D. The published curves may come from other hyperparameters: see below. The hyperparameters are one-step transitions, learning rates of {standard_plan.RATE:g}, two hidden layers
of 256 units without layer norm, batches of {standard_plan.PUBLISHED["batch_size"]}, τ = {standard_plan.PUBLISHED["target_update_tau"]:g}, γ = {standard_plan.PUBLISHED["gamma"]:g}, reward scale 1, a learned temperature from log α = 0, and a target entropy of −1 nat for
each dimension of the action. [`benchmarks/standard_plan.py`](../../benchmarks/standard_plan.py) passes the same values to both libraries. labkit's local executor
takes gradient steps while it collects, so the policy that collects may lag the learner by up to {STEPS_PER_CALL} gradient steps. Stable-Baselines3 always collects with the newest policy.

{settings_lines()}

The name `improved` was given before its runs; the table above shows where it scores less.

## The published curves

[reference.csv](reference.csv) has the returns of {seeds_of(reference)} seeds from [SimbaV2's repository]({SOURCE_REPOSITORY}), `{SOURCE_PATH}` in commit `{SOURCE_COMMIT[:7]}`
({SOURCE_LICENCE}). Their last point before {grouped(standard_plan.ENV_STEPS)} env steps is at {grouped(int(reference.env_step.max()))}. Neither SimbaV2's README nor the file says how the runs were made.

The curves have a point every {grouped(SOURCE_EVERY)} env steps. `train.py` of [CrossQ](https://github.com/adityab/CrossQ) evaluates at the same interval (5 000 000 // 300), so the curves probably come from there; this is
an inference. `train.py` takes {grouped(standard_plan.WARM_UP)} random env steps, and plays one deterministic episode for each evaluation. CrossQ's `slurm/submit_everything.sh` sets learning rates of
0.001 for the SAC baseline. If the curves do come from CrossQ, two things follow. Each point is the return of one episode, so the spread includes the noise of single
episodes. And the learning rate was 0.001, not {standard_plan.RATE:g}. The setting `rate-0.001` is labkit with that higher rate. It and `delayed` are run only if a difference needs
an explanation; they are not part of the plan.

## Every run

{every_run(runs)}

## Packages

{packages(runs)}
"""


def settings_lines() -> str:
    """One line for each of the settings."""
    return "\n".join(f"- `{name}`: {label}." for name, label in standard_plan.LABELS.items())


def seeds_of(reference: pd.DataFrame) -> int:
    """How many seeds each published curve has.

    Raises:
        ValueError: the environments differ.
    """
    (count,) = set(reference.groupby("env_name").seed.nunique())
    return int(count)


def verdict(env: str, scores: Scores, published: np.ndarray) -> str:
    """The sentence on one environment: the published settings inside or outside the spread."""
    low, high = spread(published)
    bounds = (
        f"the published spread (mean ± 2 sd over {len(published)} seeds: {low:.0f} to {high:.0f})"
    )
    ours = scores.get(("published", env), ())
    if len(ours) < len(standard_plan.SEEDS):
        return (
            f"- **{env}**: no verdict yet: {len(ours)} of {counted(len(standard_plan.SEEDS), 'run')} made. "
            f"They will be compared with {bounds}."
        )
    mean = float(np.mean(ours))
    where = "inside" if low <= mean <= high else "outside"
    inside = sum(low <= score <= high for score in ours)
    return (
        f"- **{env}**: the mean of labkit's {counted(len(ours), 'run')} (`published`) is {mean:.0f}. It is **{where}** {bounds}; "
        f"{inside} of the {counted(len(ours), 'run')} {'is' if inside == 1 else 'are'} inside. {gaps(env, scores, published)}"
    )


def gaps(env: str, scores: Scores, published: np.ndarray) -> str:
    """A sentence: the means of both libraries minus the published mean, with 95 % intervals."""
    parts = []
    for settings, name in (("published", "labkit"), (standard_plan.SB3, "Stable-Baselines3")):
        runs = scores.get((settings, env), ())
        if len(runs) > 1:
            mean, (low, high), _ = statistics.mean_difference(runs, list(published))
            parts.append(f"{name} {mean:+.0f} (95 % interval {low:+.0f} to {high:+.0f})")
    return f"Minus the published mean: {', '.join(parts)}."


def lower(scores: Scores, reference: pd.DataFrame) -> str:
    """A sentence on the robots where both libraries score less than the published curves; or nothing."""
    found = []
    for env in standard_plan.ACTIONS:
        sides = [scores.get((name, env), ()) for name in ("published", standard_plan.SB3)]
        rows = list(published_scores(reference, env))
        if all(len(s) > 1 and statistics.mean_difference(s, rows)[1][1] < 0 for s in sides):
            found.append(env)
    if not found:
        return ""
    return f" On {listed(found)}, both libraries score less than the published curves, and no interval contains 0. As the two libraries agree, this is probably no fault of labkit: the published curves may come from other hyperparameters (see below)."


def comparison(ours: str, theirs: str, scores: Scores) -> str:
    """The sentence on two settings: Welch's test in each environment, with Holm's correction."""
    pairs = {
        env: (scores.get((ours, env), ()), scores.get((theirs, env), ()))
        for env in standard_plan.ACTIONS
    }
    names = f"`{ours}` against `{theirs}`"
    if any(len(side) < len(standard_plan.SEEDS) for pair in pairs.values() for side in pair):
        return f"- {names}: no test yet, runs are missing."
    values = statistics.holm([statistics.welch(*pair) for pair in pairs.values()])
    parts: list[str] = []
    found: dict[str, list[str]] = {"below": [], "above": []}
    for (env, (one, other)), p in zip(pairs.items(), values, strict=True):
        difference = float(np.mean(one) - np.mean(other))
        parts.append(f"{env} {difference:+.0f} (p = {p:.3g})")
        if p < LEVEL:
            found["below" if difference < 0 else "above"].append(env)
    verdicts = [f"significantly {side} on {listed(envs)}" for side, envs in found.items() if envs]
    verdict = " and ".join(verdicts) or "no significant difference on any"
    return f"- {names}: {verdict}. Differences of the means, with Welch's p after Holm's correction for {len(pairs)} tests: {', '.join(parts)}."


def means(scores: Scores, reference: pd.DataFrame) -> str:
    """One row per environment: the published mean and that of each setting."""
    settings = [name for name in standard_plan.LABELS if any(key[0] == name for key in scores)]
    rows = []
    for env in standard_plan.ACTIONS:
        published = published_scores(reference, env)
        row = {
            "": env,
            "published curves, ± 2 sd": f"{published.mean():.0f} ± {2 * published.std(ddof=1):.0f}",
        }
        for name in settings:
            values = scores.get((name, env), ())
            seeds = (
                f" ({counted(len(values), 'seed')})"
                if len(values) < len(standard_plan.SEEDS)
                else ""
            )
            row[f"`{name}`"] = f"{np.mean(values):.0f}{seeds}" if len(values) else "–"
        rows.append(row)
    return markdown(pd.DataFrame(rows))


def every_run(runs: Sequence[TrackedRun]) -> str:
    """One row per run, the replaced ones included."""
    rows = [
        {
            "environment": run.env,
            "settings": f"`{run.settings}`",
            "run": run.name,
            "env steps": grouped(int(run.rows.env_step.iloc[-1])),
            "return": "not finished" if run.score is None else f"{run.score:.0f}",
            "episodes": f"{min(run.rows.returns.iloc[-1]):.0f} to {max(run.rows.returns.iloc[-1]):.0f}",
            "commit": str(run.content.get("commit") or "not recorded")[:7],
            "CPU": str(run.content.get("cpu") or "not recorded"),
        }
        for run in runs
    ]
    return markdown(pd.DataFrame(rows)) if rows else "No run yet."


def packages(runs: Sequence[TrackedRun]) -> str:
    """One line for each set of versions, with the settings that were run with it."""
    users: dict[str, list[str]] = {}
    for run in runs:
        versions = run.content.get("versions", {})
        text = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        if "gymnasium" not in versions:  # labkit recorded neither at first
            text += f"; not recorded, but locked: {LOCKED}"
        names = users.setdefault(text, [])
        if f"`{run.settings}`" not in names:
            names.append(f"`{run.settings}`")
    return "\n".join(f"- {listed(names)}: {text}." for text, names in users.items())


def figure(runs: Sequence[TrackedRun], reference: pd.DataFrame) -> Figure:
    """The curves: one panel per environment, each seed faint, the published spread in grey."""
    with style.subplots(11, 4.2, columns=len(standard_plan.ACTIONS)) as (drawn, panels):
        for axes, env in zip(panels, standard_plan.ACTIONS, strict=True):
            curves = reference[reference.env_name == env].groupby("env_step")["return"]
            mean, twice = curves.mean(), 2 * curves.std()
            axes.plot(mean.index, mean, color="black", linestyle="--", label="published, mean")
            label = "published, ± 2 standard deviations over seeds"
            band = {"color": style.GREY, "alpha": 0.2, "linewidth": 0, "label": label}
            axes.fill_between(mean.index, mean - twice, mean + twice, **band)
            for settings, label in standard_plan.LABELS.items():
                chosen = [
                    run.rows.set_index("env_step").returns.map(np.mean)
                    for run in runs
                    if (run.settings, run.env) == (settings, env) and not run.replaced
                ]
                for curve in chosen:
                    axes.plot(curve.index, curve, color=COLORS[settings], alpha=0.25, linewidth=1)
                if chosen:
                    whole = pd.concat(chosen, axis=1).dropna().mean(axis=1)
                    axes.plot(whole.index, whole, color=COLORS[settings], label=label)
            style.label_axes(axes, "env steps", run_plots.RETURN, env)
            axes.set_xlim(0, standard_plan.ENV_STEPS * 1.02)
            axes.set_xticks([0, standard_plan.ENV_STEPS // 2, standard_plan.ENV_STEPS])
        handles = {
            label: handle
            for axes in panels
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        handles["faint: single seeds"] = Line2D([], [], color=style.GREY, alpha=0.4, linewidth=1)
        drawn.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=2)
    return drawn
