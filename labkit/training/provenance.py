"""Where a run was made: the git commit of labkit's checkout, and the CPU model.

Both influence its numbers: another commit may be another algorithm, and another CPU may round
differently, so that two runs of one seed differ even before their first gradient step.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]  # a checkout, or an environment's site-packages
GIT_SECONDS = 5.0  # for an answer; a run does not wait longer
CPUINFO = Path("/proc/cpuinfo")


def describe() -> dict[str, Any]:
    """`commit` and `cpu` of this process, for `config.json`; neither contains a path.

    On Ray this process is the driver; rollout workers on other machines may have other CPUs.
    """
    return {"commit": commit(), "cpu": cpu_model()}


def commit(checkout: Path = CHECKOUT) -> str | None:
    """The git commit of a checkout, with `-dirty` behind it if a tracked file has changes.

    The result is None for an installed package, without git, and if git fails or does not answer.
    """
    if not (checkout / ".git").exists():  # else git would search the folders above
        return None
    # A git hook sets variables that point to another repository.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(
            command,
            cwd=checkout,
            env={**env, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def cpu_model() -> str | None:
    """The CPU model that Linux names; None elsewhere."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", CPUINFO.read_text(), re.MULTILINE)
    except (OSError, ValueError):
        return None
    return found.group(1).strip() if found else None


def in_words(content: dict[str, Any]) -> str:
    """The commits and the CPU of a run: `commit 1234abcd, CPU AMD EPYC, begun with 5678ef01`.

    Args:
        content: the content of the run's `config.json`.
    """
    commit, cpu = (content.get(name) or "not recorded" for name in ("commit", "cpu"))
    earlier = "".join(
        f", begun with {one.get('commit') or 'an unrecorded commit'}"
        for one in content.get("earlier", [])
    )
    return f"commit {commit}, CPU {cpu}{earlier}"


def with_earlier(now: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """`now`, and under `earlier` each different commit or CPU that the run had before.

    Args:
        now: as `describe` returns it.
        before: the content of `config.json` until now; None for a new run. Runs of labkit 0.1
            recorded neither: their `earlier` entry has None for both.

    Returns:
        `now` with the list `earlier`, oldest first, without repetitions.
    """
    if before is None:
        return {**now, "earlier": []}
    known = before.get("earlier", [])
    earlier = list(known) if isinstance(known, list) else []
    last = {name: before.get(name) for name in now}
    if last not in earlier:
        earlier.append(last)
    return {**now, "earlier": [one for one in earlier if one != now]}
