"""The run of a million gradient steps, `results/minitaur/million`, in the pages of results."""

# ruff: noqa: E501 (the lines of the page)

from pathlib import Path

import pandas as pd

from benchmarks.page_text import spaced
from labkit.analysis import compare

RUN = Path(__file__).resolve().parent.parent / "results" / "minitaur" / "million"


def score() -> pd.Series | None:
    """The run's row of `compare.scores`, and its `env_steps`; None if it is not tracked."""
    if not (RUN / "metrics.csv").exists():
        return None
    (run,), _ = compare.find_runs(RUN)
    table = compare.scores([run], run.config.num_iterations)
    return table.assign(env_steps=run.metrics.env_step.max()).iloc[0]


def rows() -> list[list[str]]:
    """Its row in the table of the project's README; no row if it is not tracked."""
    if (run := score()) is None:
        return []
    steps = spaced(int(run.env_steps))
    return [
        [
            "labkit, earlier defaults, 1 seed",
            steps,
            f"{run['return']:+.2f}",
            "",
            f"{run.distance:.1f} m",
        ]
    ]


def section() -> str:
    """Its section in the page of the study; nothing if it is not tracked."""
    if (run := score()) is None:
        return ""
    steps = spaced(int(run.env_steps))
    return f"""## A million gradient steps

One run, seed {run.seed}: {run["return"]:+.2f} after {steps} env steps. It has the parameters of `earlier-uniform`, which were the defaults then.
[Its page](million/README.md) has its curves, its policy and a clip. It is not part of the study."""
