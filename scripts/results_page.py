"""Writes the page of the Minitaur study; every number in it is computed from tracked runs."""

# ruff: noqa: E501 (the lines of the page)

import collections
import json
from collections.abc import Sequence
from pathlib import Path

import ablations
import arithmetic
import numpy as np
import pandas as pd
import study

from benchmarks import pace
from benchmarks.page_text import aggregate, between, counted, listed, markdown, spaced
from labkit.analysis import compare, comparison_plots
from labkit.analysis.compare import TrackedRun
from labkit.config import SACConfig
from labkit.plotting import run_plots
from labkit.plotting.video import Recording

EPISODES = SACConfig().num_eval_episodes
LEVELS = (1, 5, 10)
PACE = Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "pace.csv"


def write(found: Sequence[TrackedRun], target: Path) -> list[Path]:
    """Writes README.md and its figures into `target`; returns the files."""
    written, sections = [], [HEAD.format(episodes=final_episodes(found))]
    for budget in budgets():
        runs = of("defaults", found, budget)
        if not runs:
            continue
        figure = comparison_plots.curves(
            runs,
            budget - study.WARM_UP_STEPS,
            published=True,
            title=f"Minitaur, defaults, {spaced(budget)} env steps",
        )
        written.append(target / f"curves-{budget}.png")
        figure.savefig(written[-1], dpi=110)
        sections.append(budget_section(runs, budget, written[-1].name, found))
    table = setting_scores(found, study.ABLATION_BUDGET)
    if table.setting.nunique() > 1:
        written.append(target / "factors.png")
        labelled = table
        if table.arithmetic.nunique() > 1:
            labelled = table.assign(setting=table.base + ", group\u00a0" + table.arithmetic)
        figure = comparison_plots.ranking(
            labelled, title=f"after {spaced(study.ABLATION_BUDGET)} env steps"
        )
        figure.savefig(written[-1], dpi=110)
        longer = setting_scores(found, study.LONGER_BUDGET)
        explained = arithmetic.paragraph(found)
        sections.append(ablations.section(table, longer, explained, written[-1].name))
    if PACE.exists():
        sections.append(pace_section(pd.read_csv(PACE)))
    sections += [not_run(found), made_with(found)]
    written.append(target / "README.md")
    written[-1].write_text("\n\n".join(section.strip() for section in sections) + "\n")
    return written


HEAD = """
# SAC on the Minitaur: returns over seeds

Soft Actor-Critic on `MinitaurBulletEnv-v0` as registered, with labkit's defaults and with single choices ablated, which
means that they have the source document's value. A final return is the mean of 20 deterministic episodes after the last step,
in the environment's own reward, and no step or seed was chosen by its score. {episodes}
One command computes every number and figure below from the runs in [study/](study):

    make results                       # makes the missing runs (about a day for all), then writes this page
    make results ARGS=page             # the page alone, in seconds
    make results ARGS='run --setting defaults --seed 3 --budget 60000'

For five seeds or more the page gives the interquartile mean (IQM) over seeds and a percentile bootstrap interval (Agarwal et al., 2021); for
fewer it gives the return of each seed. The interval's 95 % are nominal: from few seeds it is too narrow. The coverage next to it is that of simulated
studies with normal scores (`labkit.analysis.statistics.interval_coverage`).

[Trials](trials/README.md) of other settings, which did not become defaults, and [other libraries](peers/README.md) on the same robot have pages of their own.
"""


def final_episodes(found: Sequence[TrackedRun]) -> str:
    """Which episodes the final scores are of: the same at each budget in runs of labkit 0.1."""
    old = [run for run in found if not records_commit(run)]
    again = [run for run in old if finals(run) > 1]
    text = (
        "The final evaluation of a run plays other episodes than its interim evaluations, and other ones for each budget "
        "(`labkit.training.components.evaluation_seed`)."
    )
    if again:
        text += (
            f" {len(old)} of these {len(found)} runs are older than that rule: their final evaluations of every budget play the same twenty episodes. "
            f"{counted(len(again), 'run')} of them {'has' if len(again) == 1 else 'have'} a final evaluation after more than one budget, so the later scores are not of new episodes."
        )
    return text


