"""Which tracked runs were made on machines that round alike, so that a test may compare them.

A run's networks and its evaluation episodes come from its seed alone. So two runs of one seed, one
observation scale and one action repeat have the same return before training, unless their machines
round differently: the physics amplifies the last bit. CPUs with the same name can differ.
"""

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from labkit.analysis.compare import TrackedRun
from labkit.config import SACConfig
from labkit.errors import ParameterError

FILE = "starts.csv"  # returns before training, measured on one machine
COLUMNS = ["seed", "observation_scale", "action_repeat", "return"]
PRECISION = 9  # decimals; the kinds of arithmetic seen so far differ in the first to the ninth
SAME, OTHER, UNKNOWN = "A", "B", "unknown"
KINDS = (SAME, OTHER, UNKNOWN)
Starts = Mapping[tuple[Any, ...], float]


def key_of(config: SACConfig) -> tuple[Any, ...]:
    """What the return before training depends on, besides the machine."""
    return config.seed, tuple(config.observation_scale), 1


def read_starts(folder: Path) -> dict[tuple[Any, ...], float]:
    """The measured returns before training, from each `FILE` below a folder.

    A file has the columns `COLUMNS`; its observation scales are tuples as text.

    Raises:
        ParameterError: a file cannot be read.
    """
    starts = {}
    for file in sorted(folder.rglob(FILE)):
        try:
            for row in pd.read_csv(file, float_precision="round_trip").itertuples():
                scale = tuple(ast.literal_eval(str(row.observation_scale)))
                key = (int(row.seed), scale, int(row.action_repeat))
                starts[key] = float(row[-1])
        except (OSError, ValueError, SyntaxError, TypeError, AttributeError) as error:
            raise ParameterError(f"{file} is not a table of starts: {error}") from None
    return starts


def write_starts(starts: Starts, file: Path) -> None:
    """Writes what `read_starts` reads."""
    rows = [(*key, value) for key, value in starts.items()]
    rows.sort(key=lambda row: (str(row[1]), row[2], row[0]))
    pd.DataFrame(rows, columns=COLUMNS).to_csv(file, index=False)


def kind_of(run: TrackedRun, starts: Starts) -> str:
    """`A` if the run began as on the machine of `starts`, `B` if it did not, else `unknown`."""
    first, expected = run.evaluation_at(0), starts.get(key_of(run.config))
    if first is None or expected is None:
        return UNKNOWN
    return SAME if round(float(first.eval_return) - expected, PRECISION) == 0 else OTHER


def alike(
    ours: Sequence[tuple[str, Any]], theirs: Sequence[tuple[str, Any]]
) -> tuple[str, list[Any], list[Any]]:
    """The values of two settings from the kind of machine that has most of both.

    Args:
        ours: (kind, value) of each run of one setting.
        theirs: the same of the other setting.

    Returns:
        The kind, and the values of each setting on it; two empty lists if they share none.
    """
    pairs = [
        (kind, [v for k, v in ours if k == kind], [v for k, v in theirs if k == kind])
        for kind in KINDS
    ]
    return max(pairs, key=lambda pair: (min(len(pair[1]), len(pair[2])), len(pair[1] + pair[2])))
