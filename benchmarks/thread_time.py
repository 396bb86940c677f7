"""CPU time of this process by thread, from Linux' /proc."""

import contextlib
from collections.abc import Callable
from pathlib import Path

TASKS = Path("/proc/self/task")


def by_thread() -> dict[int, float]:
    """CPU milliseconds so far of each thread that is alive, by its id."""
    found = {}
    for task in TASKS.iterdir():
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            found[int(task.name)] = int((task / "schedstat").read_text().split()[0]) / 1e6
    return found


def spent(since: dict[int, float]) -> dict[int, float]:
    """CPU milliseconds of each thread since `by_thread` returned `since`."""
    return {thread: ms - since.get(thread, 0.0) for thread, ms in by_thread().items()}


def of_call(call: Callable[[], object], calls: int) -> dict[int, float]:
    """CPU milliseconds of one call, by thread: the mean over `calls`."""
    before = by_thread()
    for _ in range(calls):
        call()
    return {thread: ms / calls for thread, ms in spent(before).items()}