def records_commit(run: TrackedRun) -> bool:
    """Whether its `config.json` names a commit, as runs after labkit 0.1 do."""
    return "commit" in json.loads((run.path / "config.json").read_text())


def finals(run: TrackedRun) -> int:
    """How many final evaluations it has: one for each budget that it was run to."""
    return int((run.evaluations.eval_returns.map(len) >= run.config.num_eval_episodes).sum())


def budgets() -> list[int]:
    """The budgets of the defaults in env steps, without that of the ablations."""
    planned = {job.budget for job in study.PLAN if job.setting == "defaults"}
    return sorted(planned - {study.ABLATION_BUDGET})


def of(setting: str, found: Sequence[TrackedRun], budget: int) -> list[TrackedRun]:
    """The runs of a setting that have a final evaluation after `budget` env steps."""
    runs = [run for run in found if run.path.parent.name == setting]
    scored = [(run, run.evaluation_at(study.iterations(setting, budget))) for run in runs]
    return [run for run, row in scored if row is not None and len(row.eval_returns) >= EPISODES]


def budget_section(
    runs: Sequence[TrackedRun], budget: int, figure: str, found: Sequence[TrackedRun]
) -> str:
    """A section about the defaults after `budget` env steps: aggregate and each seed.

    `runs` are those of the defaults after `budget` env steps among all that were `found`.
    """
    iterations = budget - study.WARM_UP_STEPS
    table = compare.scores(runs, iterations)
    values = table["return"].to_numpy()
    rows = []
    for run, (_, score) in zip(runs, table.iterrows(), strict=True):
        episodes = np.array(run.evaluation_at(iterations).eval_returns)
        rows.append(
            {
                "seed": run.config.seed,
                "return (± sd of episodes)": f"{score['return']:+.2f} ± {episodes.std(ddof=1):.2f}",
                "worst, best episode": f"{episodes.min():+.2f}, {episodes.max():+.2f}",
                "distance": f"{score.distance:.2f} m",
                "length": f"{score.length:.0f} of 1000",
                **{f"steps to {level:+d}": steps(run, level, iterations) for level in LEVELS},
                "wall time": f"{score.minutes:.0f} min",
            }
        )
    return f"""
## The defaults after {spaced(budget)} env steps: {aggregate(values)}

{spread_of(values)}ean forward distance \
{table.distance.mean():.2f} m in ten seconds, mean episode length {table.length.mean():.0f} of 1000 steps. Published: PPO2 {PPO2:+.2f} after \
2 000 000 steps, evolution strategies at best {ES:+.2f} ({ES_EPISODES}), the TF-Agents tutorial {run_plots.PUBLISHED_CURVE[-1][1]:+.2f} after {spaced(run_plots.PUBLISHED_CURVE[-1][0] + study.WARM_UP_STEPS)}. {reached_threshold(values)}{repeated(found, budget)}

{markdown(pd.DataFrame(rows))}

The first {spaced(study.WARM_UP_STEPS)} env steps are warm-up with random actions; one gradient step follows each later one ({spaced(iterations)} gradient steps). Steps to a return are the env steps at \
the first evaluation (five episodes, every 10 000 steps) with at least that mean. Wall times are of runs that shared two cores with other runs.

![Returns over env steps: {counted(len(runs), "seed")}{", their interquartile mean" * (len(runs) > 1)}, and published results]({figure})
"""


PPO2, ES, THRESHOLD = (score for score, _ in comparison_plots.PUBLISHED_SCORES)
ES_EPISODES = f"estool, whose episodes last up to {comparison_plots.ESTOOL_STEPS} steps"


def reached_threshold(values: Sequence[float]) -> str:
    """How many runs reached the return that the environment registers as solved."""
    reached = sum(value >= THRESHOLD for value in values)
    return (
        f"The environment registers a `reward_threshold` of {THRESHOLD}; {reached} of "
        f"{counted(len(values), 'run')} reached it."
    )


