"""Writes the page of the Minitaur study; every number in it is computed from tracked runs."""

# ruff: noqa: E501 (the lines of the page)

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ablations
import long_run
import machines
import numpy as np
import pandas as pd
import peers
import study

from benchmarks.page_text import aggregate, counted, listed, markdown
from labkit.analysis import arithmetic, compare, comparison_plots, milestones, statistics
from labkit.analysis.compare import TrackedRun
from labkit.config import SACConfig
from labkit.parameters import grouped
from labkit.plotting import run_plots

ROOT = Path(__file__).resolve().parent.parent
EARLIER_WARM_UP = 10_000  # env steps, of labkit 0.1
EPISODES = SACConfig().num_eval_episodes
SCORES = "scores.csv"
WALKING = 10.0  # a mean return of a robot that walks
PPO2, ES, THRESHOLD = (score for score, _ in comparison_plots.PUBLISHED_SCORES)
PPO2_SOURCE = "https://github.com/araffin/rl-baselines-zoo/blob/master/benchmark.md"
PPO2_SD = 3.56  # over the 252 episodes of its one run, from the same table
ES_SOURCE = "https://github.com/hardmaru/estool/blob/master/zoo/bullet_minitaur.64.json"
# One published run of SAC: mean of the last 100 episodes with sampled actions, and env steps until
# then (545 961 at the end of its log, 5 episodes before the end of the run).
SAC_SOURCE = "https://github.com/Rafael1s/Deep-Reinforcement-Learning-Algorithms/tree/master/Minitaur-Soft-Actor-Critic"
SAC_PUBLISHED, SAC_STEPS = 15.10, 550_000


def write(found: Sequence[TrackedRun], target: Path) -> list[Path]:
    """Writes README.md and its figures into `target`; returns the files."""
    coverage = 100 * statistics.interval_coverage(5)
    written, sections = [], [HEAD.format(scores=SCORES, coverage=coverage)]
    groups = {budget: of("defaults", found, budget) for budget in budgets()}
    groups = {budget: runs for budget, runs in groups.items() if runs}
    # The largest budget with enough seeds, or else most of them: it says how soon they learned.
    enough = {budget: min(len(runs), study.SEEDS) for budget, runs in groups.items()}
    detailed = max(groups, key=lambda budget: (enough[budget], budget), default=None)
    for budget, runs in groups.items():
        figure = comparison_plots.curves(
            runs,
            study.iterations("defaults", budget),
            published=True,
            title=f"Minitaur, defaults, {grouped(budget)} env steps",
        )
        written.append(target / f"curves-{budget}.png")
        figure.savefig(written[-1], dpi=110)
        sections.append(budget_section(runs, budget, written[-1].name, budget == detailed))
    table = setting_scores(found, study.ABLATION_BUDGET)
    if table.setting.nunique() > 1:
        written.append(target / "factors.png")
        title = f"after {grouped(study.ABLATION_BUDGET)} env steps"
        ranked = ablations.several(table[~table.setting.isin(list(study.EARLIER_ABLATIONS))])
        comparison_plots.ranking(ranked, title=title, baseline="defaults").savefig(
            written[-1], dpi=110
        )
        sections.append(ablations.section(table, written[-1].name))
    steps = peers.ENV_STEPS
    same = study.LAST_EARLIER  # the peers have its target entropy
    own = compare.scores(of(same, found, steps), study.iterations(same, steps))
    sections.append(peers.section(own["return"].tolist()))
    sections += [long_run.section(), longer_runs(found), REPLACED, HISTORY, not_run(found)]
    sections.append(machines.section(found, starts()))
    written.append(target / SCORES)
    every_score(found).to_csv(written[-1], index=False)
    written.append(target / "README.md")
    written[-1].write_text("\n\n".join(section.strip() for section in sections if section) + "\n")
    return written


