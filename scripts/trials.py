"""Writes the page of the trials: runs of settings that did not become defaults.

python scripts/trials.py                        results/minitaur/trials/README.md

A trial's folder holds its `config.json` and its `metrics.csv`. They may name parameters that
labkit no longer has, so they are read as plain files.
"""

# ruff: noqa: E501 (the lines of the page)

import json
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]
from peers import first_sustained  # noqa: E402

from benchmarks.page_text import markdown, spaced  # noqa: E402

TRIALS = ROOT / "results" / "minitaur" / "trials"
# The parameters in which the trials differ.
SHOWN = ("n_step", "actor_update_period", "warm_up_correlation", "greedy_share")


def read(folder: Path) -> tuple[dict[str, Any], pd.DataFrame]:
    """`config.json` of a trial, and its evaluations with a list of returns each."""
    content = json.loads((folder / "config.json").read_text())
    rows = pd.read_csv(folder / "metrics.csv", dtype={"eval_returns": str})
    rows = rows[rows.eval_returns.notna()]
    returns = [[float(value) for value in text.split()] for text in rows.eval_returns]
    return content, pd.DataFrame({"env_step": rows.env_step, "returns": returns})


def row(folder: Path) -> dict[str, str]:
    """The row of one trial."""
    content, rows = read(folder)
    means = np.array([np.mean(values) for values in rows.returns])
    last = rows.iloc[-1]
    values = content["config"]
    return {
        **{name: str(values.get(name, "")) for name in SHOWN},
        "seed": str(values["seed"]),
        "env steps": spaced(int(last.env_step)),
        "return": f"{means[-1]:+.2f} ({len(last.returns)} episodes)",
        "best evaluation": f"{means.max():+.2f}",
        "steps to +10": first_sustained(rows.env_step.tolist(), means.tolist()),
        "commit": str(content.get("commit") or "not recorded")[:7],
        "CPU": str(content.get("cpu") or "not recorded"),
    }


def page() -> str:
    """The page: one row for each trial, in the order of their settings."""
    rows = [row(file.parent) for file in sorted(TRIALS.glob("*/*/config.json"))]
    return f"""# Trials on the Minitaur

    .venv/bin/python scripts/trials.py              # writes this page from the runs beside it

Single runs of settings that did not become defaults, on one core each, beside other work. A run of a seed scatters by several points, so
these runs rank nothing: they are listed because they were made. Steps to +10 are the env steps at the first of two consecutive
evaluations (five episodes, every 2 500 steps) with at least that mean. `warm_up_correlation` correlated each random action of the warm-up
with the one before; the code of that commit has it, the present code does not. A run with fewer than 20 episodes in its last evaluation was stopped
before its end. [The study](../README.md) has the runs of the defaults.

{markdown(pd.DataFrame(rows))}
"""


@click.command()
def main() -> None:
    """Writes the page."""
    (TRIALS / "README.md").write_text(page())
    click.echo(f"written: {TRIALS.name}/README.md")


if __name__ == "__main__":
    main()