def repeated(found: Sequence[TrackedRun], budget: int) -> str:
    """A sentence on runs that repeat seeds of the defaults; empty if there are none."""
    again = compare.scores(of("defaults-again", found, budget), budget - study.WARM_UP_STEPS)
    if again.empty:
        return ""
    group = arithmetic.groups(found)
    own = sorted({group[run.path] for run in of("defaults", found, budget)})
    scores = [
        f"seed {row.seed} {row['return']:+.2f} (group {group[row.path]})"
        for _, row in again.iterrows()
    ]
    return (
        f" The runs of this table are in group {listed(own)}. Run again: {listed(scores)}; "
        "the section on ablations explains the groups."
    )


def steps(run: TrackedRun, level: float, iterations: int) -> str:
    """See `compare.steps_to_reach`."""
    reached = compare.steps_to_reach(run, level, iterations)
    return spaced(reached) if reached else "not reached"


def setting_scores(found: Sequence[TrackedRun], budget: int) -> pd.DataFrame:
    """See `compare.scores`; with the names of `study.SETTINGS`, and three more columns.

    They are `base` (the setting that an `-again` setting repeats, or the setting itself),
    `arithmetic` (the group of the run) and `soon` (env steps to +5).
    """
    group = arithmetic.groups(found)
    tables = [compare.scores([], budget)]  # the columns, in case there is no run
    for name in study.SETTINGS:
        runs, iterations = of(name, found, budget), study.iterations(name, budget)
        soon = {run.path: steps(run, LEVELS[1], iterations) for run in runs}
        table = compare.scores(runs, iterations)
        base = name.removesuffix(ablations.AGAIN)
        more = {"arithmetic": table.path.map(group), "soon": table.path.map(soon)}
        tables.append(table.assign(setting=name, base=base, **more))
    return pd.concat(tables, ignore_index=True)


def pace_section(table: pd.DataFrame) -> str:
    """A section about speed and memory of one long run, measured by `benchmarks.pace`."""
    rows = pace.tenths(table).round({"it/s": 1, "CPU ms/it": 1, "resident MiB": 0})
    last = int(table.gradient_step.iloc[-1]) + study.WARM_UP_STEPS
    rows = rows.astype({"to step": int, "resident MiB": int})
    return f"""
## Speed and memory of the long run, so far

Seed {study.LONG_RUN_SEED} was started with `papermill 03_sac_minitaur.ipynb out.ipynb -p num_iterations 1e6 -p seed {study.LONG_RUN_SEED} -p checkpoint_interval 10000`, on one of two cores while another run
used the other. `python -m benchmarks.pace RUN` measured its first {spaced(last)} env steps from another process. Each row is a tenth, evaluations and
checkpoints included. Memory grows with the replay table, which contains every transition of the run.

{markdown(rows)}
"""


MARKS = ("<!-- written by make results: begin -->", "<!-- written by make results: end -->")


def into_readme(text: str, found: Sequence[TrackedRun]) -> str:
    """Returns README.md with the study's results of the defaults between its two marks."""
    rows, figure, reached = [], "default/curve.png", []
    for budget in budgets():
        if runs := of("defaults", found, budget):
            table = compare.scores(runs, budget - study.WARM_UP_STEPS)
            name = f"labkit, defaults, {counted(len(runs), 'seed')}"
            score = aggregate(table["return"].to_numpy())
            distance, length = (
                f"{table.distance.mean():.1f} m",
                f"{table.length.mean():.0f} of 1000",
            )
            rows.append([name, spaced(budget), score, distance, length])
            above = int((table["return"] >= THRESHOLD).sum())
            reached.append(
                f"{above} of {counted(len(table), 'run')} after {spaced(budget)} env steps"
            )
            if len(runs) > 1:
                figure = f"curves-{budget}.png"
    tutorial_steps, tutorial_return = run_plots.PUBLISHED_CURVE[-1]
    published = [
        ("TF-Agents' tutorial", spaced(tutorial_steps + study.WARM_UP_STEPS), tutorial_return),
        ("PPO2 (rl-baselines-zoo)", "2 000 000", PPO2),
    ]
    rows += [
        [f"{name}, as published", steps, f"{score:+.2f}", "", ""]
        for name, steps, score in published
    ]
    columns = [
        "Minitaur",
        "env steps",
        "return of a deterministic episode",
        "mean distance",
        "mean length of an episode",
    ]
    body = f"""{markdown(pd.DataFrame(rows, columns=columns))}

An episode terminates when the robot falls, and is truncated after 1000 steps (ten seconds). The environment registers a
`reward_threshold` of {THRESHOLD}; {listed(reached) if reached else "no run"} reached it. {ablations.repeats(setting_scores(found, study.ABLATION_BUDGET), brief=True)}

![Returns over env steps, and published results](results/minitaur/{figure})"""
    return between(text, MARKS, body)