HEAD = """
# SAC on the Minitaur: returns over seeds

This study trains Soft Actor-Critic (SAC) on `MinitaurBulletEnv-v0` as registered. The runs use labkit's defaults, an
ablation (the defaults with one choice set to the value of the source document, TF-Agents' tutorial on SAC), or other settings that are named below. A final return is the mean
return of 20 deterministic episodes after the last step, in the environment's own reward. No checkpoint
and no seed was chosen by its score, but the parameters of the defaults were, from runs on this robot, and some runs were made longer when their returns so far were known: see [How the plan changed](#how-the-plan-changed). The final evaluation plays other episodes than the interim evaluations of the run. Runs with different budgets also
play different final episodes (`labkit.training.components.evaluation_seed`). One command writes
this page. It computes the tables and figures from the runs in [study/](study), [peers/](peers), [million/](million), [million-replaced-1/](million-replaced-1), [million-replaced-2/](million-replaced-2) and [v0.1/](v0.1); the history of the plan, the list of replaced runs and the reasons under "The choices" are written by hand:

    make results                       # makes the missing runs (a day for all), then writes this page
    make results ARGS=page             # the page alone, in seconds
    make results ARGS='run --setting source --seed 2 --budget 60000'    # one run of the plan, if it is missing

[{scores}]({scores}) has all scores of the study in one table. A run's evaluations and losses are in its `metrics.csv`:

    from labkit.analysis import compare
    runs, _ = compare.find_runs("results/minitaur/study/defaults")
    print(runs[0].metrics, compare.scores(runs, budget=55_000))    # 60 000 env steps, 5 000 of them warm-up

To add a seed or a setting, edit `DEFAULTS`, `SETTINGS` and `PLAN` in [scripts/study.py](../../scripts/study.py).

For five seeds or more the page gives the interquartile mean (IQM) over seeds and, in brackets, a percentile bootstrap interval ([Agarwal et al., 2021](https://arxiv.org/abs/2108.13264)); for
fewer it gives the return of each seed. The interval has a nominal level of 95 %, but with few seeds it is too narrow: in a simulation with normally
distributed returns of five seeds, such intervals contained the true value in about {coverage:.0f} % of the cases
(`labkit.analysis.statistics.interval_coverage`). A seed fixes networks, noise and environments, but not the samples that Reverb
draws, so a repeated run of a seed has another score.

Other pages: [the study of labkit 0.1](v0.1/README.md), whose defaults were others and whose runs are not compared with those below; [the trials](trials/README.md), single runs made while the
defaults were chosen and later, which the study does not count; [other libraries](peers/README.md) on the same robot. [How the plan changed](#how-the-plan-changed) says which runs were planned and not made, or made and not planned.
"""

