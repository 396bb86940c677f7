"""Writes the table of Minitaur results in the project's README."""

# ruff: noqa: E501 (the lines of the page)

import itertools
from collections.abc import Sequence

import long_run
import numpy as np
import pandas as pd
import peers
import results_page
import study

from benchmarks.page_text import aggregate, between, counted, listed, markdown
from labkit.analysis import compare
from labkit.analysis.compare import TrackedRun
from labkit.parameters import grouped
from labkit.plotting import run_plots

MARKS = ("<!-- written by make results: begin -->", "<!-- written by make results: end -->")


def into_readme(text: str, found: Sequence[TrackedRun]) -> str:
    """Returns README.md with the study's results of the defaults between its two marks."""
    rows, reached, caveats = [], [], []
    figure, drawn = "default/curve.png", "the run of the committed notebook"
    budgets = results_page.budgets()
    earlier = study.LAST_EARLIER, "labkit, earlier defaults"
    for budget, (name, label) in itertools.product(
        budgets, (("defaults", "labkit, defaults"), earlier)
    ):
        runs = results_page.of(name, found, budget)
        # After the longest training the earlier defaults stay: a policy of theirs is shown.
        instead = name == study.LAST_EARLIER and results_page.of("defaults", found, budget)
        if not runs or (instead and budget != max(budgets)):
            continue
        iterations = study.iterations(name, budget)
        table = compare.scores(runs, iterations)
        rows.append(
            [
                f"{label}, {counted(len(runs), 'seed')}" if len(runs) < study.SEEDS else label,
                grouped(budget),
                aggregate(table["return"].to_numpy()),
                f"{table['return'].min():+.2f}",
                f"{table.distance.mean():.1f} m",
                together([results_page.steps(run, 10, iterations) for run in runs]),
                middle([results_page.minutes_to(run, budget) for run in runs]),
            ]
        )
        above = int((table["return"] >= results_page.THRESHOLD).sum())
        which = "" if name == "defaults" else " of the earlier defaults"
        runs_of = counted(len(table), "run") + which
        reached.append(f"{above} of {runs_of} after {grouped(budget)} env steps")
        if name == "defaults":
            caveats.append(caveat(table, runs, budget))
        if len(runs) >= study.SEEDS and name == "defaults":
            figure, drawn = f"curves-{budget}.png", results_page.drawn(len(runs))
    rows += long_run.rows()
    tutorial_steps, tutorial_return = run_plots.PUBLISHED_CURVE[-1]
    published = [
        (
            "TF-Agents' tutorial, as published (sampled actions)",
            tutorial_steps + run_plots.PUBLISHED_INITIAL_STEPS,
            tutorial_return,
        ),
        (
            f"[SAC]({results_page.SAC_SOURCE}) (Rafael1s), as published, 1 run (sampled actions)",
            results_page.SAC_STEPS,
            results_page.SAC_PUBLISHED,
        ),
        (
            f"[PPO2]({results_page.PPO2_SOURCE}) (rl-baselines-zoo), as published, 1 run",
            2_000_000,
            results_page.PPO2,
        ),
    ]
    rows += [[name, grouped(steps), f"{score:+.2f}"] for name, steps, score in published]
    rows += [
        [
            f"{label}, {counted(len(runs), 'seed')}",
            grouped(peers.ENV_STEPS),
            aggregate(np.array(peers.final_returns(runs))),
            f"{min(peers.final_returns(runs)):+.2f}" if len(runs) > 1 else "",
            "",
            together([peers.steps_to_walk(one) for one in runs]),
            middle(peers.minutes(runs)),
        ]
        for label, runs in peers.runs_by_peer(peers.results()).items()
        if not label.endswith("earlier choices")  # their page has these, too
    ]
    columns = ["Minitaur", "env steps", "return of an episode", "worst seed", "mean distance"]
    columns += ["steps to +10", "minutes"]
    rows = [row + [""] * (len(columns) - len(row)) for row in rows]
    body = f"""{markdown(pd.DataFrame(rows, columns=columns))}

The return of an episode is the sum of its rewards. An episode terminates when the robot falls, and is truncated after 1000 steps
(ten seconds). Gym counts this environment as solved at a return of {results_page.THRESHOLD} (its `reward_threshold`){f". With labkit, {listed(reached)} reached it" if reached else ""}.
{" ".join(filter(None, caveats))}

![Returns over env steps: {drawn}, and published results](results/minitaur/{figure})"""
    return between(text, MARKS, body)


def together(steps: Sequence[str]) -> str:
    """The steps of each run, `–` for never; the median of so many seeds that have an IQM."""
    if len(steps) < study.SEEDS:
        return ", ".join(steps)
    known = [float(text.replace(" ", "").replace("–", "inf")) for text in steps]
    median = float(np.median(known))
    return f"median {grouped(round(median)) if np.isfinite(median) else '–'}"


def middle(minutes: Sequence[float]) -> str:
    """The median; nothing if a run has no time."""
    median = float(np.median(minutes))
    return f"{median:.0f}" if np.isfinite(median) else ""


def caveat(table: pd.DataFrame, runs: Sequence[TrackedRun], budget: int) -> str:
    """A sentence that a reader of one budget's score needs: see the page of the study; or nothing."""
    row = f"the runs of the {grouped(budget)} row"
    chosen = results_page.chosen_by(table, budget).replace("these runs", row)
    chosen = chosen.replace("Some returns", f"In the {grouped(budget)} row, some returns")
    chosen = chosen.replace("(#", "(results/minitaur/README.md#")
    before = results_page.same_seeds_before(runs, budget).replace("the same runs", row, 1)
    return f"{chosen} {before}".strip()
