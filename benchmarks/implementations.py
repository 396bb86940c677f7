"""The implementations that the benchmark compares, each run in a fresh process, in alternation."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs

ROOT = Path(__file__).resolve().parent.parent
PEERS_VENV = ROOT / ".venv-peers"
PEERS_PYTHON = PEERS_VENV / "bin" / "python"
PEERS = {
    "sb3_sac": "Stable-Baselines3 SAC (PyTorch)",
    "sbx_sac": "SBX SAC (JAX)",
    "sbx_crossq": "SBX CrossQ (JAX), critics of 256",
}
# labkit 0.1, measured beside the present code. Its benchmark has names of its own.
EARLIER_COMMIT = "4f504bb812a41dd1b3594c304b6641162748d6f0"
EARLIER = ROOT / "build" / "labkit-0.1"
LIMIT_SECONDS = 600  # for one process; far more than any needs


class UnavailableError(RuntimeError):
    """A measurement is not possible on this machine; the message gives the reason."""


@attrs.frozen
class Implementation:
    """One program that does the benchmark's work.

    Attributes:
        key: names its results in throughput.json.
        label: names it in tables and figures.
        module: the worker module that measures it.
        python: the interpreter that runs the module.
        arguments: command-line arguments of the module.
        root: the checkout that contains the module.
        unavailable: why it is skipped; empty if it can run.
    """

    key: str
    label: str
    module: str
    python: str = sys.executable
    arguments: tuple[str, ...] = ()
    root: Path = ROOT
    unavailable: str = ""


def list_implementations(with_peers: bool) -> list[Implementation]:
    """All implementations in the order of a round; installs peers and labkit 0.1 if `with_peers`.

    Each peer runs with its own choice of threads and with one.
    """
    absent, earlier_absent = (
        _reason(install) if with_peers else "left out by --quick or --without-peers"
        for install in (make_peers_venv, make_earlier_checkout)
    )
    delayed = ("--actor-update-period", "2")  # as labkit's defaults for the Minitaur
    peers = [
        Implementation(
            key=f"{algorithm}{suffix}",
            label=f"{label}, {threads}",
            module="benchmarks.run_peer",
            python=str(PEERS_PYTHON),
            arguments=("--algorithm", algorithm, *arguments),
            unavailable=absent,
        )
        for algorithm, label in PEERS.items()
        for suffix, threads, arguments in (
            ("", "its own threads", ()),
            ("_1", "1 thread", ("--threads", "1")),
            ("_delayed", "1 thread, actor every 2nd step", ("--threads", "1", *delayed)),
        )
        if not (suffix == "_delayed" and algorithm != "sbx_sac")
    ]
    return [
        Implementation(
            "published", "published loop (TF-Agents tutorial)", "benchmarks.run_published"
        ),
        Implementation("labkit", "labkit, its defaults", "benchmarks.run_labkit"),
        Implementation(
            "labkit_same",
            "labkit, the same work",
            "benchmarks.run_labkit",
            arguments=("--same-work",),
        ),
        Implementation(
            "labkit_earlier",
            f"labkit 0.1 (commit {EARLIER_COMMIT[:7]})",
            "benchmarks.contender_labkit",
            root=EARLIER,
            unavailable=earlier_absent,
        ),
        *peers,
        Implementation("ray", "labkit, its defaults, Ray executor", "benchmarks.run_ray"),
    ]


def _reason(install: Callable[[], None]) -> str:
    """Installs; returns why that is not possible, or nothing."""
    try:
        install()
    except UnavailableError as error:
        return str(error)
    return ""


def make_earlier_checkout() -> None:
    """Takes labkit 0.1 and its benchmark from this repository's history, once.

    Raises:
        UnavailableError: the history does not reach back that far.
    """
    if EARLIER.exists():
        return
    command = ["git", "archive", EARLIER_COMMIT, "labkit", "benchmarks"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise UnavailableError(f"no commit {EARLIER_COMMIT[:7]} here: git fetch --unshallow")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
        files.extractall(EARLIER, filter="data")
    shutil.copy(ROOT / "benchmarks" / "earlier_parts.py", EARLIER / "benchmarks")


def make_peers_venv() -> None:
    """Makes .venv-peers from requirements-peers.txt, once.

    Raises:
        UnavailableError: a step failed; the message ends with the last line of its output.
    """
    requirements = ROOT / "benchmarks" / "requirements-peers.txt"
    stamp = PEERS_VENV / ".stamp"
    if stamp.exists() and stamp.read_text() == requirements.read_text():
        return
    print("Making .venv-peers for Stable-Baselines3 and SBX: a few minutes, once ...", flush=True)
    pip = [str(PEERS_PYTHON), "-m", "pip", "install", "--quiet"]
    # gym is a source distribution: the pinned setuptools builds it.
    tools = [
        line
        for line in requirements.read_text().split()
        if line.startswith(("setuptools", "wheel"))
    ]
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(PEERS_VENV)],
        [*pip, *tools],
        [*pip, "--no-build-isolation", "-r", str(requirements)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise UnavailableError(f".venv-peers could not be made: {last[:200]}")
    stamp.write_text(requirements.read_text())


def run(
    module: str,
    arguments: Iterable[str] = (),
    python: str = sys.executable,
    root: Path = ROOT,
) -> dict[str, Any]:
    """Runs a worker module in its own process and returns its result.

    Raises:
        UnavailableError: the process failed; the message ends with its last lines of output.
    """
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "result.json")
        command = [python, "-m", module, "--out", str(out), *map(str, arguments)]
        try:
            done = subprocess.run(
                command,
                cwd=root,
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


def run_in_rounds(
    compared: Sequence[Implementation], repeats: int, arguments: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Runs the implementations in alternation (a b c a b c …).

    If the machine slows down during the benchmark, it slows down all of them.

    Args:
        compared: the implementations of a round.
        repeats: rounds.
        arguments: command-line arguments for every worker.

    Returns:
        For each key the label and either `repeats`, a list of results, or `skipped`, a reason.
    """
    results: dict[str, dict[str, Any]] = {}
    for one in compared:
        entry = {"skipped": one.unavailable} if one.unavailable else {"repeats": []}
        results[one.key] = {"label": one.label, **entry}
    for turn in range(repeats):
        for one in compared:
            entry = results[one.key]
            if "skipped" in entry or "stopped" in entry:
                continue
            try:
                measured = run(one.module, [*arguments, *one.arguments], one.python, one.root)
            except UnavailableError as error:
                print(f"  {turn + 1}/{repeats}  {one.label:42} failed: {error}", flush=True)
                if entry["repeats"]:  # they stay; later ones would no longer be of the same round
                    entry["stopped"] = str(error)
                else:
                    results[one.key] = {"label": one.label, "skipped": str(error)}
                continue
            entry["repeats"].append(measured)
            print(
                f"  {turn + 1}/{repeats}  {one.label:42} {measured['rate']:6.1f} it/s", flush=True
            )
    return results
