"""The section about ablations on the page of the Minitaur study; see results_page.py."""

# ruff: noqa: E501 (the lines of the page)

import itertools
import re

import numpy as np
import pandas as pd
import study

from benchmarks.page_text import counted, listed, markdown, spaced
from labkit.analysis import compare, statistics

AGAIN = "-again"  # the suffix of settings that repeat seeds of another one


def section(table: pd.DataFrame, longer: pd.DataFrame, explained: str, figure: str) -> str:
    """A section about single choices, and those that were run to a larger budget.

    Args:
        table: see `results_page.setting_scores`.
        longer: the same after more env steps.
        explained: what groups A and B are; see `arithmetic.paragraph`.
        figure: file name of the ranking.
    """
    extended = ""
    if set(longer.setting) - {"defaults"}:
        extended = (
            f"### After {spaced(study.LONGER_BUDGET)} env steps\n\n{group_tables(longer)}\n\n"
        )
    from_source = table.setting.str.startswith("source")
    return f"""
## Ablations: single choices, {spaced(study.ABLATION_BUDGET)} env steps

Each `no-` row ablates one choice: it has the source document's value, and all others keep labkit's. `one-step-plain` ablates two, n-step returns and normalised critics; its runs predate
these parameters and used equivalent code. Each other row changes one value on which the source document and labkit agree. Steps to +5 are the env steps at the first evaluation, every 10 000 gradient steps, with at least that mean (–: none).

{explained}

"Minus defaults" is the difference of the means, with the p-value of Welch's t-test where both have two runs or more. A row with one run has no p-value and is weak evidence. Runs that repeat a seed count as separate runs.{chance(rows_tested(table[~from_source]))}

{repeats(table)}

{group_tables(table[~from_source])}

{extended}{source_section(table)}

![Each run's return by setting and group, best setting first]({figure})

{reasons(table)}
"""


def chance(tests: int) -> str:
    """How likely one of several independent tests finds a difference where there is none."""
    if tests < 2:
        return ""
    return f" Of {tests} independent tests at level 0.05, one or more find a difference that does not exist with a probability of {1 - 0.95**tests:.0%}."


def rows_tested(table: pd.DataFrame) -> int:
    """How many rows of `group_tables` have a p-value."""
    counts = table.groupby(["arithmetic", "base"]).size()
    enough = [key for key, count in counts.items() if count > 1 and key[1] != "defaults"]
    return sum(counts.get((group, "defaults"), 0) > 1 for group, _ in enough)


def group_tables(table: pd.DataFrame) -> str:
    """One Markdown table for each group of runs, each compared with its own defaults."""
    if table.arithmetic.nunique() < 2:
        return rows_of(table, table)
    return "\n\n".join(
        f"Group {group}:\n\n{rows_of(members, members)}"
        for group, members in table.groupby("arithmetic")
    )


def rows_of(table: pd.DataFrame, group: pd.DataFrame) -> str:
    """A row for each setting of `table`, best first; the defaults are those of `group`."""
    defaults = group["return"][group.base == "defaults"]
    rows = []
    for name, score in compare.rank(table.assign(setting=table.base)).iterrows():
        runs = table[table.base == name].sort_values("seed", kind="stable")
        rows.append(
            {
                "setting": name,
                "changed": changed(str(name)),
                "seeds": ", ".join(map(str, runs.seed)),
                "returns": " ".join(f"{value:+.2f}" for value in runs["return"]),
                "IQM": f"{score.iqm:+.2f}",
                "minus defaults": "" if name == "defaults" else minus(runs["return"], defaults),
                "length": f"{runs.length.mean():.0f}",
                "steps to +5": ", ".join(runs.soon.replace("not reached", "–")),
            }
        )
    return markdown(pd.DataFrame(rows))


def minus(values: pd.Series, defaults: pd.Series) -> str:
    """The difference of the means, and its p-value if both have two values or more."""
    if defaults.empty:
        return "–"
    text = f"{values.mean() - defaults.mean():+.2f}"
    if min(len(values), len(defaults)) > 1:
        text += f" (p = {statistics.welch(list(values), list(defaults)):.2g})"
    return text


def differences(table: pd.DataFrame, same_seed: bool) -> dict[str, list[float]]:
    """Differences between the returns of two runs of one setting, for every pair of runs.

    Returns:
        `same` for pairs of one kind of arithmetic, `other` for pairs of two kinds.
    """
    found: dict[str, list[float]] = {"same": [], "other": []}
    for _, runs in table.groupby("base"):
        for (_, one), (_, two) in itertools.combinations(runs.iterrows(), 2):
            if (one.seed == two.seed) == same_seed:
                kind = "same" if one.arithmetic == two.arithmetic else "other"
                found[kind].append(abs(one["return"] - two["return"]))
    return {kind: sorted(values) for kind, values in found.items()}


def repeats(table: pd.DataFrame, brief: bool = False) -> str:
    """What repeated runs of one seed show, next to runs of different seeds."""
    again = differences(table, same_seed=True)
    seeds = differences(table[table.base == "defaults"], same_seed=False)["same"]
    if not again["same"] or not seeds:
        return (
            "A seed fixes networks, noise and environments, but not the samples that Reverb draws."
        )
    within, pairs = listed([f"{value:.2f}" for value in again["same"]]), len(again["same"])
    measured = f"{counted(pairs, 'pair')} of runs of one seed, setting and kind of arithmetic {'differs' if pairs == 1 else 'differ'} by {within}"
    if brief:
        return f"A seed does not fix what Reverb samples: after {spaced(study.ABLATION_BUDGET)} env steps, {measured}; two seeds of the defaults differ by {np.median(seeds):.2f} in the median."
    text = (
        f"A seed fixes networks, noise and environments, but not the samples that Reverb draws. {measured}; two seeds of the defaults in one group differ by "
        f"{np.median(seeds):.2f} in the median ({counted(len(seeds), 'pair')}, {seeds[0]:.2f} to {seeds[-1]:.2f})."
    )
    if again["other"]:
        across = listed([f"{value:.2f}" for value in again["other"]])
        text += f" Runs of one seed and setting with different arithmetic differ by {across}."
    return f"{text} These are too few pairs to say whether a repeated seed differs less than a new seed."


