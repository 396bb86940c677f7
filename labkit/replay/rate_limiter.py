"""Waits on a Reverb table with a time limit and a reason.

When a rate limiter blocks a request, Reverb waits indefinitely and prints nothing. The functions
here print the reason after a few seconds and raise `StalledError` at the time limit.
"""

import math
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import attrs
import reverb

from labkit.errors import StalledError
from labkit.runtime import in_background, quiet

NOTICE_SECONDS = 3.0
LIMIT_SECONDS = 30.0


@attrs.frozen
class LimiterState:
    """What a server reports about one table: its size, its counters and its rate limiter.

    The limiter bounds `balance` = inserts × samples_per_insert − samples. A sample may not take it
    below `min_diff`, and an insert may not take it above `max_diff`. Samples are blocked while the
    table is smaller than `min_size`; inserts up to that size are always allowed.
    """

    table: str
    size: int  # items held now
    max_size: int
    inserts: int  # since the server started or the table was reset
    samples: int
    samples_per_insert: float
    min_diff: float
    max_diff: float
    min_size: int

    @property
    def balance(self) -> float:
        """Inserts × samples_per_insert − samples."""
        return self.inserts * self.samples_per_insert - self.samples

    def blocks_sample(self) -> str:
        """Why the limiter blocks the next sample, as a sentence; empty if it does not."""
        if self.size < self.min_size:
            return (
                f"{self.table!r} holds {_count(self.size, 'item')}, its rate limiter requires "
                f"{self.min_size} before it may be sampled"
            )
        missing = self.min_diff - (self.balance - 1)
        if missing <= 0:
            return ""
        needed = math.ceil(missing / self.samples_per_insert)
        return self._sentence(f"fall below {self.min_diff:g}", _count(needed, "insert"))

    def blocks_insert(self) -> str:
        """Why the limiter blocks the next insert, as a sentence; empty if it does not."""
        excess = self.balance + self.samples_per_insert - self.max_diff
        if self.size + 1 <= self.min_size or excess <= 0:
            return ""
        return self._sentence(f"rise above {self.max_diff:g}", _count(math.ceil(excess), "sample"))

    def _sentence(self, bound: str, first: str) -> str:
        return (
            f"{self.table!r} has counted {_count(self.inserts, 'insert')} and "
            f"{_count(self.samples, 'sample')}; its rate limiter does not let "
            f"{self.samples_per_insert:g} × inserts − samples {bound}: {first} must come first"
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def limiter_state(client: reverb.Client, table: str) -> LimiterState:
    """What the server reports about `table` now.

    Raises:
        StalledError: no server answers, or it has no such table.
    """
    try:
        tables = client.server_info(timeout=2)
    except (RuntimeError, reverb.ReverbError):
        raise StalledError(f"no Reverb server answers at {client.server_address}") from None
    if table not in tables:
        names = ", ".join(repr(name) for name in sorted(tables))
        raise StalledError(
            f"the server at {client.server_address} has no table {table!r}; it has {names}"
        )
    info = tables[table]
    rates = info.rate_limiter_info
    return LimiterState(
        table=table,
        size=info.current_size,
        max_size=info.max_size,
        inserts=rates.insert_stats.completed,
        samples=rates.sample_stats.completed,
        samples_per_insert=rates.samples_per_insert,
        min_diff=rates.min_diff,
        max_diff=rates.max_diff,
        min_size=rates.min_size_to_sample,
    )


def diagnose(client: reverb.Client, table: str, doing: str) -> str:
    """One sentence: why `doing` ('sample' or 'insert') waits, or that the limiter allows it."""
    try:
        now = limiter_state(client, table)
    except StalledError as error:
        return str(error)
    reason = now.blocks_sample() if doing == "sample" else now.blocks_insert()
    return reason or (
        f"the rate limiter of {table!r} would allow the next {doing}: the table has "
        f"{_count(now.size, 'item')}; is there a writer that has not flushed, or "
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
        if limiter_state(client, table).blocks_sample():
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
