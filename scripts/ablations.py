"""The sections about ablations and repeated machines on the study's page; see results_page.py."""

# ruff: noqa: E501 (the lines of the page)

import json
from collections import defaultdict
from collections.abc import Sequence

import pandas as pd
import study

from benchmarks.page_text import counted, listed, markdown, spaced
from labkit.analysis import compare, statistics
from labkit.analysis.compare import TrackedRun
from labkit.parameters import brief
from labkit.training import provenance

# Of runs that were made before the history was written anew.
LOST_COMMITS = ("bac51d2", "b0b8037", "14499d4", "4187a26", "bd28832")
PRECISION = 9  # decimals; the kinds of arithmetic seen so far differ in the fifth or sixth


def section(table: pd.DataFrame, figure: str) -> str:
    """The section about single choices.

    Args:
        table: see `results_page.setting_scores`.
        figure: file name of the ranking.
    """
    earlier = table.setting.isin([*study.EARLIER_ABLATIONS, study.LAST_EARLIER])
    of_earlier = table[earlier]
    table = table[~table.setting.isin(list(study.EARLIER_ABLATIONS))]
    single = single_runs(table)
    return f"""
## Other settings, {spaced(study.ABLATION_BUDGET)} env steps

This table has the settings with two seeds or more{"; the next one has those with one" if single else ""}. Each `no-` row is an ablation: it sets one choice to the source document's value, and keeps labkit's values for all others. `source` has every hyperparameter of
the source document. The `earlier-` rows were the defaults for a time. `target-entropy-8`, `action-repeat-2` and `small-table` were tried in place of `earlier-uniform`. `small-table` was the default for an hour and a half; none of the three stayed. `source` treats time limits as truncations. So does the text of the tutorial; the tutorial's code treats them as
terminations. "Steps to +10" is defined as above (–: never reached). The rows are sorted by the IQM, which for three seeds or fewer is the mean.

"Minus defaults" is the difference of the means, with the p-value of Welch's t-test. "p, corrected" is this p-value after Holm's correction for
{counted(len(p_values_of(table)), "test")}. If no setting differs from the defaults, the probability that any corrected value is below 0.05 is at most 5 %. The tests mix runs of several machines, which may round differently (see the end of this page). {power_of(table)}

{rows_of(several(table))}

![Each run's return by setting, best setting first]({figure})
{single}
{earlier_ablations(of_earlier)}
{REASONS}
"""


def earlier_ablations(table: pd.DataFrame) -> str:
    """The section about ablations of the last earlier defaults; or nothing."""
    base = study.LAST_EARLIER
    if set(table.setting) <= {base}:
        return ""
    return f"""
## Ablations of earlier defaults, {spaced(study.ABLATION_BUDGET)} env steps

These runs were made when the target entropy of the defaults was -8. Each row but `{base}` sets one more choice to the source document's value. The differences and tests compare with `{base}`; Holm's correction is for {counted(len(p_values_of(table, base)), "test")}.

{rows_of(several(table, base), base)}
"""


def power_of(table: pd.DataFrame) -> str:
    """A sentence on what the tests can detect, for three seeds of a setting; or nothing."""
    count, tests = int((table.setting == "defaults").sum()), len(p_values_of(table))
    if count < 2 or not tests:
        return ""
    power = statistics.power(2.0, (1.0, 1.0), (count, 3), 0.05 / tests)
    return (
        f"With three seeds against the {count} of the defaults, the strictest of these tests detects a true difference of two standard deviations with a probability of {power:.0%}. "
        "So a large p-value does not show that a choice has no effect."
    )


def several(table: pd.DataFrame, base: str = "defaults") -> pd.DataFrame:
    """The runs of the settings that have two or more, and of `base`."""
    counts = table.groupby("setting")["return"].transform("size")
    return table[(counts > 1) | (table.setting == base)]


def single_runs(table: pd.DataFrame) -> str:
    """A section with the settings that have one run, by name and not ranked; or nothing."""
    single = table[~table.index.isin(several(table).index)].sort_values("setting")
    if single.empty:
        return ""
    rows = [
        {
            "setting": run.setting,
            "changed": changed(run.setting),
            "seed": run.seed,
            "return": f"{run.eval_return:+.2f}",
            "length": f"{run.length:.0f}",
            "steps to +10": run.soon,
        }
        for run in single.rename(columns={"return": "eval_return"}).itertuples()
    ]
    return f"""
## Settings with one run, {spaced(study.ABLATION_BUDGET)} env steps

Two seeds of one setting differ by up to {seeds_apart(table):.1f} here, so one run cannot say whether a setting is better than the defaults.

{markdown(pd.DataFrame(rows))}
"""


