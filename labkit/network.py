"""Who could reach a Reverb server of this host."""

import functools
import socket

WARNING = (
    "note: Reverb's servers listen on every network interface and know no password, and this host "
    "has an address that faces outward; see Safety in the README"
)


def faces_outward() -> bool:
    """Whether this host has an address that others could reach a Reverb server at.

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
    """Says, the first time in this process, that such a server can be reached from outside."""
    if faces_outward():
        print(WARNING)