def not_run(found: Sequence[TrackedRun]) -> str:
    """A section that lists the planned runs without a result."""
    missing: dict[tuple[str, int], list[str]] = {}
    for job in study.PLAN:
        if job.seed not in {run.config.seed for run in of(job.setting, found, job.budget)}:
            missing.setdefault((job.setting, job.budget), []).append(str(job.seed))
    lines = "\n".join(
        f"- {setting}, {spaced(budget)} env steps: seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"
        for (setting, budget), seeds in missing.items()
    )
    lines = lines or "None: every planned run is finished."
    return f"## Not run\n\nPlanned in [scripts/study.py](../../scripts/study.py), but not run yet:\n\n{lines}"


def made_with(found: Sequence[TrackedRun]) -> str:
    """A section with the package versions, commits and CPUs that the runs recorded."""
    contents = [json.loads((run.path / "config.json").read_text()) for run in found]
    kinds = {json.dumps(content["versions"], sort_keys=True) for content in contents}
    lines = [
        "- " + ", ".join(f"{name} {version}" for name, version in json.loads(kind).items())
        for kind in sorted(kinds)
    ]
    places = collections.Counter(
        f"commit {content.get('commit') or 'not recorded'}, CPU {content.get('cpu') or 'not recorded'}"
        for content in contents
    )
    lines += [f"- {place}: {counted(number, 'run')}" for place, number in sorted(places.items())]
    return "## Made with\n\n" + "\n".join(lines)


def write_best(
    score: pd.Series, among: int, budget: int, recordings: Sequence[Recording], target: Path
) -> None:
    """Writes the page of the best policy.

    Args:
        score: the policy's row of `compare.scores`.
        among: how many runs it was chosen from.
        budget: gradient steps of its training.
        recordings: the two episodes of its clip.
        target: the folder with the policy.
    """
    episodes = " and ".join(f"{one.return_:+.2f} in {one.steps} steps" for one in recordings)
    chosen = (
        f"It is the best of {among} runs of that length, so its score overestimates the setting's mean"
        if among > 1
        else "No other run has that length"
    )
    (target / "README.md").write_text(f"""# The best policy

Seed {score.seed} of the setting `{score.path.parent.name}` after {spaced(budget)} gradient steps: mean return {score["return"]:+.2f} over {score.episodes} deterministic
episodes, {score.distance:.2f} m forward, {score.length:.0f} of 1000 steps. {chosen}: [all runs](../README.md).

[clip.mp4](clip.mp4): two more deterministic episodes, {episodes}.

![Six frames of the first episode](strip.png)

    make watch REPLAY=1                       # runs the policy and records a new clip
    make results ARGS=best                    # chose this policy and wrote this folder

`policy/` is a TensorFlow SavedModel; five lines of Python use it, see the [README](../../../README.md#a-trained-policy-in-five-lines).
""")


def spread_of(values: np.ndarray) -> str:
    """The beginning of a sentence: mean, worst and best of several seeds; for one seed only "M"."""
    if len(values) == 1:
        return "M"
    return f"Mean {values.mean():+.2f}, worst seed {values.min():+.2f}, best {values.max():+.2f}; m"