HISTORY = """
## How the plan changed

- `greedy_share`, the share of collected episodes with deterministic actions, was removed after labkit 0.1. Without it, three seeds had a mean of +14.46 after 60 000 env steps; with it, the same seeds had +10.36 ([their page](v0.1/README.md)). The plan asked for five seeds and 100 000 env steps to confirm this. They were not run, because other defaults followed.
- `earlier-3e-4`, `earlier-3e-4-delayed`, `earlier-1e-3`, `earlier-uniform` and `earlier-target-entropy-8` were the defaults for a time, before the present ones were chosen. The page lists every run that the study made of them. Other runs with the same parameters are among the [trials](trials/README.md) (`learning-rate-1e-3` and `averaged-policy` have those of `earlier-1e-3`) and among the [replaced runs](#runs-that-were-replaced) of notebook 03.
- The plan of `earlier-uniform` changed four times: the checkpoints of seeds 2 to 4, then of seeds 1 and 5 to 8, then of seed 17 were lost with their machines, and new seeds took their place; the runs of seeds 18 and 19 were stopped when the defaults changed. Its ablations are among the trials.
- `target-entropy-8` was planned with five seeds; after three of them had run, `action-repeat-2`, which includes it, took its place. The trial `target-entropy-8` has the same parameters.
- The plan of `action-repeat-2` had five seeds and ended with seed 12, which scored far below the others.
- `small-table` was planned with five seeds; after three of them, batches of which half comes from the newest 20 000 transitions took its place, because they led to fewer falls in a trial of two seeds ([its falls](trials/README.md)). The trial `capacity-20000_target-entropy-8` has the parameters of `small-table`.
- Then the observation scale was changed and `symmetry_augmentation` was added: see the trials. The page has no setting with the defaults in between.
- The runs of `earlier-target-entropy-8` of 300 000 env steps continue those of seeds 1 to 3, as planned first. For a time, the plan named seeds 6 to 8, because the checkpoints of the others were thought to be lost; none of these was run. When the plan went back to seeds 1 to 3, their returns after 100 000 env steps were known.
- `earlier-target-entropy-8` was the default when its ablations were made. Its first three runs without `symmetry_augmentation` had a mean of +16.16. The runs with it had +16.52 with the same seeds, and +15.30 with all five. So two more seeds and 100 000 env steps were planned, to decide whether this choice stays. A rule was written before these runs: it stays if the IQM of these defaults after 100 000 env steps, +18.85, is higher by at least 1.5. The difference is 1.35, so by this rule it would go. It stays for another reason, which the rule left out: the plan of the study asks for a median of at most 30 000 env steps to +10. With it, they needed 25 000, and without it 32 500 (p = 0.09, Mann-Whitney, 5 seeds each). So the evidence for this choice is weak.
- Three runs of these defaults with a target entropy of -4 in place of -8 had a mean of +20.61 after 60 000 env steps. With -8, the same seeds had +16.52, and all five +15.30. So two more seeds and 100 000 env steps were planned. A rule was written before any of these runs had ended: -4 becomes the default if, with five seeds after 100 000 env steps, its IQM is above that with -8, and its median to +10 is at most 30 000 env steps. The checkpoints of seeds 2 and 3 were lost with their machine, so after 100 000 env steps seeds 6 and 7 take their place. The IQM is +19.35 (with -8: +18.85), and the median to +10 is 20 000 env steps (with -8: 25 000). So -4 became the default, which is also the value of TF-Agents. The difference of the means has p = 0.74 (Welch), so this does not show that -4 scores more. Four of the five runs with -4 (seeds 4 to 7) are of kind A, and all with -8 of kind B, so this compares different machines, too. On machines of one kind, both values have only seeds 1 to 3, after 60 000 env steps: +20.61 and +16.52 (p = 0.32, Welch).
- The ablations of the defaults with -8 were not finished when the default changed: five of them have runs. The ablations of the present defaults are planned anew.
- The runs of the present defaults of 300 000 env steps continue those of seeds 4 to 6, whose checkpoints were there. Their returns after 100 000 env steps were known when this was planned.
- Seeds 8 to 10 of the present defaults, 60 000 env steps, were added to the plan when 22 of the 39 ablations had run. Until then, this page compared the ablations with all seven seeds of the defaults, although three of these (1 to 3) came from another kind of machine than all ablations. Now it compares only runs from one kind of machine, so that more seeds are needed there.
- `n_step` 3 and 8 were tried only together with other changes ([trials](trials/README.md)). When all other runs had ended, two seeds of each alone were added to the plan: `n_step-3` and `n_step-8`. For a time, so were two with a warm-up of 1 000 env steps, which were not run. The trials have one run with this warm-up, which was stopped after 18 500 env steps.
- Two gradient steps per env step were planned with two seeds. There are three single runs, each with other defaults, and none of 60 000 env steps ([trials](trials/README.md)). CrossQ was planned as an experiment with labkit's code. It was run with SBX instead ([other libraries](#other-libraries-100-000-env-steps)). Its mean there is not higher than labkit's, and labkit has no CrossQ.
"""

