"""Ray started and stopped: on this machine's loopback alone, or a cluster that is there already.

Whoever can reach a Ray cluster can run programs on it. So every Ray that is started here wants a
token, and listens on the loopback interface only.
"""

import contextlib
import importlib.util
import logging
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator

from labkit.config import ParameterError, refuse
from labkit.errors import PATIENCE_SECONDS, StalledError
from labkit.ray_internals import (
    forget_token,
    no_messages,
    on_loopback,
    patience,
    require_token,
)
from labkit.reaper import reaper
from labkit.runtime import quiet

OBJECT_STORE_BYTES = 200_000_000  # weights of some 0.3 MB pass through it
# Ray runs its workers at a lower priority than everything else, where they would starve.
# And it gives up on those that a busy machine is slow to start.
SYSTEM = {
    "worker_niceness": 0,
    "worker_register_timeout_seconds": PATIENCE_SECONDS,
    "agent_register_timeout_ms": 1000 * PATIENCE_SECONDS,
}
CONNECT_SECONDS = 10


def check_installed() -> None:
    """Refuses to go on where there is no Ray.

    Raises:
        ParameterError: one line that says what to install.
    """
    if importlib.util.find_spec("ray") is None:
        raise ParameterError("Ray is not installed here: pip install '.[ray]' in labkit's folder")


@contextlib.contextmanager
def connection(address: str | None, cpus: int) -> Iterator[None]:
    """A Ray to work with for the length of a block.

    Args:
        address: of a running cluster, `host:port` of its head, or 'auto' for the one that this
            machine belongs to; it is left running. None starts a Ray on this machine for these
            `cpus`, and stops it; one that this process has already is used, and left alone.
        cpus: that a Ray started here counts; it does not measure them.

    Raises:
        ParameterError: there is no such cluster, or it wants another token.
    """
    check_installed()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else each start warns of it
    import ray

    if ray.is_initialized():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    with contextlib.ExitStack() as stack:
        stack.enter_context(no_messages())
        if address is None:
            folder = tempfile.mkdtemp(prefix="labkit-ray-", dir="/tmp")  # sockets: short paths
            stack.enter_context(reaper(folder))
            stack.enter_context(on_loopback())
        stack.callback(_stop)
        with quiet():
            if address is None:
                require_token()
                _start(folder, cpus)
            else:
                _connect(address)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray takes it for itself
        yield


def _stop() -> None:
    import ray

    with quiet():
        ray.shutdown()


def _start(folder: str, cpus: int) -> None:
    import ray

    try:
        with patience():
            ray.init(
                address="local",
                num_cpus=cpus,
                object_store_memory=OBJECT_STORE_BYTES,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _temp_dir=folder,
                _system_config=SYSTEM,
            )
    except Exception as error:  # Ray raises plain ones here
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise StalledError(f"Ray could not be started on this machine: {reason}") from None
    if not ray.util.get_node_ip_address().startswith("127."):
        raise ParameterError(
            "Ray was imported before labkit could keep it on the loopback interface: restart the "
            "kernel, and call labkit first"
        )


def _connect(address: str) -> None:
    import ray

    allowed = "None, 'auto', or host:port of the head of a running Ray cluster"
    host, _, port = address.rpartition(":")
    if address != "auto":
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except (OSError, ValueError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise refuse("address", address, f"{allowed} ({reason})") from None
    forget_token()
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = str(error).strip().splitlines()[0]
        raise refuse("address", address, f"{allowed}, with its token ({reason})") from None
