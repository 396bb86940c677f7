"""The section about machines, commits and packages on the study's page; see results_page.py."""

# ruff: noqa: E501 (the lines of the page)

import json
import re
from collections import defaultdict
from collections.abc import Sequence

import first_losses
import pandas as pd
import study

from benchmarks.page_text import counted, listed, markdown
from labkit.analysis import arithmetic
from labkit.analysis.compare import TrackedRun
from labkit.training import provenance

HASH = re.compile(r"\b([0-9a-f]{10})[0-9a-f]{30}")
# Of runs that were made before the history was written anew.
LOST_COMMITS = ("bac51d2", "b0b8037", "14499d4", "4187a26", "bd28832")


def section(found: Sequence[TrackedRun], starts: arithmetic.Starts) -> str:
    """The packages, commits, CPUs and kinds of machine of the runs; see `arithmetic`."""
    contents = {run.path: json.loads((run.path / "config.json").read_text()) for run in found}
    places = defaultdict[tuple[str, str, str], list[TrackedRun]](list)
    for run in found:
        content = contents[run.path]
        packages = ", ".join(f"{n} {v}" for n, v in content["versions"].items() if v)
        places[provenance.in_words(content), arithmetic.kind_of(run, starts), packages].append(run)
    versions = sorted({packages for _, _, packages in places})
    rows = [
        {
            "made with": HASH.sub(r"\1", place),
            "packages": str(versions.index(packages) + 1),
            "kind": kind,
            "runs": in_words(runs),
        }
        for (place, kind, packages), runs in sorted(places.items())
    ]
    lost = [commit for commit in LOST_COMMITS if any(commit in place for place, _, _ in places)]
    known = (
        f"The commits {listed(lost)} are no longer in the history, so the code of their runs cannot be checked out."
        if lost
        else ""
    )
    numbered = "\n".join(f"{number}. {line}" for number, line in enumerate(versions, 1))
    return f"""
## Made with

Packages:

{numbered}

{kinds_of(found, starts)}

{markdown(pd.DataFrame(rows))}

{known}
{same_code(found)}
"""


def same_code(found: Sequence[TrackedRun]) -> str:
    """A paragraph: which commits of the present defaults train alike; or nothing."""
    commits = {commit_of(run)[:10] for run in found if run.path.parent.name in study.PRESENT}
    file = first_losses.FILE
    table = pd.read_csv(file) if file.exists() else pd.DataFrame({"commit": []})
    compared = table[table.commit.isin(commits)]
    if len(compared) < 2:
        return ""
    equal = len(compared.drop(columns="commit").drop_duplicates()) == 1
    left = sorted(commits - set(compared.commit))
    others = f" The program cannot run the code of {listed(left)}." if left else ""
    return f"""
The commits {listed(list(compared.commit))} made the runs of the present defaults, of their ablations and of other values in their place. Given the same batches, their first ten losses are {"" if equal else "not "}equal to the bit, and so are the transitions of a warm-up and the weights after ten steps{"" if equal else " compared"} (`.venv/bin/python scripts/first_losses.py COMMIT ...` writes [study/{file.name}](study/{file.name})).{others}"""


def commit_of(run: TrackedRun) -> str:
    """The commit in a run's `config.json`; empty if it was not recorded."""
    return json.loads((run.path / "config.json").read_text()).get("commit") or ""


def kinds_of(found: Sequence[TrackedRun], starts: arithmetic.Starts) -> str:
    """A paragraph: what the kinds of machines are, and how many runs each has."""
    counts = pd.Series([arithmetic.kind_of(run, starts) for run in found]).value_counts()
    told = listed([f"{counts.get(kind, 0)} of kind {kind}" for kind in arithmetic.KINDS[:2]])
    unknown = counts.get(arithmetic.UNKNOWN, 0)
    return f"""Before training, runs of one seed, observation scale and action repeat have the same return, if their machines round alike. Kind {arithmetic.SAME} are the runs that begin as on the machine of [study/{arithmetic.FILE}](study/{arithmetic.FILE}), to {arithmetic.PRECISION} decimals
(`scripts/results.py starts` writes this file); kind {arithmetic.OTHER} begin otherwise, although their CPUs may have the same name, and may be of more than one kind. Of {counted(len(found), "run")}, there are {told}{f", and {unknown} are unknown, because the file has no such start" if unknown else ""}."""


def in_words(runs: Sequence[TrackedRun]) -> str:
    """`defaults 1, 2; no-n_step 3`: settings and seeds."""
    seeds = defaultdict[str, list[int]](list)
    for run in runs:
        seeds[run.path.parent.name].append(run.config.seed)
    return "; ".join(f"{name} {', '.join(map(str, sorted(s)))}" for name, s in seeds.items())
