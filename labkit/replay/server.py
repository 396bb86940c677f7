"""A Reverb server: its port, its start, and what it reports about a table."""

import functools
import ipaddress
import shutil
import socket
import tempfile
import weakref
from pathlib import Path

import attrs
import psutil
import reverb

from labkit.errors import StalledError, storage
from labkit.parameters import check_int, invalid
from labkit.runtime import bypass_proxy, quiet


def check_port(port: object) -> int:
    """Rejects a port that another program listens on: Reverb would share it silently."""
    number = check_int("port", port, 1024, 65_535, "TCP port, or 0 for a free one")
    try:
        socket.create_server(("", number)).close()
    except OSError:
        raise invalid("port", port, "free: another program listens there") from None
    return number


def free_port() -> int:
    """A port that no program listens on now."""
    with socket.create_server(("", 0)) as probe:
        return probe.getsockname()[1]


def faces_outward() -> bool:
    """Whether this host has an address at which other hosts could reach a Reverb server."""
    cards = psutil.net_if_addrs().values()
    found = [one.address for card in cards for one in card if one.family != psutil.AF_LINK]
    return not all(ipaddress.ip_address(address).is_loopback for address in found)


@functools.cache
def warn_once() -> None:
    """Prints a warning, once in this process, if other hosts could reach a server here."""
    if faces_outward():
        what = "note: Reverb servers listen on every network interface without a password, and"
        print(f"{what} other hosts may reach this one; see Safety in the README")


def connect(address: str) -> reverb.Client:
    """A client of the server at `address`, `host:port`, past any proxy."""
    bypass_proxy(address.rpartition(":")[0])
    return reverb.Client(address)


def start_server(
    tables: list[reverb.Table],
    folder: Path | None = None,
    snapshot: Path | None = None,
    port: int | None = None,
) -> reverb.Server:
    """Starts a Reverb server; its own log lines are not printed.

    Args:
        tables: what it holds; a snapshot's sizes and rate limiters override theirs.
        folder: for snapshots, emptied first; None makes one that is removed with the server.
        snapshot: initial contents, as `ReverbReplay.save` wrote them; None starts empty.
        port: see `check_port`; None takes any free port.

    Raises:
        StorageError: `folder` cannot be written.
        RuntimeError: the snapshot is damaged.
    """
    place = folder or Path(tempfile.mkdtemp(prefix="labkit-reverb-"))
    with storage(place):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
    with quiet():
        begin = str(snapshot) if snapshot else None
        saver = reverb.checkpointers.DefaultCheckpointer(str(place), fallback_checkpoint_path=begin)
        server = reverb.Server(tables, port, checkpointer=saver)
    if folder is None:
        weakref.finalize(server, shutil.rmtree, place, ignore_errors=True)
    return server


@attrs.frozen
class LimiterState:
    """What a server reports about one table: its size, its counters and its rate limiter.

    A sample may not take `balance` below `min_diff`, and an insert may not take it above
    `max_diff`. Samples are blocked while the table is smaller than `min_size`; inserts up to that
    size are always allowed.
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


def limiter_state(client: reverb.Client, table: str) -> LimiterState:
    """What the server reports about `table` now.

    Raises:
        StalledError: no server answers, or it has no such table.
    """
    try:
        info = client.server_info(timeout=2)[table]
    except (RuntimeError, reverb.ReverbError, KeyError):
        server = f"Reverb server with a table {table!r}"
        raise StalledError(f"no {server} answers at {client.server_address}") from None
    rates = info.rate_limiter_info
    inserts, samples = rates.insert_stats.completed, rates.sample_stats.completed
    limits = rates.samples_per_insert, rates.min_diff, rates.max_diff, rates.min_size_to_sample
    return LimiterState(table, info.current_size, info.max_size, inserts, samples, *limits)
