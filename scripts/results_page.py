"""The page of the Minitaur's results, written from tracked runs: no number in it is typed."""

# ruff: noqa: E501 (the page's own lines)

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import study

from benchmarks import pace
from labkit.analysis import compare, comparison_plots, statistics
from labkit.analysis.compare import Finding
from labkit.config import SACConfig
from labkit.plotting import run_plots
from labkit.plotting.video import Recording

EPISODES = SACConfig().num_eval_episodes
LEVELS = (1, 5, 10)
PACE = Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "pace.csv"


def write(found: Sequence[Finding], target: Path) -> list[Path]:
    """Writes README.md and its figures into `target`; returns the files."""
    written, parts = [], [HEAD]
    for budget in budgets():
        runs = of("defaults", found, budget)
        if not runs:
            continue
        figure = comparison_plots.curves(
            runs,
            budget - study.RANDOM_STEPS,
            published=True,
            title=f"Minitaur, defaults, {spaced(budget)} env steps",
        )
        written.append(target / f"curves-{budget}.png")
        figure.savefig(written[-1], dpi=110)
        parts.append(budget_section(runs, budget, written[-1].name))
    table = factor_scores(found, study.FACTORS_AT)
    if table.setting.nunique() > 1:
        written.append(target / "factors.png")
        figure = comparison_plots.ranking(
            table, title=f"after {spaced(study.FACTORS_AT)} env steps"
        )
        figure.savefig(written[-1], dpi=110)
        longer = factor_scores(found, study.FOLLOWED_TO)
        parts.append(factor_section(table, longer, written[-1].name))
    if PACE.exists():
        parts.append(pace_section(pd.read_csv(PACE)))
    parts += [not_run(found), made_with(found)]
    written.append(target / "README.md")
    written[-1].write_text("\n\n".join(part.strip() for part in parts) + "\n")
    return written


HEAD = """
# How well it walks, over seeds

Soft Actor-Critic on `MinitaurBulletEnv-v0` as registered, with labkit's defaults and with single choices taken back. A
final return is the mean of 20 greedy episodes after the last step, in the environment's own reward; none of
them was seen before, and no step or seed was chosen by its score. Every number and figure below is read from the runs
in [study/](study) by

    make results                       # runs what is missing (about a day for everything), then writes this page
    make results ARGS=page             # the page alone, in seconds
    make results ARGS='run --setting defaults --seed 3 --budget 60000'

A middle is the interquartile mean over seeds, its interval the 95 % percentile bootstrap, given for five seeds or more; for
fewer the single seeds are shown (Agarwal et al., 2021).
"""


def budgets() -> list[int]:
    """The defaults' budgets in env steps; the factors' has a section of its own."""
    planned = {job.budget for job in study.PLAN if job.setting == "defaults"}
    return sorted(planned - {study.FACTORS_AT})


def of(setting: str, found: Sequence[Finding], budget: int) -> list[Finding]:
    """The runs of a setting that have their final evaluation after so many env steps."""
    runs = [run for run in found if run.path.parent.name == setting]
    scored = [(run, run.scored(study.iterations(setting, budget))) for run in runs]
    return [run for run, row in scored if row is not None and len(row.eval_returns) >= EPISODES]


def budget_section(runs: Sequence[Finding], budget: int, figure: str) -> str:
    """The defaults after so many env steps: the middle, each seed, how soon, how far."""
    iterations = budget - study.RANDOM_STEPS
    table = compare.scores(runs, iterations)
    values = table["return"].to_numpy()
    rows = []
    for run, (_, score) in zip(runs, table.iterrows(), strict=True):
        episodes = np.array(run.scored(iterations).eval_returns)
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
## The defaults after {spaced(budget)} env steps: {middle(values)}

{spread_of(values)}ean forward distance \
{table.distance.mean():.2f} m in ten seconds, mean episode length {table.length.mean():.0f} of 1000 steps. Published: PPO2 {PPO2:+.2f} after \
2 000 000 steps, evolution strategies at best {ES:+.2f}, the TF-Agents tutorial {run_plots.PUBLISHED_CURVE[-1][1]:+.2f} after {spaced(run_plots.PUBLISHED_CURVE[-1][0] + study.RANDOM_STEPS)}.

{markdown(pd.DataFrame(rows))}

