"""Who runs: each contender and each measurement in a fresh process, taking turns."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs

ROOT = Path(__file__).resolve().parent.parent
SB3_VENV = ROOT / ".venv-sb3"
SB3_PYTHON = SB3_VENV / "bin" / "python"
LIMIT_SECONDS = 600  # for one process; far more than any needs


class UnavailableError(RuntimeError):
    """Something cannot be measured here, and why."""


@attrs.frozen
class Contender:
    """One way to do the work."""

    key: str
    label: str
    module: str
    python: str = sys.executable
    arguments: tuple[str, ...] = ()
    unavailable: str = ""  # the reason not to run it


def contenders(with_sb3: bool) -> list[Contender]:
    """All of them, in the order in which they take turns."""
    why_no_sb3 = "" if with_sb3 else "left out by --quick or --without-sb3"
    if with_sb3:
        try:
            make_sb3_venv()
        except UnavailableError as error:
            why_no_sb3 = str(error)
    sb3 = {
        "module": "benchmarks.contender_sb3",
        "python": str(SB3_PYTHON),
        "unavailable": why_no_sb3,
    }
    return [
        Contender(
            "published", "published loop (TF-Agents tutorial)", "benchmarks.contender_published"
        ),
        Contender("labkit", "labkit, local executor", "benchmarks.contender_labkit"),
        Contender(
            "labkit_normalised",
            "labkit, normalised critics (its default)",
            "benchmarks.contender_labkit",
            arguments=("--layer-norm",),
        ),
        Contender("sb3", "Stable-Baselines3, PyTorch's own threads", **sb3),
        Contender("sb3_1", "Stable-Baselines3, 1 thread", **sb3, arguments=("--threads", "1")),
        Contender(
            "ray", "labkit, Ray executor", "benchmarks.contender_ray", unavailable=why_no_ray()
        ),
    ]


def why_no_ray() -> str:
    """Why the Ray executor is not measured; empty as soon as it can be."""
    for module in ("labkit.distributed.driver", "benchmarks.contender_ray"):
        if importlib.util.find_spec(module) is None:
            return f"{module} does not exist yet"
    return ""


def make_sb3_venv() -> None:
    """Makes .venv-sb3 from requirements-sb3.txt, once.

    Raises:
        UnavailableError: it could not be made, and pip's last line.
    """
    requirements = ROOT / "benchmarks" / "requirements-sb3.txt"
    stamp = SB3_VENV / ".stamp"
    if stamp.exists() and stamp.read_text() == requirements.read_text():
        return
    print("Making .venv-sb3 for Stable-Baselines3: a few minutes, once ...", flush=True)
    pip = [str(SB3_PYTHON), "-m", "pip", "install", "--quiet"]
    # gym comes as source and is built with the setuptools that is pinned.
    tools = [
        line
        for line in requirements.read_text().split()
        if line.startswith(("setuptools", "wheel"))
    ]
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(SB3_VENV)],
        [*pip, *tools],
        [*pip, "--no-build-isolation", "-r", str(requirements)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise UnavailableError(f".venv-sb3 could not be made: {last[:200]}")
    stamp.write_text(requirements.read_text())


def run(module: str, arguments: Iterable[str] = (), python: str = sys.executable) -> dict[str, Any]:
    """Runs a worker module in a process of its own and returns what it measured.

    Raises:
        UnavailableError: it failed; the message ends with its last words.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "result.json")
        command = [python, "-m", module, "--out", str(out), *map(str, arguments)]
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=LIMIT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"{module} took more than {LIMIT_SECONDS} s") from None
        if done.returncode or not out.exists():
            last = " | ".join(done.stderr.strip().splitlines()[-3:])
            raise UnavailableError(f"{module} failed with {done.returncode}: {last[-400:]}")
        return json.loads(out.read_text())


def take_turns(
    who: Sequence[Contender], repeats: int, arguments: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Runs a b c a b c …: a machine that slows down meanwhile slows all of them.

    Returns:
        For each contender's key its label and `repeats`, a list of results; or `skipped`, why not.
    """
    results: dict[str, dict[str, Any]] = {}
    for one in who:
        reason = {"skipped": one.unavailable} if one.unavailable else {"repeats": []}
        results[one.key] = {"label": one.label, **reason}
    for turn in range(repeats):
        for one in who:
            entry = results[one.key]
            if "skipped" in entry:
                continue
            try:
                measured = run(one.module, [*arguments, *one.arguments], one.python)
            except UnavailableError as error:
                results[one.key] = {"label": one.label, "skipped": str(error)}
                continue
            entry["repeats"].append(measured)
            print(
                f"  {turn + 1}/{repeats}  {one.label:42} {measured['rate']:6.1f} it/s", flush=True
            )
    return results
