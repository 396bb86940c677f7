"""Ports of Reverb servers: free ones, taken ones, and whether other hosts can reach them."""

import errno
import functools
import socket

from labkit.parameters import check_int, invalid


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
