"""The process of a Reverb server: a command in a terminal, or started by `server_process`.

    python -m labkit.teaching.serve --port 9999 --tables module:function

`function` takes no arguments and returns a list of `reverb.Table`.
"""

import argparse
import base64
import importlib
import json
import os
import select
import signal
import sys
import threading
from typing import Any

from labkit.errors import ParameterError
from labkit.parameters import invalid
from labkit.replay.server import check_port, free_port
from labkit.runtime import quiet


def main(arguments: list[str] | None = None) -> int:
    """The command: serves until SIGINT or SIGTERM.

    Without --tables it also ends when its parent process does, or closes standard input.
    """
    description = __doc__.splitlines()[0]
    parser = argparse.ArgumentParser(prog="labkit.teaching.serve", description=description)
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument(
        "--tables",
        metavar="MODULE:FUNCTION",
        help="makes the tables; without it their descriptions are read from standard input, and "
        "the server lives as long as that stays open",
    )
    options = parser.parse_args(arguments)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    try:
        port = check_port(options.port or free_port())
        tables = _tables(options.tables)
    except ParameterError as error:
        print(f"ParameterError: {error}", file=sys.stderr)
        return 2
    import reverb

    with quiet():
        server = reverb.Server(tables, port)
    print(f"serving on port {port}", flush=True)
    parent = os.getppid()
    while not stopping.is_set():
        if options.tables:
            stopping.wait(0.5)
        elif os.getppid() != parent:
            break
        elif select.select([sys.stdin], [], [], 0.5)[0] and not os.read(sys.stdin.fileno(), 1):
            break  # the other end is closed
    with quiet():
        server.stop()
    return 0


def _tables(source: str | None) -> list[Any]:
    if source is None:
        if sys.stdin.isatty():  # nobody else will describe them
            raise invalid("tables", None, "MODULE:FUNCTION, which returns a list of tables")
        try:
            described = json.loads(sys.stdin.buffer.readline())
        except ValueError:
            given = "standard input that describes no tables"
            raise invalid(
                "tables", given, "MODULE:FUNCTION, which returns a list of them"
            ) from None
        return [_rebuild(base64.b64decode(text)) for text in described]
    module, _, function = source.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError, ValueError) as error:
        raise invalid("tables", source, f"an importable MODULE:FUNCTION ({error})") from None


def _rebuild(description: bytes) -> Any:
    """The table that a serialised `internal_table.info()` describes."""
    import reverb
    from reverb import pybind, rate_limiters, reverb_types

    info = reverb_types.TableInfo.from_serialized_proto(description)
    limiter = info.rate_limiter_info
    return reverb.Table(
        info.name,
        sampler=pybind.selector_from_proto(info.sampler_options.SerializeToString()),
        remover=pybind.selector_from_proto(info.remover_options.SerializeToString()),
        max_size=info.max_size,
        max_times_sampled=info.max_times_sampled,
        rate_limiter=rate_limiters.RateLimiter(
            samples_per_insert=limiter.samples_per_insert,
            min_size_to_sample=limiter.min_size_to_sample,
            min_diff=limiter.min_diff,
            max_diff=limiter.max_diff,
        ),
        signature=info.signature,
    )


if __name__ == "__main__":
    sys.exit(main())
