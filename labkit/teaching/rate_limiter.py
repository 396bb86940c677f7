"""Waits on a Reverb table with a time limit and a reason.

When a rate limiter blocks a request, Reverb waits indefinitely and prints nothing. The functions
here print the reason after a few seconds and raise `StalledError` at the time limit.
"""

import math
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import reverb

from labkit.errors import StalledError
from labkit.replay.server import LimiterState, limiter_state
from labkit.runtime import in_background, quiet

NOTICE_SECONDS = 3.0
LIMIT_SECONDS = 30.0


def blocks_sample(state: LimiterState) -> str:
    """Why the limiter blocks the next sample, as a sentence; empty if it does not."""
    if state.size < state.min_size:
        return (
            f"{state.table!r} holds {count_of(state.size, 'item')}, its rate limiter requires "
            f"{state.min_size} before it may be sampled"
        )
    missing = state.min_diff - (state.balance - 1)
    if missing <= 0:
        return ""
    needed = math.ceil(missing / state.samples_per_insert)
    return _sentence(state, f"fall below {state.min_diff:g}", count_of(needed, "insert"))


def blocks_insert(state: LimiterState) -> str:
    """Why the limiter blocks the next insert, as a sentence; empty if it does not."""
    excess = state.balance + state.samples_per_insert - state.max_diff
    if state.size + 1 <= state.min_size or excess <= 0:
        return ""
    needed = count_of(math.ceil(excess), "sample")
    return _sentence(state, f"rise above {state.max_diff:g}", needed)


def _sentence(state: LimiterState, bound: str, first: str) -> str:
    return (
        f"{state.table!r} has counted {count_of(state.inserts, 'insert')} and "
        f"{count_of(state.samples, 'sample')}; its rate limiter does not let "
        f"{state.samples_per_insert:g} × inserts − samples {bound}: {first} must come first"
    )


def count_of(number: int, noun: str) -> str:
    """`1 item` or `2 items`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def diagnose(client: reverb.Client, table: str, doing: str) -> str:
    """One sentence: why `doing` ('sample' or 'insert') waits, or that the limiter allows it."""
    try:
        now = limiter_state(client, table)
    except StalledError as error:
        return str(error)
    reason = blocks_sample(now) if doing == "sample" else blocks_insert(now)
    return reason or (
        f"the rate limiter of {table!r} would allow the next {doing}: the table has "
        f"{count_of(now.size, 'item')}; is there a writer that has not flushed, or "
        "a batch that is not full?"
    )


def _waits(
    client: reverb.Client, table: str, doing: str, notice: float, limit: float
) -> Iterator[float]:
    """Seconds to wait next; prints the reason once, raises `StalledError` at the limit."""
    begin, printed = time.monotonic(), False
    while True:
        waited = time.monotonic() - begin
        if waited >= notice and not printed:
            printed = True
            print(f"waiting to {doing} for {notice:g} s: {diagnose(client, table, doing)}")
        if waited >= limit:
            reason = diagnose(client, table, doing)
            raise StalledError(f"gave up waiting to {doing} after {limit:g} s: {reason}")
        yield max(0.01, (limit if printed else min(notice, limit)) - waited)


def wait_for(
    action: Callable[[], Any],
    client: reverb.Client,
    table: str,
    doing: str = "sample",
    notice_seconds: float = NOTICE_SECONDS,
    limit_seconds: float = LIMIT_SECONDS,
) -> Any:
    """Returns what `action()` returns, for example `lambda: next(batches)`.

    After the limit, `action` stays behind in its thread: Reverb cannot cancel a request, and
    answers it as soon as the table allows.

    Raises:
        StalledError: the limit has passed; the message gives the reason.
    """
    waits = _waits(client, table, doing, notice_seconds, limit_seconds)
    outcome = in_background(action)
    while not outcome.done():
        futures.wait([outcome], next(waits))
    return outcome.result()


def sample(
    client: reverb.Client,
    table: str,
    count: int = 1,
    notice_seconds: float = NOTICE_SECONDS,
    limit_seconds: float = LIMIT_SECONDS,
) -> list[reverb.replay_sample.ReplaySample]:
    """Draws `count` items, each with its data as columns in the structure of the table's signature.

    A sample is requested only once the limiter allows it, so that no request stays behind at the
    limit. Use it to inspect tables; training reads a `TrajectoryDataset`.

    Raises:
        StalledError: as `wait_for`.
    """

    def draw() -> reverb.replay_sample.ReplaySample:
        return next(client.sample(table, emit_timesteps=False, unpack_as_table_signature=True))

    waits = _waits(client, table, "sample", notice_seconds, limit_seconds)
    end = time.monotonic() + limit_seconds
    drawn: list[Any] = []
    while len(drawn) < count:
        wait = next(waits)
        if blocks_sample(limiter_state(client, table)):
            time.sleep(min(0.02, wait))
            continue
        with quiet():  # Reverb sometimes logs that it uses no network within a process
            left = max(0.0, end - time.monotonic())
            drawn.append(wait_for(draw, client, table, "sample", left, left))
    return drawn


def flush(
    writer: reverb.TrajectoryWriter,
    client: reverb.Client,
    table: str,
    notice_seconds: float = NOTICE_SECONDS,
    limit_seconds: float = LIMIT_SECONDS,
) -> None:
    """Waits until the server has confirmed everything that `writer` created.

    After the limit the items stay queued: the server accepts them as soon as its limiter allows.

    Raises:
        StalledError: as `wait_for`.
    """
    for wait in _waits(client, table, "insert", notice_seconds, limit_seconds):
        try:
            return writer.flush(timeout_ms=max(1, round(wait * 1000)))
        except reverb.DeadlineExceededError:
            continue