DECISIVE = "The returns of these runs decided the choice of the target entropy (see [How the plan changed](#how-the-plan-changed)), so they may be high by chance."

# The commit is the one that tracked the run.
REPLACED = """
## Runs that were replaced

[The page of the default run](default/README.md) describes the run of the committed notebook 03, seed 0, 100 000 gradient steps. It replaced runs of the same seed:

- with defaults that came after labkit 0.1: +12.41 (commit c148c8b), +14.40 (7cf4adc), +11.31 (d7cc33b) and +18.30 (4d32ca3);
- with the defaults that became labkit 0.1: +14.62 (7940a11), +13.15 (d0022e0) and +13.00 (a0fdc4a);
- before these had five-step returns, and layer normalisation in the critics: +10.32 (917ae7b) and +8.24 (00bdad6).
"""


def budgets() -> list[int]:
    """The budgets of the defaults in env steps."""
    return sorted({job.budget for job in study.PLAN if job.setting == "defaults"})


def of(setting: str, found: Sequence[TrackedRun], budget: int) -> list[TrackedRun]:
    """The runs of a setting that have a final evaluation after `budget` env steps."""
    runs = [run for run in found if run.path.parent.name == setting]
    iterations = study.iterations(setting, budget)
    scored = [(run, run.evaluation_at(iterations)) for run in runs]
    return [run for run, row in scored if row is not None and len(row.eval_returns) >= EPISODES]


def budget_section(runs: Sequence[TrackedRun], budget: int, figure: str, detailed: bool) -> str:
    """A section about the defaults after `budget` env steps: aggregate and each seed.

    Other budgets are scores of the same runs, so only one section says how soon they learned.
    """
    iterations = study.iterations("defaults", budget)
    table = compare.scores(runs, iterations)
    values = table["return"].to_numpy()
    by_path = {run.path: run for run in runs}
    known = starts()
    rows = [
        seed_row(by_path[score.path], score, iterations)
        | {"kind": arithmetic.kind_of(by_path[score.path], known)}
        for _, score in table.iterrows()
    ]
    if detailed:
        for row, path in zip(rows, table.path, strict=True):
            row |= soon(by_path[path], iterations)
    paragraphs = [
        f"## The defaults after {grouped(budget)} env steps",
        f"{spread_of(values)}ean forward distance {table.distance.mean():.2f} m in ten seconds, "
        f"mean episode length {table.length.mean():.0f} of 1000 steps. {reached_threshold(values)}",
        speed_of_learning(runs, iterations) if detailed else "",
        chosen_by(table, budget),
        same_seeds_before(runs, budget),
        earlier_defaults(iterations),
        markdown(pd.DataFrame(rows)),
        explained(budget - iterations) if detailed else "",
        f"![Returns over env steps: {drawn(len(runs))}, and published results]({figure})",
    ]
    return "\n\n".join(text.strip() for text in paragraphs if text)


def chosen_by(table: pd.DataFrame, budget: int) -> str:
    """A paragraph on the seeds that took part in the choice of the defaults; or nothing."""
    seeds, decided = set(table.seed), set(study.DECIDED_BY)
    if budget != study.ABLATION_BUDGET:
        decisive = seeds == decided and budget == study.DECIDED_AT
        return DECISIVE if decisive else ""
    groups = (study.PROPOSED_BY, sorted(decided - set(study.PROPOSED_BY)))
    groups = (*groups, sorted(seeds - decided - set(study.PROPOSED_BY)))
    if not all(group and set(group) <= seeds for group in groups):
        return ""
    names = [listed(group) for group in groups]
    means = [f"{table['return'][table.seed.isin(group)].mean():+.2f}" for group in groups]
    return f"Some returns may be high by chance, because they took part in the choice of the target entropy: those of seeds {names[0]} (mean {means[0]}) led to its trial, and seeds {names[1]} (mean {means[1]}) were among the five that decided it after {grouped(study.DECIDED_AT)} env steps. Seeds {names[2]} had no part in it (mean {means[2]})."


