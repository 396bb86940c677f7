"""Waits on a Reverb table that say whom the table holds and why, and that end.

Reverb waits for ever, without a word, when a rate limiter holds a request. The functions here
print, after a few seconds, what the server knows about the table, and give up with `StalledError`.
"""

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import attrs
import reverb

from labkit.errors import StalledError
from labkit.runtime import quiet

NOTICE_SECONDS = 3.0
LIMIT_SECONDS = 30.0


@attrs.frozen
class Limiter:
    """What a server tells about one table's traffic.

    The limiter watches `balance` = inserts × samples_per_insert − samples. A sample may not take
    it below `min_diff`, an insert not above `max_diff`; nor is anything sampled while the table is
    smaller than `min_size`, while inserts up to that size are always free.
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

    def holds_sample(self) -> str:
        """Why the next sample must wait, as a sentence; empty when it need not."""
        if self.size < self.min_size:
            return (
                f"{self.table!r} holds {_count(self.size, 'item')}, its rate limiter wants "
                f"{self.min_size} before it may be sampled"
            )
        missing = self.min_diff - (self.balance - 1)
        if missing <= 0:
            return ""
        needed = math.ceil(missing / self.samples_per_insert)
        return self._sentence(f"fall below {self.min_diff:g}", _count(needed, "insert"))

    def holds_insert(self) -> str:
        """Why the next insert must wait, as a sentence; empty when it need not."""
        excess = self.balance + self.samples_per_insert - self.max_diff
        if self.size + 1 <= self.min_size or excess <= 0:
            return ""
        return self._sentence(f"rise above {self.max_diff:g}", _count(math.ceil(excess), "sample"))

    def _sentence(self, bound: str, first: str) -> str:
        return (
            f"{self.table!r} has taken {_count(self.inserts, 'insert')} and given "
            f"{_count(self.samples, 'sample')}; its rate limiter does not let "
            f"{self.samples_per_insert:g} × inserts − samples {bound}: {first} must come first"
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def limiter(client: reverb.Client, table: str) -> Limiter:
    """What the server says about `table` at this moment.

    Raises:
        StalledError: no server answers, or it has no such table.
    """
    try:
        tables = client.server_info(timeout=2)
    except (RuntimeError, reverb.ReverbError):
        raise StalledError(f"no Reverb server answers at {client.server_address}") from None
    if table not in tables:
        names = ", ".join(repr(name) for name in sorted(tables))
        raise StalledError(f"the server at {client.server_address} has no {table!r}, but {names}")
    info = tables[table]
    rates = info.rate_limiter_info
    return Limiter(
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
    """One sentence: why `doing` ('sample' or 'insert') waits, or that the table holds nobody."""
    try:
        now = limiter(client, table)
    except StalledError as error:
        return str(error)
    reason = now.holds_sample() if doing == "sample" else now.holds_insert()
    return reason or (
        f"{table!r} holds nobody back: it has {_count(now.size, 'item')} and would allow the next "
        f"{doing}; look for a writer that has not flushed, or a batch that is not full"
    )


class _Patience:
    """Counts the seconds of one wait; speaks once, then gives up."""

    def __init__(self, client, table: str, doing: str, notice: float, limit: float):
        self._client, self._table, self._doing = client, table, doing
        self._notice, self._limit = notice, limit
        self._begin, self._told = time.monotonic(), False

    def next_wait(self) -> float:
        """Seconds until there is something to say.

        Raises:
            StalledError: the limit has passed.
        """
        waited = time.monotonic() - self._begin
        if waited >= self._notice and not self._told:
            self._told = True
            print(f"waiting to {self._doing} for {self._notice:g} s: {self._reason()}")
        if waited >= self._limit:
            raise StalledError(
                f"gave up waiting to {self._doing} after {self._limit:g} s: {self._reason()}"
            )
        return max(0.01, (self._limit if self._told else self._notice) - waited)

    def _reason(self) -> str:
        return diagnose(self._client, self._table, self._doing)


def wait_for(
    action: Callable[[], Any],
    client: reverb.Client,
    table: str,
    doing: str = "sample",
    notice_seconds: float = NOTICE_SECONDS,
    limit_seconds: float = LIMIT_SECONDS,
) -> Any:
    """Returns what `action()` returns, for example `lambda: next(batches)`.

    After the limit, `action` is left behind in its thread: Reverb cannot take a request back, and
    will answer it should the table move on.

    Raises:
        StalledError: the limit has passed; the message says whom the table holds and why.
    """
    patience = _Patience(client, table, doing, notice_seconds, limit_seconds)
    outcome: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            outcome.append((True, action()))
        except BaseException as error:
            outcome.append((False, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while not outcome:
        thread.join(patience.next_wait())
    succeeded, value = outcome[0]
    if not succeeded:
        raise value
    return value


def sample(
    client: reverb.Client,
    table: str,
    count: int = 1,
    notice_seconds: float = NOTICE_SECONDS,
    limit_seconds: float = LIMIT_SECONDS,
) -> list[reverb.replay_sample.ReplaySample]:
    """Draws `count` items, each with its data as columns in the structure of the table's signature.

    Nothing is asked of the table before it would allow it, so that giving up leaves no request
    behind. For looking at tables; training reads a `TrajectoryDataset`.

    Raises:
        StalledError: as `wait_for`.
    """
    patience = _Patience(client, table, "sample", notice_seconds, limit_seconds)
    drawn: list[Any] = []
    while len(drawn) < count:
        wait = patience.next_wait()
        if limiter(client, table).holds_sample():
            time.sleep(min(0.02, wait))
            continue
        with quiet():  # Reverb tells, now and then, that it needs no network to reach itself
            drawn.append(wait_for(lambda: _draw(client, table), client, table, "sample", wait))
    return drawn


def _draw(client: reverb.Client, table: str) -> reverb.replay_sample.ReplaySample:
    return next(client.sample(table, emit_timesteps=False, unpack_as_table_signature=True))


def flush(
    writer: reverb.TrajectoryWriter,
    client: reverb.Client,
    table: str,
    notice_seconds: float = NOTICE_SECONDS,
    limit_seconds: float = LIMIT_SECONDS,
) -> None:
    """Waits until the server has confirmed everything that `writer` created.

    After the limit the items stay in line: the server takes them as soon as its limiter allows.

    Raises:
        StalledError: as `wait_for`.
    """
    patience = _Patience(client, table, "insert", notice_seconds, limit_seconds)
    while True:
        try:
            return writer.flush(timeout_ms=max(1, round(patience.next_wait() * 1000)))
        except reverb.DeadlineExceededError:
            continue