def source_section(table: pd.DataFrame) -> str:
    """A section about the source document's settings; empty if none was run."""
    rows = table[table.setting.str.startswith("source")]
    if rows.empty:
        return ""
    defaults = table[(table.base == "defaults") & table.arithmetic.isin(rows.arithmetic)]
    reached = listed(
        f"{statistics.interquartile_mean(list(runs['return'])):+.2f}{f' in group {group}' if defaults.arithmetic.nunique() > 1 else ''}"
        for group, runs in defaults.groupby("arithmetic")
    )
    tables = [
        (f"Group {group}:\n\n" if rows.arithmetic.nunique() > 1 else "")
        + rows_of(members, table[table.arithmetic == group])
        for group, members in rows.groupby("arithmetic")
    ]
    return f"""### The source document's settings, and single choices added to them

`source` has every hyperparameter of the source document. Time limits are truncations in it, as that document's text says; its code
treats them as terminations. Each `source-and-` row adds one of labkit's choices to `source`.
The best of these rows reached {rows["return"].max():+.2f}; all choices together, `defaults` above, reached {reached}.

{(chr(10) * 2).join(tables)}"""


def verdict(table: pd.DataFrame, setting: str) -> str:
    """What the runs of a setting scored, next to the defaults of the same group."""
    parts = []
    for group, runs in table[table.base == setting].groupby("arithmetic"):
        of_group = table[(table.arithmetic == group) & (table.base == "defaults")]["return"]
        scores = listed([f"{value:+.2f}" for value in runs["return"]])
        beside = listed([f"{value:+.2f}" for value in sorted(of_group)]) if len(of_group) else ""
        compared = f"; the defaults in its group ({group}) scored {beside}" if beside else ""
        parts.append(f"{counted(len(runs), 'run')} scored {scores}{compared}")
    return f"{'; '.join(parts)}." if parts else "It was not run."


def changed(name: str) -> str:
    """The parameters of a setting as papermill takes them."""
    if name.startswith("source-and-"):
        return f"all of `source` but `{name.removeprefix('source-and-')}`"
    return ", ".join(f"`{key} {value}`" for key, value in study.SETTINGS[name].items()) or "nothing"


def reasons(table: pd.DataFrame) -> str:
    """`REASONS` with the verdict of each setting that it names in braces."""
    return re.sub(r"\{([\w.-]+)\}", lambda match: verdict(table, match[1]), REASONS)


REASONS = """
The reason for each choice follows, with its runs after the budget of the ablations. One run of a setting can neither show an effect nor exclude one:

- **Reward scale and initial temperature** set one balance. The Minitaur's reward is about 0.01 a step. At α = 1 the entropy bonus is
  worth about 5 a step (eight actions between -1 and 1, in nats; notebook 03, exercise 2), so that the critic learns a return that is almost all entropy. With a scale of 20 and log α = -4,
  reward and bonus have a similar magnitude from the first step. With α = 1 and otherwise the defaults the robot learns to walk, too: α is learned, and its logarithm changes by about
  one learning rate a step. The column "steps to +5" shows how soon. Added alone to the source document's settings, neither of the two made the robot walk.
- **Observation scale**: motor velocities reach 20 rad/s and torques 5.7, while the components of the base's quaternion stay within 1. Without scaling, the
  velocities dominate the input of the first layer, and the attitude, which keeps the robot upright, contributes little.
- **Replay capacity** of 10 000 is exactly the length of the warm-up: each transition is overwritten 10 000 steps after it was stored. {no-replay_buffer_capacity}
- **n-step returns**: an action lasts 10 ms and moves a walking robot by about a centimetre. The sum of five rewards carries more signal than a single 10 ms reward, and \
information about a state's value reaches the preceding states in a fifth of the updates.
- **Normalised critics** overestimate unseen actions less: the actor cannot exploit an estimate that grows without bound.
- **Discount**: the horizon is 1 / (1 - γ) steps, one second at 0.99 and a fifth of a second at 0.95. At 0.95, {gamma-0.95}
- **Learning rates** more than three times as high: {learning_rates-1e-3} **Half the gradient steps** for each env step (update-to-data ratio 0.5): {half-the-gradient-steps}
- **Target entropy** determines how noisy the policy is. At the paper's -8 it is less noisy than at TF-Agents' -4. {target_entropy-minus-8}
- **Time limits** treated as terminations punish a robot that is still walking when its episode ends. This affects one transition in a thousand, and at γ = 0.99 the error reaches back about one second. {time-limits-terminal}
  It is an error whatever the score, and it grows where episodes are shorter or γ is closer to 1 (Pardo et al., 2018).
- **Exploration noise** comes from the policy, and the temperature determines its amount. The parameter `greedy_share` is the share of collected episodes that are deterministic. A policy that has only acted with noise reaches states without noise for the first time in its first deterministic episode, and may fall there. \
This was observed with one-step returns and critics without normalisation, when the default was chosen. Whether it still helps with n-step returns and normalised critics is open: the table of group A has the difference and its p-value. `-p greedy_share 0` turns deterministic episodes off.
"""
