"""Writes the page of the Minitaur study; every number in it is computed from tracked runs."""

# ruff: noqa: E501 (the lines of the page)

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import study

from benchmarks import pace
from labkit.analysis import compare, comparison_plots, statistics
from labkit.analysis.compare import TrackedRun
from labkit.config import SACConfig
from labkit.plotting import run_plots
from labkit.plotting.video import Recording

EPISODES = SACConfig().num_eval_episodes
LEVELS = (1, 5, 10)
PACE = Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "pace.csv"


def write(found: Sequence[TrackedRun], target: Path) -> list[Path]:
    """Writes README.md and its figures into `target`; returns the files."""
    written, sections = [], [HEAD]
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
        sections.append(budget_section(runs, budget, written[-1].name))
    table = setting_scores(found, study.ABLATION_BUDGET)
    if table.setting.nunique() > 1:
        written.append(target / "factors.png")
        figure = comparison_plots.ranking(
            table, title=f"after {spaced(study.ABLATION_BUDGET)} env steps"
        )
        figure.savefig(written[-1], dpi=110)
        longer = setting_scores(found, study.LONGER_BUDGET)
        sections.append(ablation_section(table, longer, written[-1].name))
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
in the environment's own reward. These episodes differ from those of earlier evaluations, and no step or seed was chosen
by its score. One command computes every number and figure below from the runs in [study/](study):

    make results                       # makes the missing runs (about a day for all), then writes this page
    make results ARGS=page             # the page alone, in seconds
    make results ARGS='run --setting defaults --seed 3 --budget 60000'

For five seeds or more the page gives the interquartile mean (IQM) over seeds and its 95 % percentile bootstrap interval; for
fewer it gives the return of each seed (Agarwal et al., 2021).
"""


def budgets() -> list[int]:
    """The budgets of the defaults in env steps, without that of the ablations."""
    planned = {job.budget for job in study.PLAN if job.setting == "defaults"}
    return sorted(planned - {study.ABLATION_BUDGET})


def of(setting: str, found: Sequence[TrackedRun], budget: int) -> list[TrackedRun]:
    """The runs of a setting that have a final evaluation after `budget` env steps."""
    runs = [run for run in found if run.path.parent.name == setting]
    scored = [(run, run.evaluation_at(study.iterations(setting, budget))) for run in runs]
    return [run for run, row in scored if row is not None and len(row.eval_returns) >= EPISODES]


def budget_section(runs: Sequence[TrackedRun], budget: int, figure: str) -> str:
    """A section about the defaults after `budget` env steps: aggregate and each seed."""
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
2 000 000 steps, evolution strategies at best {ES:+.2f}, the TF-Agents tutorial {run_plots.PUBLISHED_CURVE[-1][1]:+.2f} after {spaced(run_plots.PUBLISHED_CURVE[-1][0] + study.WARM_UP_STEPS)}.

{markdown(pd.DataFrame(rows))}

The first {spaced(study.WARM_UP_STEPS)} env steps are warm-up with random actions; one gradient step follows each later one ({spaced(iterations)} gradient steps). Steps to a return are the env steps at \
the first evaluation (five episodes, every 10 000 steps) with at least that mean. Wall times are of runs that shared two cores with other runs.

![Returns over env steps: {seeds_of(runs)}{", their interquartile mean" * (len(runs) > 1)}, and published results]({figure})
"""


PPO2, ES = (score for score, _ in comparison_plots.PUBLISHED_SCORES)


def steps(run: TrackedRun, level: float, iterations: int) -> str:
    """See `compare.steps_to_reach`."""
    reached = compare.steps_to_reach(run, level, iterations)
    return spaced(reached) if reached else "not reached"


def setting_scores(found: Sequence[TrackedRun], budget: int) -> pd.DataFrame:
    """See `compare.scores`; with the names of `study.SETTINGS`, and `soon`: env steps to +5."""
    tables = [compare.scores([], budget)]  # the columns, in case there is no run
    for name in study.SETTINGS:
        runs, iterations = of(name, found, budget), study.iterations(name, budget)
        soon = {run.path: steps(run, LEVELS[1], iterations) for run in runs}
        table = compare.scores(runs, iterations)
        tables.append(table.assign(setting=name, soon=table.path.map(soon)))
    return pd.concat(tables)