The first {spaced(study.RANDOM_STEPS)} env steps are random, each later one has one gradient step ({spaced(iterations)} of them). Steps to a return are env steps at \
the first evaluation (five episodes, every 10 000 steps) with at least that mean. Wall times are those of runs that shared two cores with others.

![Returns over env steps: {seeds_of(runs)}{", their middle" * (len(runs) > 1)}, and what is published]({figure})
"""


PPO2, ES = (score for score, _ in comparison_plots.PUBLISHED_SCORES)


def steps(run: Finding, level: float, iterations: int) -> str:
    """See `compare.steps_to_reach`."""
    reached = compare.steps_to_reach(run, level, iterations)
    return spaced(reached) if reached else "not reached"


def factor_scores(found: Sequence[Finding], budget: int) -> pd.DataFrame:
    """See `compare.scores`; settings named as in `study.SETTINGS`, and `soon`: steps to +5."""
    tables = [compare.scores([], budget)]  # its columns, where there is no run
    for name in study.SETTINGS:
        runs, iterations = of(name, found, budget), study.iterations(name, budget)
        soon = {run.path: steps(run, LEVELS[1], iterations) for run in runs}
        table = compare.scores(runs, iterations)
        tables.append(table.assign(setting=name, soon=table.path.map(soon)))
    return pd.concat(tables)


def factor_rows(table: pd.DataFrame) -> str:
    """A row a setting, each seed's score, best setting on top."""
    rows = []
    for name, score in compare.rank(table).iterrows():
        values = table["return"][table.setting == name]
        rows.append(
            {
                "setting": name,
                "changed": changed(str(name)),
                "seeds": " ".join(f"{value:+.2f}" for value in values),
                "middle": f"{score.iqm:+.2f}",
                "length": f"{table.length[table.setting == name].mean():.0f}",
                f"steps to {LEVELS[1]:+d}": ", ".join(
                    table.soon[table.setting == name].replace("not reached", "–")
                ),
            }
        )
    return markdown(pd.DataFrame(rows))


def factor_section(table: pd.DataFrame, longer: pd.DataFrame, figure: str) -> str:
    """The factors, and those that were followed to a larger budget."""
    followed = ""
    if set(longer.setting) - {"defaults"}:
        followed = (
            f"Followed to {spaced(study.FOLLOWED_TO)} env steps:\n\n{factor_rows(longer)}\n\n"
        )
    from_source = table.setting.str.startswith("source")
    return f"""
## What matters: single choices, {spaced(study.FACTORS_AT)} env steps

Each `-back` row takes one choice back to the source document's value and leaves the rest. `one-step-plain` takes back the two that came last: its runs were made before
these were parameters, with code that did what their values say. An `-again` row is seeds 1 and 2 of a row once more,
on another machine. Steps to +5 are env steps at the first evaluation, every 10 000 gradient steps, with at least that mean (–: none). The other rows change, alone, what the source document and labkit agree on. A row of one seed is one run, and shows no more than that. A seed fixes networks, noise and environments, but not Reverb's choice of samples: two runs of one seed differ about
as much as two seeds do, and a difference between settings has to be larger than that.

{factor_rows(table[~from_source])}

{followed}{other_side(table)}

![Each seed's return by setting, best setting on top]({figure})

{WHY}
"""


def other_side(table: pd.DataFrame) -> str:
    """The settings near the source document's, where any was run."""
    rows = table[table.setting.str.startswith("source")]
    if rows.empty:
        return ""
    middles = compare.rank(table).iqm
    best = middles[rows.setting.unique()].max()
    return f"""### From the other side: the source document's settings, and single choices alone

`source` has every hyperparameter of the source document; its time limits are no falls, as that document says and its code does not
do. Each `source-and-` row makes one of labkit's choices and leaves the rest of `source` as it is.
The best of these rows came to {best:+.2f}; all choices together, `defaults` above, to {middles["defaults"]:+.2f}.

{factor_rows(rows)}"""


