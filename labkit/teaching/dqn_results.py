"""The tracked DQN runs of notebook 02, as a table for its reader."""

from pathlib import Path

import pandas as pd

# Column of `results/cartpole_dqn.csv` → heading in the notebook.
HEADINGS = {
    "mean_return": "kept",
    "deviation": "±",
    "last_return": "last round",
    "last_deviation": "± ",
    "training_seconds": "training, s",
    "cpu_seconds": "CPU, s",
}


def read_seed_runs(path: Path) -> pd.DataFrame:
    """Reads the table that `benchmarks/cartpole_dqn.py` writes, a row for each run.

    `ablated` is the setting that has the source document's value, such as `batch_size 4`, or
    `nothing`. `kept` and `last round` are mean returns of the final deterministic episodes, with
    the best weights of the run and with its last ones; the column behind each is the standard
    deviation.
    """
    table = pd.read_csv(path, dtype={"changed": str, "value": str})
    ablated = (table.changed + " " + table.value).fillna("nothing").rename("ablated")
    figures = table[list(HEADINGS)].astype(float).rename(columns=HEADINGS)
    return pd.concat([ablated, table.seed, figures], axis=1)