def seeds_apart(table: pd.DataFrame) -> float:
    """The largest difference between two runs of one setting; 0 if no setting has two."""
    returns = table.groupby("setting")["return"]
    return float((returns.max() - returns.min()).max())


def p_values_of(table: pd.DataFrame, base: str = "defaults") -> dict[str, float]:
    """The p-value of each setting that has, as `base` has, two runs or more."""
    values = {str(name): list(runs["return"]) for name, runs in table.groupby("setting")}
    compared = values.pop(base, [])
    enough = {name: runs for name, runs in values.items() if min(len(runs), len(compared)) > 1}
    return {name: statistics.welch(runs, compared) for name, runs in enough.items()}


def rows_of(table: pd.DataFrame, base: str = "defaults") -> str:
    """A row for each setting, best first, compared with `base`."""
    p_values = p_values_of(table, base)
    corrected = dict(zip(p_values, statistics.holm(list(p_values.values())), strict=True))
    rows = []
    for name, score in compare.rank(table).iterrows():
        runs = table[table.setting == name].sort_values("seed", kind="stable")
        rows.append(
            {
                "setting": name,
                "changed": changed(str(name)),
                "seeds": ", ".join(map(str, runs.seed)),
                "returns": " ".join(f"{value:+.2f}" for value in runs["return"]),
                "IQM": f"{score.iqm:+.2f}",
                f"minus {base}": minus(table, str(name), p_values, base),
                "p, corrected": f"{corrected[name]:.2g}" if name in corrected else "",
                "length": f"{runs.length.mean():.0f}",
                "steps to +10": ", ".join(runs.soon),
            }
        )
    return markdown(pd.DataFrame(rows))


def minus(table: pd.DataFrame, name: str, p_values: dict[str, float], base: str) -> str:
    """The difference between the means of a setting and of `base`, with its p-value."""
    means = table.groupby("setting")["return"].mean()
    if name == base or base not in means:
        return ""
    text = f"{means[name] - means[base]:+.2f}"
    return text + (f" (p = {p_values[name]:.2g})" if name in p_values else "")


def changed(name: str) -> str:
    """The parameters of a setting, for a table; the long observation scale is abbreviated."""
    given = study.SETTINGS[name].items()
    known = {str(study.EARLIER_SCALE): brief(study.EARLIER_SCALE)}
    return ", ".join(f"`{key} {known.get(value, value)}`" for key, value in given) or "nothing"


def machines(found: Sequence[TrackedRun]) -> str:
    """A section with the packages, commits and CPUs of the runs, and whether machines agreed.

    Networks start from the seed alone. So two runs of one seed, one observation scale and one
    action repeat act alike before training, up to the rounding of the CPU, which the physics amplifies.
    """
    contents = {run.path: json.loads((run.path / "config.json").read_text()) for run in found}
    versions = sorted(
        {", ".join(f"{n} {v}" for n, v in c["versions"].items() if v) for c in contents.values()}
    )
    places = defaultdict[str, list[str]](list)
    for run in found:
        places[provenance.in_words(contents[run.path])].append(name_of(run))
    lines = [f"- {line}" for line in versions]
    lost = [commit for commit in LOST_COMMITS if any(commit in place for place in places)]
    lines += [f"- {place}: {listed(names)}" for place, names in sorted(places.items())]
    known = (
        f"\n\nThe commits {listed(lost)} are no longer in the history, so the code of their runs cannot be checked out."
        if lost
        else ""
    )
    return "## Made with\n\n" + "\n".join(lines) + known + "\n\n" + rounding(found)


def name_of(run: TrackedRun) -> str:
    """`defaults 3`: its setting and its seed."""
    return f"{run.path.parent.name} {run.config.seed}"


