"""The sections about single choices on the study's page; see results_page.py."""

# ruff: noqa: E501 (the lines of the page)

from typing import NamedTuple

import numpy as np
import pandas as pd
import study

from benchmarks.page_text import counted, markdown
from labkit.analysis import arithmetic, statistics
from labkit.parameters import brief, grouped

WARM_UP = "no-initial_collect_steps"


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
## Other settings, {grouped(study.ABLATION_BUDGET)} env steps

This table has the settings with two seeds or more{"; the next one has those with one" if single else ""}. Each `no-` row is an ablation: it sets one choice to the source document's value, and keeps labkit's values for all others. `source` has every hyperparameter of
the source document. The `earlier-` rows were the defaults for a time. `target-entropy-8`, `action-repeat-2` and `small-table` were tried in place of `earlier-uniform`. `small-table` was the default for an hour and a half; none of the three stayed. `n_step-3` and `n_step-8` have another number of steps in a return, and nothing else changed. `source` treats time limits as truncations. So does the text of the tutorial; the tutorial's code treats them as
terminations. "Steps to +10" is defined as above (–: never reached). The rows are sorted by the mean.

"Minus defaults" is the difference of the means with its 95 % interval, and p the p-value of Welch's t-test. They compare no runs from machines that are known to round differently: "runs" gives how many of the setting, how many of the defaults, and
the kind of machine ([see below](#made-with)). Runs of kind B may come from more than one kind, so tests of B against B are weaker evidence. {power_of(table)} {tests_of(table)}

{rows_of(several(table))}

![Each run's return by setting, best setting first]({figure})
{single}{earlier_ablations(of_earlier)}
{REASONS.replace("<WARM-UP>", warm_up(table)).replace("<RULE>", kept(table))}
"""


def kept(table: pd.DataFrame) -> str:
    """Why choices stay whose ablations show no effect; or nothing, without ablations."""
    pairs = {name: pair for name, pair in with_test(table).items() if name.startswith("no-")}
    if not pairs:
        return ""
    clear = sum(pair.p < 0.05 for pair in pairs.values())
    after = sum(corrected(table)[name] < 0.05 for name in pairs)
    lower = sum(np.mean(pair.ours) < np.mean(pair.theirs) for pair in pairs.values())
    return f"""
The plan of the study asked that a choice without an effect at three seeds goes back to the tutorial's value. {clear} of the {len(pairs)} ablations have a p-value below 0.05 before the correction, and {after} after it. But three seeds show only large effects, and {lower} of the ablations have a lower mean than the defaults on machines of the same kind. So no choice went back for lack of an effect, although for most of them none is shown."""


def warm_up(table: pd.DataFrame) -> str:
    """What the ablation of the warm-up shows: final returns, and steps to +10."""
    pair = compared(table).get(WARM_UP)
    if pair is None or not pair.is_tested:
        return "No ablation has tested this."
    alike = table[table.kind == pair.kind]
    longer, shorter = (
        alike.soon[alike.setting == name].str.replace(" ", "").replace("–", "inf").astype(float)
        for name in (WARM_UP, "defaults")
    )
    return (
        f"The ablation shows no benefit in the final return: the mean of {len(pair.ours)} seeds with 10 000 is {np.mean(pair.ours):+.2f}, that of {len(pair.theirs)} seeds with 5 000 on machines of the same kind {np.mean(pair.theirs):+.2f}. "
        f"The median to +10 is {grouped(round(longer.median()))} env steps with 10 000 and {grouped(round(shorter.median()))} with 5 000. "
        "With so few seeds, both differences may be chance. The value stays because the robots with it walk sooner, and because all runs of the defaults have it."
    )


def earlier_ablations(table: pd.DataFrame) -> str:
    """The section about ablations of the last earlier defaults; or nothing."""
    base = study.LAST_EARLIER
    if set(table.setting) <= {base}:
        return ""
    return f"""
## Ablations of earlier defaults, {grouped(study.ABLATION_BUDGET)} env steps

These runs were made when the target entropy of the defaults was -8. Each row but `{base}` sets one more choice to the source document's value. The differences and tests compare with `{base}`; Holm's correction is for {counted(len(with_test(table, base)), "test")}.

{rows_of(several(table, base), base)}
"""


class Compared(NamedTuple):
    """A setting next to the baseline, on one kind of machine."""

    kind: str  # of machine, see `arithmetic`
    ours: list[float]  # final returns of the setting
    theirs: list[float]  # of the baseline

    @property
    def is_tested(self) -> bool:
        """Whether each has two runs or more."""
        return min(len(self.ours), len(self.theirs)) > 1

    @property
    def p(self) -> float:
        """Of Welch's test."""
        return statistics.welch(self.ours, self.theirs)


def compared(table: pd.DataFrame, base: str = "defaults") -> dict[str, Compared]:
    """Each setting next to `base`, by name; see `arithmetic.alike`."""
    values = {
        str(name): list(zip(runs.kind, runs["return"], strict=True))
        for name, runs in table.groupby("setting")
    }
    theirs = values.pop(base, [])
    return {name: Compared(*arithmetic.alike(ours, theirs)) for name, ours in values.items()}


def with_test(table: pd.DataFrame, base: str = "defaults") -> dict[str, Compared]:
    """The settings that a test compares with `base`."""
    return {name: pair for name, pair in compared(table, base).items() if pair.is_tested}


def corrected(table: pd.DataFrame, base: str = "defaults") -> dict[str, float]:
    """The p-value of each tested setting after Holm's correction."""
    pairs = with_test(table, base)
    return dict(zip(pairs, statistics.holm([pair.p for pair in pairs.values()]), strict=True))


def power_of(table: pd.DataFrame) -> str:
    """A sentence on what the tests can detect, for three seeds of a setting; or nothing."""
    pairs = with_test(table)
    if not pairs:
        return ""
    count = max(len(pair.theirs) for pair in pairs.values())
    power = statistics.power(2.0, (1.0, 1.0), (count, 3), 0.05 / len(pairs))
    return (
        f"With three seeds against {count} of the defaults, the strictest of these tests detects a true difference of two standard deviations with a probability of {power:.0%}. "
        "So a large p-value does not show that a choice has no effect."
    )


def tests_of(table: pd.DataFrame) -> str:
    """A paragraph on the correction, and what another test says; or nothing."""
    pairs = with_test(table)
    if not pairs:
        return ""
    counts = tuple(sorted((len(pair.ours), len(pair.theirs)) for pair in pairs.values()))
    alike, wider = (statistics.family_error(counts, spread) for spread in (1.0, 2.0))
    trimmed = [statistics.iqm_difference(pair.ours, pair.theirs)[2] for pair in pairs.values()]
    below = {
        name: sum(p < 0.05 for p in statistics.holm(values))
        for name, values in (("mean", [pair.p for pair in pairs.values()]), ("IQM", trimmed))
    }
    return f"""
"p, corrected" is this p-value after Holm's correction for
{counted(len(pairs), "test")}. If no setting differed from the defaults, any corrected value would be below 0.05 in {alike:.0%} of such studies (simulated with normal returns), and in {wider:.0%} if the returns of the other settings varied twice as much as those of the defaults.
Corrected values below 0.05: {below["mean"]}. With Yuen's tests of the IQM, there would be {below["IQM"]}. From four seeds on, these tests use only the middle half of the seeds, so they detect less."""


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
## Settings with one run, {grouped(study.ABLATION_BUDGET)} env steps

Two seeds of one setting differ by up to {seeds_apart(table):.1f} here, so one run cannot say whether a setting is better than the defaults.

{markdown(pd.DataFrame(rows))}
"""


def seeds_apart(table: pd.DataFrame) -> float:
    """The largest difference between two runs of one setting; 0 if no setting has two."""
    returns = table.groupby("setting")["return"]
    return float((returns.max() - returns.min()).max())


def rows_of(table: pd.DataFrame, base: str = "defaults") -> str:
    """A row for each setting, the highest mean first, compared with `base`."""
    pairs, after = compared(table, base), corrected(table, base)
    means = table.groupby("setting")["return"].mean().sort_values(ascending=False, kind="stable")
    rows = []
    for name in map(str, means.index):
        runs = table[table.setting == name].sort_values("seed", kind="stable")
        rows.append(
            {
                "setting": name,
                "changed": changed(name),
                "seeds": ", ".join(map(str, runs.seed)),
                "returns": " ".join(f"{value:+.2f}" for value in runs["return"]),
                "mean": f"{means[name]:+.2f}",
                **difference(pairs.get(name), base),
                "p, corrected": f"{after[name]:.2g}" if name in after else "",
                "length": f"{runs.length.mean():.0f}",
                "steps to +10": ", ".join(runs.soon),
            }
        )
    return markdown(pd.DataFrame(rows))


def difference(pair: Compared | None, base: str) -> dict[str, str]:
    """The columns that compare a setting with `base`; empty without a run of each."""
    columns = [f"minus {base}", "runs", "p"]
    if pair is None or not pair.ours or not pair.theirs:
        return dict.fromkeys(columns, "")
    runs = f"{len(pair.ours)} / {len(pair.theirs)}, {pair.kind}"
    if not pair.is_tested:
        mean = sum(pair.ours) / len(pair.ours) - sum(pair.theirs) / len(pair.theirs)
        return dict(zip(columns, (f"{mean:+.2f}", runs, ""), strict=True))
    mean, (low, high), p = statistics.mean_difference(pair.ours, pair.theirs)
    cells = (f"{mean:+.2f} ({low:+.2f} to {high:+.2f})", runs, f"{p:.2g}")
    return dict(zip(columns, cells, strict=True))


def changed(name: str) -> str:
    """The parameters of a setting, for a table; the long observation scale is abbreviated."""
    given = study.SETTINGS[name].items()
    known = {str(study.EARLIER_SCALE): brief(study.EARLIER_SCALE)}
    return ", ".join(f"`{key} {known.get(value, value)}`" for key, value in given) or "nothing"


REASONS = """
## The choices

<RULE>

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
- **Warm-up** of 5 000 env steps; the tutorial has 10 000. Random actions hardly move the robot, so a shorter warm-up leaves more steps for useful experience. <WARM-UP>
- **Delayed actor**: the actor and the temperature take a gradient step after every second step of the critics ([Fujimoto et al., 2018](https://arxiv.org/abs/1802.09477)). It saves arithmetic.
- **Normalised critics**: layer normalisation limits how far the critics extrapolate to actions that were never tried.
"""