def same_seeds_before(runs: Sequence[TrackedRun], budget: int) -> str:
    """A sentence: the same runs after the smallest budget, which has other seeds, too; or nothing."""
    shortest = study.ABLATION_BUDGET
    table = compare.scores(of("defaults", runs, shortest), study.iterations("defaults", shortest))
    if budget <= shortest or len(table) < len(runs):
        return ""
    values = list(table["return"])
    kind = "an interquartile mean" if len(values) >= study.SEEDS else "a mean"
    mean = statistics.interquartile_mean(values) if len(values) >= study.SEEDS else np.mean(values)
    return f"After {grouped(shortest)} env steps, the same runs had {kind} of {mean:+.2f}."


def explained(warm_up: int) -> str:
    """What the numbers of the sections are, and what was published; `warm_up` in env steps."""
    tutorial_steps, tutorial_return = run_plots.PUBLISHED_CURVE[-1]
    return f"""
The first {grouped(warm_up)} env steps are warm-up with random actions; one gradient step follows each later env step. A run is evaluated every
2 500 env steps, on five episodes. A return counts as reached when two consecutive evaluations have at least that mean. "Steps to" gives the env step
of the first of the two. "Minutes to" is the training time until then, without evaluations and without the warm-up, which no run timed ({warm_up_seconds()} s in the committed notebook 03). The machines were shared with other work. "Kind" is the kind of machine ([see below](#made-with)). The other sections score the same runs after other budgets; a seed that a section does not list was not trained for so long.

Published: [PPO2]({PPO2_SOURCE}) {PPO2:+.2f} ± {PPO2_SD} after 2 000 000 steps (one run, ± sd of its episodes), [SAC]({SAC_SOURCE}) {SAC_PUBLISHED:+.2f} after about {grouped(SAC_STEPS)} (one run, mean of its last 100 training episodes), evolution strategies at best [{ES:+.2f}]({ES_SOURCE}) (the library estool, whose episodes last up to {comparison_plots.ESTOOL_STEPS} steps), \
the TF-Agents tutorial {tutorial_return:+.2f} after {grouped(tutorial_steps + run_plots.PUBLISHED_INITIAL_STEPS)} (sampled actions).
"""


def drawn(count: int) -> str:
    """What the figure of so many seeds draws, for its caption; see `aggregate`."""
    mean = "" if count == 1 else f", their {'interquartile ' * (count > 3)}mean"
    return counted(count, "seed") + mean


def earlier_defaults(iterations: int) -> str:
    """A paragraph with the returns of labkit 0.1's defaults after as many env steps; or nothing."""
    folder = ROOT / "results" / "minitaur" / "v0.1" / "study" / "defaults"
    if not folder.is_dir():
        return ""
    shorter = EARLIER_WARM_UP - SACConfig().initial_collect_steps
    table = compare.scores(compare.find_runs(folder)[0], iterations - shorter)
    values = list(table[table.seed.isin(range(1, study.SEEDS + 1))]["return"])
    if len(values) < study.SEEDS:
        return ""
    return f"""
The defaults of labkit 0.1 after as many env steps: {aggregate(values)} ([their page](v0.1/README.md)). Their commits were not recorded, and their
machines may round differently, so no test compares them with these.
"""


def seed_row(run: TrackedRun, score: pd.Series, iterations: int) -> dict[str, str]:
    """The row of one seed."""
    episodes = np.array(run.evaluation_at(iterations).eval_returns)
    return {
        "seed": str(score.seed),
        "return (± sd of episodes)": f"{score['return']:+.2f} ± {episodes.std(ddof=1):.2f}",
        "worst, best episode": f"{episodes.min():+.2f}, {episodes.max():+.2f}",
        "distance": f"{score.distance:.2f} m",
        "length": f"{score.length:.0f} of 1000",
    }