WHY = """
Why each was chosen; whether it matters is what a row of the table says, where there is one:

- **Reward scale and initial temperature** are one question. The Minitaur pays about 0.01 a step, while the entropy bonus at α = 1 is
  worth about 5 a step (eight actions between -1 and 1, in nats; notebook 03, exercise 2): the return that the critic learns is then almost all entropy. A scale of 20 and log α = -4 put
  reward and bonus within reach of one another from the first step. With α = 1 and all else as here it walks too, but begins late: α is learned, and its logarithm moves by about
  a learning rate a step. Steps to +5 show it. From the source document's side neither of the two alone made it walk.
- **Observation scale**: motor velocities reach 20 rad/s and torques 5.7 while the base's quaternion stays within 1. Unscaled, the
  first layer sees the velocities and little of the attitude that keeps the robot upright.
- **Replay capacity** of 10 000 is exactly the random collection: from the first step on, everything is forgotten after 10 000 steps. Taken back alone, in
  one run, it cost nothing that could be seen. A small table is also a recent one, and returns of several steps are less wrong for what the present policy did: that may be why.
- **Several steps in one transition**: an action of 10 ms moves the robot by a centimetre, once it walks. Five rewards in a row tell more of it than one, and what \
is found out about a state reaches the states before it in a fifth of the updates.
- **Normalised critics** bound what is believed of actions that were never tried: the actor cannot climb into a guess that grows without end.
- **Discount**: 1 / (1 - γ) steps are looked ahead, a second at 0.99 and a fifth of one at 0.95. The one run at 0.95 learned to walk and fell in most of its last
  episodes; it may be too short a time to see a fall coming.
- **Learning rates** more than three times as high, and **half the gradient steps** for each env step: one run of each is within what the seeds of the defaults scatter.
- **Target entropy**: how noisy the policy is held. At the paper's -8 it is less noisy than at TF-Agents' -4; one run does not tell the two apart.
- **Time limits**: counted as falls they punish a robot for standing at the end. That is one transition of a thousand, and at γ = 0.99 it reaches back about a second: one run showed no harm.
  It is a mistake all the same, and costs more where episodes are short or γ is nearer to 1 (Pardo et al., 2018).
- **Exploration noise** is the policy's own, and the temperature decides how much. What was varied is the share of episodes that are collected without it, the greedy ones: a policy that has only ever acted with noise meets states without noise at its first greedy step, and may fall there. \
That was so with critics of one step, without normalisation, when this was chosen. Whether it still helps with the two choices above is open: taken back, it scored \
more on average in so few runs that chance is not excluded (notebook 05 has the test). `-p greedy_share 0` leaves it out.
"""


def changed(name: str) -> str:
    """The parameters of a setting, as they are passed to papermill."""
    if name.startswith("source-and-"):
        return f"all of `source` but `{name.removeprefix('source-and-')}`"
    return ", ".join(f"`{key} {value}`" for key, value in study.SETTINGS[name].items()) or "nothing"


def pace_section(table: pd.DataFrame) -> str:
    """What `benchmarks.pace` saw of one long run, a row a tenth."""
    rows = pace.tenths(table).round({"it/s": 1, "CPU ms/it": 1, "resident MiB": 0})
    last = int(table.gradient_step.iloc[-1]) + study.RANDOM_STEPS
    rows = rows.astype({"to step": int, "resident MiB": int})
    return f"""
## Pace and memory of the long run, so far

Seed {study.ENDURING} was begun as `papermill 03_sac_minitaur.ipynb out.ipynb -p num_iterations 1e6 -p seed {study.ENDURING} -p checkpoint_interval 10000`, on one of two cores while another run
had the other. `python -m benchmarks.pace RUN` followed its first {spaced(last)} env steps from outside: a row a tenth, evaluations and
checkpoints included. Memory grows with the replay table, which holds every transition of the run.

{markdown(rows)}
"""


MARKS = ("<!-- written by make results: begin -->", "<!-- written by make results: end -->")