def setting_rows(table: pd.DataFrame) -> str:
    """A Markdown table with a row for each setting and each seed's score, best setting first."""
    rows = []
    for name, score in compare.rank(table).iterrows():
        values = table["return"][table.setting == name]
        rows.append(
            {
                "setting": name,
                "changed": changed(str(name)),
                "seeds": " ".join(f"{value:+.2f}" for value in values),
                "IQM": f"{score.iqm:+.2f}",
                "length": f"{table.length[table.setting == name].mean():.0f}",
                f"steps to {LEVELS[1]:+d}": ", ".join(
                    table.soon[table.setting == name].replace("not reached", "–")
                ),
            }
        )
    return markdown(pd.DataFrame(rows))


def ablation_section(table: pd.DataFrame, longer: pd.DataFrame, figure: str) -> str:
    """A section about single choices, and those that were run to a larger budget."""
    extended = ""
    if set(longer.setting) - {"defaults"}:
        extended = f"After {spaced(study.LONGER_BUDGET)} env steps:\n\n{setting_rows(longer)}\n\n"
    from_source = table.setting.str.startswith("source")
    return f"""
## Ablations: single choices, {spaced(study.ABLATION_BUDGET)} env steps

Each `no-` row ablates one choice: it has the source document's value, and all others keep labkit's. `one-step-plain` ablates two, n-step returns and normalised critics; its runs predate
these parameters and used equivalent code. An `-again` row repeats seeds 1 and 2 of another row
on another machine. Each other row changes one value on which the source document and labkit agree. Steps to +5 are the env steps at the first evaluation, every 10 000 gradient steps, with at least that mean (–: none). A row with one seed is a single run and weak evidence. A seed fixes networks, noise and environments, but not the samples that Reverb draws. Two runs of one seed differ about
as much as two seeds do, and only a larger difference between settings is evidence.

{setting_rows(table[~from_source])}

{extended}{source_section(table)}

![Each seed's return by setting, best setting first]({figure})

{REASONS}
"""


def source_section(table: pd.DataFrame) -> str:
    """A section about the source document's settings; empty if none was run."""
    rows = table[table.setting.str.startswith("source")]
    if rows.empty:
        return ""
    means = compare.rank(table).iqm
    best = means[rows.setting.unique()].max()
    return f"""### The source document's settings, and single choices added to them

`source` has every hyperparameter of the source document. Time limits are truncations in it, as that document's text says; its code
treats them as terminations. Each `source-and-` row adds one of labkit's choices to `source`.
The best of these rows reached {best:+.2f}; all choices together, `defaults` above, reached {means["defaults"]:+.2f}.

{setting_rows(rows)}"""