def soon(run: TrackedRun, iterations: int) -> dict[str, str]:
    """How soon a run learned: further columns of its row."""
    reached = milestones.first_sustained(run, WALKING, budget=iterations)
    minutes = minutes_to(run, reached)
    return {
        "steps to +5": steps(run, 5, iterations),
        "steps to +10": steps(run, WALKING, iterations),
        "minutes to +10": "–" if np.isnan(minutes) else f"{minutes:.1f}",
    }


def speed_of_learning(runs: Sequence[TrackedRun], iterations: int) -> str:
    """A paragraph: how many env steps and minutes the runs took to walk, median and worst."""
    reached = [milestones.first_sustained(run, WALKING, budget=iterations) for run in runs]
    known = sorted(np.inf if steps is None else float(steps) for steps in reached)
    median = float(np.median(known))
    never = sum(not np.isfinite(value) for value in known)
    middle = f"{grouped(int(median))} env steps" if np.isfinite(median) else "not reached"
    slowest = (
        f"{never} of {counted(len(runs), 'run')} never reached it"
        if never
        else f"the slowest run took {grouped(int(known[-1]))}"
    )
    minutes = [minutes_to(run, steps) for run, steps in zip(runs, reached, strict=True)]
    timed = (
        ""
        if np.isnan(minutes).any()
        else f" In minutes of training: {np.median(minutes):.1f}; at most {max(minutes):.1f}."
    )
    return f"The median over the runs to reach {WALKING:+.0f}: {middle}; {slowest}.{timed}"


def minutes_to(run: TrackedRun, env_step: int | None) -> float:
    """Minutes of training until `env_step`; NaN for None. See `milestones.training_seconds`."""
    return milestones.training_seconds(run, env_step) / 60 if env_step else float("nan")


def warm_up_seconds() -> str:
    """How long the warm-up of the committed notebook 03 took, as it prints it."""
    text = (ROOT / "notebooks" / "03_sac_minitaur.ipynb").read_text()
    return re.findall(r"warm-up: 5 000 env steps in ([\d.]+) s", text)[-1]


def steps(run: TrackedRun, level: float, iterations: int) -> str:
    """See `milestones.first_sustained`; – where there is none."""
    reached = milestones.first_sustained(run, level, budget=iterations)
    return "–" if reached is None else grouped(reached)


def reached_threshold(values: Sequence[float]) -> str:
    """How many runs reached the return that the environment registers as solved."""
    reached = sum(value >= THRESHOLD for value in values)
    return (
        f"Gym counts this environment as solved at a return of {THRESHOLD} (its `reward_threshold`); {reached} of "
        f"{counted(len(values), 'run')} reached it."
    )


def spread_of(values: np.ndarray) -> str:
    """Aggregates of several seeds and the beginning of a sentence; for one seed only "M"."""
    if len(values) == 1:
        return "M"
    iqm = f"Interquartile mean of the returns {aggregate(values)}. " if len(values) >= 5 else ""
    spread = f"Mean {values.mean():+.2f}, worst seed {values.min():+.2f}, best {values.max():+.2f}"
    return f"{iqm}{spread}; m"


def setting_scores(found: Sequence[TrackedRun], budget: int) -> pd.DataFrame:
    """See `compare.scores`; with the names of `study.SETTINGS`, and two more columns.

    `soon` is the number of env steps to +10, and `kind` the kind of machine (see `arithmetic`).
    """
    tables = [compare.scores([], budget).assign(soon="", kind="")]  # in case there is no run
    known = starts()
    for name in study.SETTINGS:
        iterations = study.iterations(name, budget)
        runs = of(name, found, budget)
        soon = {run.path: steps(run, WALKING, iterations) for run in runs}
        table = compare.scores(runs, iterations)
        kinds = {run.path: arithmetic.kind_of(run, known) for run in runs}
        more = {"soon": table.path.map(soon), "kind": table.path.map(kinds)}
        tables.append(table.assign(setting=name, **more))
    return pd.concat(tables, ignore_index=True)