def into_readme(text: str, found: Sequence[Finding]) -> str:
    """README.md with the part between its marks written anew: the study's runs of the defaults."""
    rows, figure = [], "default/curve.png"
    for budget in budgets():
        if runs := of("defaults", found, budget):
            table = compare.scores(runs, budget - study.RANDOM_STEPS)
            name = f"labkit, defaults, {seeds_of(runs)}"
            score = middle(table["return"].to_numpy())
            distance, length = (
                f"{table.distance.mean():.1f} m",
                f"{table.length.mean():.0f} of 1000",
            )
            rows.append([name, spaced(budget), score, distance, length])
            if len(runs) > 1:
                figure = f"curves-{budget}.png"
    tutorial_steps, tutorial_return = run_plots.PUBLISHED_CURVE[-1]
    published = [
        ("TF-Agents' tutorial", spaced(tutorial_steps + study.RANDOM_STEPS), tutorial_return),
        ("PPO2 (rl-baselines-zoo)", "2 000 000", PPO2),
    ]
    rows += [
        [f"{name}, as published", steps, f"{score:+.2f}", "", ""]
        for name, steps, score in published
    ]
    columns = [
        "Minitaur",
        "env steps",
        "return of a greedy episode",
        "mean distance",
        "mean length of an episode",
    ]
    body = f"""{markdown(pd.DataFrame(rows, columns=columns))}

An episode ends with a fall, or after 1000 steps, ten seconds.

![Returns over env steps, and what is published](results/minitaur/{figure})"""
    (before, rest), (begin, end) = text.split(MARKS[0]), MARKS
    return f"{before}{begin}\n{body}\n{end}{rest.split(end)[1]}"


def not_run(found: Sequence[Finding]) -> str:
    """What is planned and not there."""
    missing: dict[tuple[str, int], list[str]] = {}
    for job in study.PLAN:
        if job.seed not in {run.config.seed for run in of(job.setting, found, job.budget)}:
            missing.setdefault((job.setting, job.budget), []).append(str(job.seed))
    lines = "\n".join(
        f"- {setting}, {spaced(budget)} env steps: seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"
        for (setting, budget), seeds in missing.items()
    )
    lines = lines or "Nothing: all that is planned was run."
    return f"## Not run\n\nPlanned in [scripts/study.py](../../scripts/study.py), and not run yet:\n\n{lines}"


def made_with(found: Sequence[Finding]) -> str:
    """The versions, from the runs' own files."""
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
    """Writes the page beside the best policy.

    Args:
        score: its row of `compare.scores`.
        among: how many runs it was chosen from.
        budget: gradient steps it was trained for.
        recordings: the two episodes of its clip.
        target: its folder.
    """
    episodes = " and ".join(f"{one.return_:+.2f} in {one.steps} steps" for one in recordings)
    chosen = (
        f"It is the best of {among} runs of that length, and so flatters the setting"
        if among > 1
        else "No other run is of that length"
    )
    (target / "README.md").write_text(f"""# The best policy

Seed {score.seed} of the setting `{score.path.parent.name}` after {spaced(budget)} gradient steps: mean return {score["return"]:+.2f} over {score.episodes} greedy
episodes, {score.distance:.2f} m forward, {score.length:.0f} of 1000 steps. {chosen}: [how all did](../README.md).

[clip.mp4](clip.mp4): two more greedy episodes, {episodes}.

![Six moments of the first episode](strip.png)

    make watch REPLAY=1                       # plays it in the physics and films it anew
    make results ARGS=best                    # chose it, and wrote this folder

`policy/` is a TensorFlow SavedModel; five lines of Python use it, see the [README](../../../README.md#a-trained-policy-in-five-lines).
""")


def spread_of(values: np.ndarray) -> str:
    """The beginning of a sentence about the seeds; of one there is nothing to say."""
    if len(values) == 1:
        return "M"
    return f"Mean {values.mean():+.2f}, worst seed {values.min():+.2f}, best {values.max():+.2f}; m"


def middle(values: Sequence[float]) -> str:
    """`+8.10 (95 % interval +6.20 to +9.90, 5 seeds)`, or the single seeds."""
    interval = statistics.bootstrap_interval(values)
    if interval is None:
        return ", ".join(f"{value:+.2f}" for value in values)
    low, high = interval
    text = f"{statistics.interquartile_mean(values):+.2f}"
    return f"{text} (95 % interval {low:+.2f} to {high:+.2f}, {len(values)} seeds)"


def seeds_of(runs: Sequence[Finding]) -> str:
    """`1 seed`, `5 seeds`."""
    return f"{len(runs)} seed{'s' * (len(runs) > 1)}"


def spaced(number: int) -> str:
    """100000 → '100 000'."""
    return f"{number:,}".replace(",", " ")


def markdown(table: pd.DataFrame) -> str:
    """A table as GitHub reads it."""
    rows = [table.columns, ["---"] * len(table.columns), *table.astype(str).to_numpy()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
