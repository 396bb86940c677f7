"""Why a process of a run on Ray failed: the end of its log, from whichever machine it was on.

Each process of Ray prints into a separate file, and a Ray that labkit has started is deleted with
them. So the driver copies the last lines of a process that failed into the run directory.
"""

import contextlib
from pathlib import Path
from typing import Any

from labkit.training.run import Run

FILE = "failures.log"  # in the run directory
LINES = 40  # of each process
BYTES = 2**16  # at the end of its log: one that printed for a day may have many gigabytes
REMOTE_SECONDS = 20.0  # for another machine to answer
REASON = "labkit: "  # begins the line that a watchdog prints before it kills a process


def last_lines(pid: int) -> list[str]:
    """What a process of Ray on this machine has printed last; errors come after the rest."""
    import ray

    node: Any = ray._private.worker.global_worker.node
    found: list[str] = []
    for kind in ("out", "err"):
        for file in Path(node.get_logs_dir_path()).glob(f"worker-*-{pid}.{kind}"):
            with file.open("rb") as stream:
                stream.seek(max(0, file.stat().st_size - BYTES))
                lines = stream.read().decode(errors="replace").splitlines()
            found += [line for line in lines if not line.startswith(":")]  # Ray's own marks
    return found[-LINES:]


def look(node: str, pid: int) -> list[str]:
    """As `last_lines`, on the machine with this id of Ray; nothing if it does not answer."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    with contextlib.suppress(Exception):  # whatever happens there: the run itself continues
        if node == ray.get_runtime_context().get_node_id():
            return last_lines(pid)
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        task = ray.remote(last_lines).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
        return ray.get(task.remote(pid), timeout=REMOTE_SECONDS)
    return []


def address_of(node: str) -> str:
    """The address of the machine with this id of Ray; empty if there is none."""
    import ray

    with contextlib.suppress(Exception):  # as above
        found = (one["NodeManagerAddress"] for one in ray.nodes() if one["NodeID"] == node)
        return next(found, "")
    return ""


def record(run: Run, actor: str, process: tuple[str, int]) -> tuple[str, str]:
    """Appends the end of a failed process's log to `FILE`.

    Returns:
        The address of its machine, and why its watchdog has killed it; either may be empty.
    """
    address, lines = address_of(process[0]), look(*process)
    header = f"--- {actor}, process {process[1]} on {address or 'an unknown machine'}"
    with contextlib.suppress(OSError), (run.path / FILE).open("a") as file:
        file.write("\n".join([header, *lines]) + "\n")
    reasons = [line.removeprefix(REASON) for line in lines if line.startswith(REASON)]
    return address, reasons[-1] if reasons else ""
