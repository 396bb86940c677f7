"""A Reverb server: its port, its start, and what it reports about a table."""

import errno
import functools
import shutil
import socket
import tempfile
import weakref
from pathlib import Path

import attrs
import reverb

from labkit.errors import ParameterError, StalledError, first_line, storage
from labkit.parameters import check_int, invalid
from labkit.runtime import bypass_proxy, quiet


def check_port(port: object) -> int:
    """Rejects a port that another program listens on; Reverb would share it silently.

    Raises:
        ParameterError: one line that names the port; also for a number that is not a port.
    """
    number = check_int("port", port, 1024, 65_535, "TCP port, or 0 for a free one")
    for family, anywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # skips closed ones
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((anywhere, number))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise invalid("port", port, "free: another program listens there") from None
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):  # no IPv6 here
                raise
    return number


def free_port() -> int:
    """A port that no program listens on now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


WARNING = (
    "note: Reverb servers listen on every network interface without a password, and other hosts "
    "may reach this one; see Safety in the README"
)


def faces_outward() -> bool:
    """Whether this host has an address at which other hosts could reach a Reverb server.

    Nothing is sent: connecting a datagram socket only asks the kernel which of its addresses it
    would use.
    """
    for family, somewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as asked:
                asked.connect((somewhere, 9))
                address = asked.getsockname()[0]
        except OSError:  # no route that way
            continue
        if not address.startswith("127.") and address not in ("::1", "::"):
            return True
    return False


@functools.cache
def warn_once() -> None:
    """Prints `WARNING`, once in this process, if other hosts could reach a server here."""
    if faces_outward():
        print(WARNING)


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
        folder: where it writes snapshots; emptied first, because Reverb would load an old one. None
            makes a temporary directory, which is removed with the server.
        snapshot: initial contents, as `ReverbReplay.save` wrote them; None starts empty.
        port: must be free, which Reverb does not check; None takes any free port.

    Raises:
        ParameterError: the snapshot is damaged.
        StorageError: `folder` cannot be written.
    """
    temporary = folder is None
    folder = Path(tempfile.mkdtemp(prefix="labkit-reverb-")) if folder is None else folder
    with storage(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    begin = None if snapshot is None else str(snapshot)
    with quiet():
        checkpointer = reverb.checkpointers.DefaultCheckpointer(
            str(folder), fallback_checkpoint_path=begin
        )
        try:
            server = reverb.Server(tables, port, checkpointer=checkpointer)
        except RuntimeError as error:
            if temporary:
                shutil.rmtree(folder, ignore_errors=True)
            if snapshot is None:
                raise
            what = f"{snapshot} is damaged: Reverb reports {first_line(error)!r}"
            raise ParameterError(what) from None
    if temporary:
        weakref.finalize(server, shutil.rmtree, folder, ignore_errors=True)
    return server


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
