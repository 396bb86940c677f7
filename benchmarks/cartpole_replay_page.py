"""The page of the runs of `benchmarks.cartpole_replay`: settings, every run, curves, tests."""

# ruff: noqa: E501 (the lines of the page)

from pathlib import Path

import attrs
import pandas as pd

from benchmarks.page_text import listed, markdown
from labkit.analysis import replay_results
from labkit.parameters import grouped
from labkit.plotting.style import png_of
from labkit.teaching import numpy_dqn, replay_plots


def page(table: pd.DataFrame, capacities: dict[str, str]) -> str:
    """The page of these runs; `capacities` says in words what each memory holds."""
    shown, rates = replay_results.reported(table), replay_results.chosen_rates(table)
    common = replay_results.at_common_rate(table)
    tuned = replay_results.scores(table[table.seed >= replay_results.FIRST_TUNING_SEED])
    seeds, tuning_seeds = sorted(shown.seed.unique()), sorted(tuned.seed.unique())
    memories = pd.DataFrame(
        [(name, text, f"{rates[name]:g}") for name, text in capacities.items()],
        columns=["memory", "holds", "learning rate"],
    )
    settings = numpy_dqn.Settings()
    used = [
        f"{field.name} {getattr(settings, field.name)}"
        for field in attrs.fields(numpy_dqn.Settings)
        if field.name not in ("learning_rate", "seed")
    ]
    return f"""# Why replay? The same DQN with five memories

    .venv/bin/python -m benchmarks.cartpole_replay          # makes the runs that are missing
    .venv/bin/python -m benchmarks.cartpole_replay --page   # writes this page

A DQN in plain NumPy (`labkit/teaching/numpy_dqn.py`) trains on {numpy_dqn.ENVIRONMENT} from different memories
(`labkit/teaching/replay_memories.py`). Network, env steps, gradient steps and batch size are the same for all. Notebook 02
explains the memories and shows these curves.

{markdown(memories)}

![Mean return over env steps, a panel for each memory](curves.png)

The line is the mean of {len(seeds)} seeds; the band spans the worst to the best seed. Each evaluation is the mean return of {settings.eval_episodes} episodes in which
the agent always takes the action with the highest Q.

## Result

{markdown(replay_results.summary(shown).reset_index())}

`whole run` is the mean of all evaluations of a run, `end` the mean of the last {replay_results.LAST}; ± is the standard deviation over seeds. The
highest possible return is 200. The list compares each memory with `large`, by the difference of the means and Welch's test. Holm's
method corrects the p-values. It is applied to the four tests of `whole run` and, separately, to the four tests of `end`.

{chr(10).join(f"- {sentence}" for sentence in replay_results.verdicts(shown))}

### With one learning rate for all

Each memory got the learning rate with the best mean over the whole run, on three seeds. This score favours a rate that learns fast, and
another rate can be better at the end of a run. So all memories were also run with the learning rate {replay_results.COMMON_RATE:g}. This comparison was added
after the results of the first one were known.

{markdown(replay_results.summary(common).reset_index())}

{chr(10).join(f"- {sentence}" for sentence in replay_results.verdicts(common))}

## Settings

{", ".join(used)}. The agent takes one gradient step for each env step. In prioritised replay, the
priority of a transition is (|TD error| + 0.01) to the power of α = 0.6; the exponent β of the importance weights rises linearly to 1. The
memory of `no replay` holds one transition, so all rows of a batch are the newest transition. Each transition gets one gradient step.

## What was tried

Each memory was run with the learning rates {listed([f"{rate:g}" for rate in sorted(table.learning_rate.unique())])}, on the seeds {listed(tuning_seeds)}. For each memory, the rate with
the best mean over the whole run was chosen. The reported seeds, {listed(seeds)}, were not used for this choice. No other setting was varied.

{markdown(_tried(tuned))}

{_others(table)}Earlier runs measured how long a run takes. Two had 15 000 env steps and evaluations of 10 episodes (no replay, learning rate 0.0003, seeds
100 and 101). Both scored 9.4 at the end. A third run was stopped. Eight had 10 to 2 000 env steps (large and prioritised, seed 100). Then
the number of env steps, the exploration and the evaluations were reduced to the settings above. One more run was stopped half-way when
the learning rate 0.03 was added to the list.

## Limits

CartPole is one task, and an easy one: a run has {grouped(settings.env_steps)} env steps. Five seeds detect large differences only. Five learning rates are a
coarse grid{_edge(table)}. For prioritised replay, α, the 0.01 in the priority and the first β
were not tuned. Their values come from the paper or are common ones.
The draws from its memory are independent; the paper stratifies them.
"""


def _tried(tuned: pd.DataFrame) -> pd.DataFrame:
    """Each run of the choice of learning rates: memory, learning rate, score of each seed, mean."""
    rows = [
        {
            "memory": memory,
            "learning rate": f"{rate:g}",
            "whole run of each seed": ", ".join(f"{value:.1f}" for value in one.whole),
            "mean": f"{one.whole.mean():.1f}",
        }
        for (memory, rate), one in tuned.groupby(["memory", "learning_rate"], sort=False)
    ]
    return pd.DataFrame(rows)


def _edge(table: pd.DataFrame) -> str:
    """Which memories chose the highest learning rate that was tried, as the end of a sentence."""
    highest = table.learning_rate.max()
    names = [name for name, rate in replay_results.chosen_rates(table).items() if rate == highest]
    return (
        f"; for {listed(names)}, the best rate is the highest one that was tried" if names else ""
    )


def _others(table: pd.DataFrame) -> str:
    """The runs that a later choice of the learning rate replaced, as a paragraph, or nothing."""
    runs = replay_results.scores(replay_results.replaced(table))
    if runs.empty:
        return ""
    text = [
        f"{one.memory}, learning rate {one.learning_rate:g}, seed {one.seed}: whole run {one.whole:.1f}, end {one.end:.1f}"
        for one in runs.itertuples()
    ]
    return (
        "These runs were made before the higher learning rates were added to the list, and are not counted above:\n\n"
        + "\n".join(f"- {line}" for line in text)
        + "\n\n"
    )


def write(folder: Path, capacities: dict[str, str]) -> None:
    """Writes README.md and curves.png from the folder's runs."""
    table = replay_results.read(folder / replay_results.FILE)
    (folder / "README.md").write_text(page(table, capacities))
    figure = replay_plots.return_curves(replay_results.reported(table))
    (folder / "curves.png").write_bytes(png_of(figure))