def every_score(found: Sequence[TrackedRun]) -> pd.DataFrame:
    """The scores of all budgets in one table, a row for each run and budget.

    The columns are setting, seed, env_steps, return (mean of the episodes), return_sd (their
    sample standard deviation), length, distance (metres), episodes, steps_to_10 and kind; see
    `setting_scores`.
    """
    tables = []
    returns = {run.path: run for run in found}
    for budget in budgets():
        table = setting_scores(found, budget)
        last = [
            returns[path].evaluation_at(study.iterations(name, budget)).eval_returns
            for path, name in zip(table.path, table.setting, strict=True)
        ]
        sds = [np.std(episodes, ddof=1) for episodes in last]
        steps = table.soon.str.replace(" ", "").replace("–", "")
        tables.append(table.assign(env_steps=budget, return_sd=sds, steps_to_10=steps))
    columns = [*("setting", "seed", "env_steps", "return", "return_sd", "length"), "distance"]
    table = pd.concat(tables)[[*columns, "episodes", "steps_to_10", "kind"]]
    return table.infer_objects().round(4)


def starts() -> dict[tuple[Any, ...], float]:
    """The returns before training on the machine that measured them; see `results.starts`."""
    return arithmetic.read_starts(ROOT / "results" / "minitaur" / "study")


def longer_runs(found: Sequence[TrackedRun]) -> str:
    """A section with the other settings after more steps than an ablation, next to the defaults; or nothing."""
    rows = []
    for budget in budgets():
        table = setting_scores(found, budget)
        if budget == study.ABLATION_BUDGET or set(table.setting) <= {"defaults"}:
            continue
        for name, group in table.groupby("setting", sort=False):
            values = group["return"].to_list()
            enough = len(values) >= study.SEEDS
            rows.append(
                {
                    "setting": name,
                    "env steps": grouped(budget),
                    "seeds": listed([str(seed) for seed in group.seed]),
                    "returns": ", ".join(f"{value:+.2f}" for value in values),
                    "mean": f"{np.mean(values):+.2f}",
                    "IQM": f"{statistics.interquartile_mean(values):+.2f}" if enough else "",
                    "steps to +10": ", ".join(group.soon),
                }
            )
    if not rows:
        return ""
    return f"## Other settings after more env steps\n\n{markdown(pd.DataFrame(rows))}"


def not_run(found: Sequence[TrackedRun]) -> str:
    """A section that lists the planned runs without a result."""
    missing: dict[tuple[str, int], list[str]] = {}
    for job in study.PLAN:
        if job.seed not in {run.config.seed for run in of(job.setting, found, job.budget)}:
            missing.setdefault((job.setting, job.budget), []).append(str(job.seed))
    lines = "\n".join(
        f"- {setting}, {grouped(budget)} env steps: seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"
        for (setting, budget), seeds in missing.items()
    )
    lines = lines or "None: every planned run is finished."
    return f"## Not run\n\nPlanned in [scripts/study.py](../../scripts/study.py), but not run yet:\n\n{lines}\n{unfinished(found)}"


def unfinished(found: Sequence[TrackedRun]) -> str:
    """A paragraph on tracked runs without any final evaluation, which no score includes; or nothing."""
    every = {job.budget for job in study.PLAN}
    lines = [
        f"- {run.path.parent.name}, seed {run.config.seed}: {grouped(int(run.metrics.env_step.max()))} env steps"
        for run in found
        if run.path.parent.name in study.SETTINGS
        and not any(of(run.path.parent.name, [run], budget) for budget in every)
    ]
    if not lines:
        return ""
    return "\nBegun, but not finished, so that no score includes them:\n\n" + "\n".join(lines)