def rounding(found: Sequence[TrackedRun]) -> str:
    """Whether runs of one seed begin with equal returns, as on machines that round alike."""
    begins = defaultdict[tuple[int, tuple[float, ...], int], dict[float, list[str]]](
        lambda: defaultdict(list)
    )
    for run in found:
        if (start := run.evaluation_at(0)) is not None:
            key = run.config.seed, run.config.observation_scale, run.config.action_repeat
            begins[key][round(float(start.eval_return), PRECISION)].append(name_of(run))
    several = {key: kinds for key, kinds in begins.items() if sum(map(len, kinds.values())) > 1}
    differing = [kinds for kinds in several.values() if len(kinds) > 1]
    if not differing:
        compared = counted(len(several), "seed") + " with several runs"
        return (
            f"Before training, runs of one seed, observation scale and action repeat have equal returns to {PRECISION} decimals ({compared}): "
            "nothing shows that their machines round differently."
        )
    groups = "; ".join(
        ", but ".join(f"{value:.6f} in {listed(names)}" for value, names in kinds.items())
        for kinds in differing
    )
    return (
        "Before training, runs of one seed, observation scale and action repeat should have the same return. Some do not, so their machines probably round differently, even if the CPUs have "
        f"the same name: {groups}. A comparison of runs from both kinds of machines compares the machines, too."
    )


REASONS = """
## The choices

The reason for each choice:

- **Reward scale and initial temperature** together set the weight of the reward against the entropy bonus. The Minitaur's reward is about 0.02 a
  step when it walks, and about 0.002 in absolute value for random actions (notebook 03 measures it). At α = 1 the entropy bonus is about 5 a step (eight actions between -1 and 1, in nats), so the return that the critic learns is
  almost all entropy. With a scale of 20 and log α = -4, reward and bonus have a similar magnitude from the first step.
- **Observation scale**: under random actions, motor velocities vary by 13 rad/s, motor angles by 0.3 rad, and the three components of the base's quaternion that tell its tilt and heading by 0.02 to 0.09. Without scaling, the
  velocities dominate the input of the first layer. The divisors bring angles, velocities, torques and tilt to a similar size: after the division, angles and tilt vary about half as much as velocities (notebook 03 measures this). The earlier scale divided angles by 3.14 and the quaternion by 1, so after the division both varied by about a tenth of what the velocities did.
- **Replay capacity**: with the source document's 10 000, each transition is overwritten 10 000 steps after it was stored. labkit keeps 1 000 000.
- **Recent transitions**: a transition holds the rewards of five steps of the policy that collected it. Nothing corrects them for a later policy, so an old transition says too little about what
  the present policy earns. A table of the newest 20 000 alone (`small-table`) learns fast, but its robots still fell late in training, perhaps because it forgets what earlier falls taught (the [trials](trials/README.md) count the falls of one seed). So half of each batch comes from the newest
  20 000 transitions, and half from all (compare [Wang and Ross, 2019](https://arxiv.org/abs/1906.04009)).
- **Symmetry augmentation**: the mirror image of what the robot did is something it could have done, too. So every second transition of a batch is reflected ([Mishra et al., 2019](https://arxiv.org/abs/1910.00528)), and what the robot learns for one leg, it learns for the opposite leg.
- **Target entropy** of -4 is TF-Agents' default, minus half a nat for each dimension of the action. It asks for more noise in the actions than minus one nat ([Haarnoja et al., 2018](https://arxiv.org/abs/1812.05905)), which was labkit's default before (`earlier-target-entropy-8`).
- **n-step returns**: an action lasts 10 ms and moves a walking robot by one to three centimetres. The sum of five rewards carries more signal than a single one.
  One update also carries a value back over five states instead of one, so a value needs only a fifth as many updates to reach an earlier state.
- **Discount**: at 0.99 per step of 10 ms, the horizon is about one second, so a fall loses about one second of reward. At 0.995 the horizon is two seconds.
- **Learning rates** of 1e-3 learn fast, but late in training they make the policy change much between two evaluations. So they decay: those of the critics to a half after 20 000
  gradient steps, to a third after 40 000, those of the actor and the temperature, which take every second step, half as fast. The formula 1 / (1 + t / 20 000) does not depend on the length of the run, so a run can be continued.
- **Warm-up** of 5 000 env steps; the tutorial has 10 000. Random actions hardly move the robot, so a shorter warm-up leaves more steps for useful experience.
- **Delayed actor**: the actor and the temperature take a gradient step after every second step of the critics ([Fujimoto et al., 2018](https://arxiv.org/abs/1802.09477)). It saves arithmetic.
- **Normalised critics**: layer normalisation limits how far the critics extrapolate to actions that were never tried.
"""