REASONS = """
The reason for each choice follows; the tables show its effect where runs exist:

- **Reward scale and initial temperature** set one balance. The Minitaur's reward is about 0.01 a step. At α = 1 the entropy bonus is
  worth about 5 a step (eight actions between -1 and 1, in nats; notebook 03, exercise 2), so that the critic learns a return that is almost all entropy. With a scale of 20 and log α = -4,
  reward and bonus have a similar magnitude from the first step. With α = 1 and otherwise the defaults the robot learns to walk, too, but later: α is learned, and its logarithm changes by about
  one learning rate a step. The column "steps to +5" shows the delay. Added alone to the source document's settings, neither of the two made the robot walk.
- **Observation scale**: motor velocities reach 20 rad/s and torques 5.7, while the components of the base's quaternion stay within 1. Without scaling, the
  velocities dominate the input of the first layer, and the attitude, which keeps the robot upright, contributes little.
- **Replay capacity** of 10 000 is exactly the length of the warm-up: each transition is overwritten 10 000 steps after it was stored. The one run with this ablation
  shows no detectable loss. A possible reason: a small table holds only recent transitions, for which n-step returns are less biased by older policies.
- **n-step returns**: an action lasts 10 ms and moves a walking robot by about a centimetre. The sum of five rewards carries more signal than a single 10 ms reward, and \
information about a state's value reaches the preceding states in a fifth of the updates.
- **Normalised critics** overestimate unseen actions less: the actor cannot exploit an estimate that grows without bound.
- **Discount**: the horizon is 1 / (1 - γ) steps, one second at 0.99 and a fifth of a second at 0.95. The one run at 0.95 learned to walk and fell in most of its final
  episodes; its horizon may be too short to anticipate a fall.
- **Learning rates** more than three times as high, and **half the gradient steps** for each env step (update-to-data ratio 0.5): one run of each lies within the spread of the defaults' seeds.
- **Target entropy** determines how noisy the policy is. At the paper's -8 it is less noisy than at TF-Agents' -4; one run shows no detectable difference.
- **Time limits** treated as terminations punish a robot that is still walking when its episode ends. This affects one transition in a thousand, and at γ = 0.99 the error reaches back about one second: the one run shows no loss.
  It is an error nevertheless, and it grows where episodes are shorter or γ is closer to 1 (Pardo et al., 2018).
- **Exploration noise** comes from the policy, and the temperature determines its amount. The parameter `greedy_share` is the share of collected episodes that are deterministic. A policy that has only acted with noise reaches states without noise for the first time in its first deterministic episode, and may fall there. \
This was observed with one-step returns and critics without normalisation, when the default was chosen. Whether it still helps with n-step returns and normalised critics is open: the ablation scored \
higher on average, in too few runs to exclude chance (notebook 05 has the test). `-p greedy_share 0` turns deterministic episodes off.
"""


def changed(name: str) -> str:
    """The parameters of a setting as papermill takes them."""
    if name.startswith("source-and-"):
        return f"all of `source` but `{name.removeprefix('source-and-')}`"
    return ", ".join(f"`{key} {value}`" for key, value in study.SETTINGS[name].items()) or "nothing"


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
    rows, figure = [], "default/curve.png"
    for budget in budgets():
        if runs := of("defaults", found, budget):
            table = compare.scores(runs, budget - study.WARM_UP_STEPS)
            name = f"labkit, defaults, {seeds_of(runs)}"
            score = aggregate(table["return"].to_numpy())
            distance, length = (
                f"{table.distance.mean():.1f} m",
                f"{table.length.mean():.0f} of 1000",
            )
            rows.append([name, spaced(budget), score, distance, length])
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

An episode terminates when the robot falls, and is truncated after 1000 steps (ten seconds).

![Returns over env steps, and published results](results/minitaur/{figure})"""
    (before, rest), (begin, end) = text.split(MARKS[0]), MARKS
    return f"{before}{begin}\n{body}\n{end}{rest.split(end)[1]}"


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
    """A section with the package versions that the runs recorded."""
    kinds = {
        json.dumps(json.loads((run.path / "config.json").read_text())["versions"], sort_keys=True)
        for run in found
    }
    lines = [
        "- " + ", ".join(f"{name} {version}" for name, version in json.loads(kind).items())
        for kind in sorted(kinds)
    ]
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


def aggregate(values: Sequence[float]) -> str:
    """`+8.10 (95 % interval +6.20 to +9.90, 5 seeds)`, or the return of each seed."""
    interval = statistics.bootstrap_interval(values)
    if interval is None:
        return ", ".join(f"{value:+.2f}" for value in values)
    low, high = interval
    text = f"{statistics.interquartile_mean(values):+.2f}"
    return f"{text} (95 % interval {low:+.2f} to {high:+.2f}, {len(values)} seeds)"


def seeds_of(runs: Sequence[TrackedRun]) -> str:
    """`1 seed`, `5 seeds`."""
    return f"{len(runs)} seed{'s' * (len(runs) > 1)}"


def spaced(number: int) -> str:
    """100000 → '100 000'."""
    return f"{number:,}".replace(",", " ")


def markdown(table: pd.DataFrame) -> str:
    """A table in GitHub's Markdown."""
    rows = [table.columns, ["---"] * len(table.columns), *table.astype(str).to_numpy()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
