"""Numbers and tables as text, for the pages that scripts/ and benchmarks/ write."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from labkit.analysis import statistics


def aggregate(values: Sequence[float]) -> str:
    """The interquartile mean of five seeds or more with its interval, or each seed's return.

    `+8.10 (+6.20 to +9.90; 5 seeds)`: the page says what the interval is and how often it covers.
    """
    interval = statistics.bootstrap_interval(values)
    if interval is None:
        return ", ".join(f"{value:+.2f}" for value in values)
    low, high = interval
    mean = statistics.interquartile_mean(values)
    return f"{mean:+.2f} ({low:+.2f} to {high:+.2f}; {len(values)} seeds)"


def listed(words: Sequence[Any]) -> str:
    """`one`, `one and two`, `one, two and three`."""
    *most, last = [str(word) for word in words]
    return f"{', '.join(most)} and {last}" if most else last


def counted(number: int, word: str) -> str:
    """`1 seed`, `5 seeds`."""
    return f"{number} {word}{'s' * (number != 1)}"


def markdown(table: pd.DataFrame) -> str:
    """A table in GitHub's Markdown."""
    rows = [table.columns, ["---"] * len(table.columns), *table.astype(str).to_numpy()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def between(text: str, marks: tuple[str, str], body: str) -> str:
    """Returns `text` with `body` on its own lines between its two marks.

    Raises:
        ValueError: the text does not have each mark once.
    """
    begin, end = marks
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the page must contain {begin} and {end} once each")
    before, rest = text.split(begin)
    return f"{before}{begin}\n{body.strip()}\n{end}{rest.split(end)[1]}"
