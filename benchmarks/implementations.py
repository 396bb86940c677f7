"""The implementations that the benchmark compares, each run in a fresh process, in alternation."""

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
PEERS_VENV = ROOT / ".venv-peers"
PEERS_PYTHON = PEERS_VENV / "bin" / "python"
PEERS = {
    "sb3_sac": "Stable-Baselines3 SAC (PyTorch)",
    "sbx_sac": "SBX SAC (JAX)",
    "sbx_crossq": "SBX CrossQ (JAX), critics of 256",
}
LIMIT_SECONDS = 2400  # for one process; far more than any needs


class UnavailableError(RuntimeError):
    """A measurement is not possible on this machine; the message gives the reason."""


@attrs.frozen
class Implementation:
    """One program that does the benchmark's work.

    Attributes:
        key: names its results in throughput.json.
        label: names it in tables and figures.
        module: the worker module that measures it.
        arguments: command-line arguments of the module.
        python: the interpreter that runs the module.
        unavailable: why it is skipped; empty if it can run.
    """

    key: str
    label: str
    module: str
    arguments: tuple[str, ...] = ()
    python: str = sys.executable
    unavailable: str = ""


def list_implementations(with_peers: bool) -> list[Implementation]:
    """All implementations in the order of a round; installs the peers if `with_peers`.

    Each peer runs with its own choice of threads and with one.
    """
    absent = make_peers_venv() if with_peers else "left out by --quick or --without-peers"
    one_thread = ("--threads", "1")
    delayed = (*one_thread, "--actor-update-period", "2")  # as labkit's defaults for the Minitaur
    kinds = {
        "": ("its own threads", ()),
        "_1": ("1 thread", one_thread),
        "_delayed": ("1 thread, actor every 2nd step", delayed),
    }
    peers = [
        Implementation(
            f"{algorithm}{suffix}",
            f"{label}, {threads}",
            "benchmarks.peer",
            ("--algorithm", algorithm, *arguments),
            str(PEERS_PYTHON),
            absent,
        )
        for algorithm, label in PEERS.items()
        for suffix, (threads, arguments) in kinds.items()
        if suffix != "_delayed" or algorithm == "sbx_sac"
    ]
    return [
        Implementation(
            "published", "published loop (TF-Agents tutorial)", "benchmarks.run_published"
        ),
        Implementation("labkit", "labkit, its defaults", "benchmarks.run_labkit"),
        Implementation(
            "labkit_same", "labkit, the same work", "benchmarks.run_labkit", ("--same-work",)
        ),
        *peers,
        Implementation(
            "rltools",
            "RLtools SAC (C++), 1 thread",
            "benchmarks.run_rltools",
            python=str(PEERS_PYTHON),
            unavailable=absent,
        ),
        Implementation("ray", "labkit, its defaults, Ray executor", "benchmarks.run_ray"),
    ]


def make_peers_venv() -> str:
    """Makes .venv-peers from requirements-peers.txt, once; returns why it cannot, or nothing."""
    requirements = ROOT / "benchmarks" / "requirements-peers.txt"
    stamp = PEERS_VENV / ".stamp"
    if stamp.exists() and stamp.read_text() == requirements.read_text():
        return ""
    print("Making .venv-peers for the other libraries: a few minutes, once ...", flush=True)
    pip = [str(PEERS_PYTHON), "-m", "pip", "install", "--quiet"]
    # gym is a source distribution: the pinned setuptools builds it.
    pinned = requirements.read_text().split()
    tools = [line for line in pinned if line.startswith(("setuptools", "wheel"))]
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(PEERS_VENV)],
        [*pip, *tools],
        [*pip, "--no-build-isolation", "-r", str(requirements)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return f".venv-peers could not be made: {last[:200]}"
    stamp.write_text(requirements.read_text())
    return ""


def run(module: str, arguments: Iterable[str] = (), python: str = sys.executable) -> dict[str, Any]:
    """Runs a worker module in its own process and returns its result.

    Raises:
        UnavailableError: the process failed; the message ends with its last lines of output.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "result.json")
        command = [python, "-m", module, "--out", str(out), *map(str, arguments)]
        options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": LIMIT_SECONDS}
        try:
            done = subprocess.run(command, cwd=ROOT, env=environment, check=False, **options)
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

    If the machine slows down during the benchmark, it slows down all of them. One that fails is
    not run again.

    Args:
        compared: the implementations of a round.
        repeats: rounds.
        arguments: command-line arguments for every worker.

    Returns:
        For each key the label, `repeats`, a list of results, and `skipped`, a reason, if there is
        one.
    """
    results: dict[str, dict[str, Any]] = {}
    for one in compared:
        results[one.key] = {"label": one.label, "repeats": []}
        if one.unavailable:
            results[one.key]["skipped"] = one.unavailable
    for turn in range(repeats):
        for one in compared:
            entry = results[one.key]
            if "skipped" in entry:
                continue
            try:
                measured = run(one.module, [*arguments, *one.arguments], one.python)
            except UnavailableError as error:
                entry["skipped"] = str(error)
                print(f"  {turn + 1}/{repeats}  {one.label:42} failed: {error}", flush=True)
                continue
            entry["repeats"].append(measured)
            rate = f"{measured['rate']:6.1f} it/s"
            print(f"  {turn + 1}/{repeats}  {one.label:42} {rate}", flush=True)
    return results
