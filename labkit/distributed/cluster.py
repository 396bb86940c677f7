"""Ray: started on this machine's loopback interface, or a connection to a running cluster."""

import contextlib
import logging
import os
import socket
import tempfile
from collections.abc import Iterator

import ray
from ray._private import ray_constants, worker

from labkit.errors import START_SECONDS, StalledError, first_line
from labkit.parameters import invalid
from labkit.runtime import quiet

# Ray gives its workers a lower priority than all other processes, so that they would starve, and
# gives up on workers that start slowly on a busy machine.
SYSTEM = {
    "worker_niceness": 0,
    "worker_register_timeout_seconds": START_SECONDS,
    "agent_register_timeout_ms": 1000 * START_SECONDS,
}


@contextlib.contextmanager
def connection(address: str | None, cpus: int) -> Iterator[None]:
    """A connection to Ray for the length of a block; one that exists is used as it is.

    Everyone who can reach a Ray cluster can run programs on it. So a Ray that is started here
    listens on the loopback interface only; it requires a token, which is Ray's own default.

    Args:
        address: `host:port` of the head of a running cluster, or 'auto' for the one that this
            machine belongs to; it stays running. None starts Ray on this machine and stops it.
        cpus: number of CPUs that a Ray started here schedules on, without measuring them, or that
            another one must have: one for each rollout worker, and one for the evaluator.

    Raises:
        ParameterError: there is no such cluster, it requires another token, or has too few CPUs.
        StalledError: Ray could not be started here.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with contextlib.nullcontext() if ray.is_initialized() else _new_connection(address, cpus):
        if (total := ray.cluster_resources().get("CPU", 0)) < cpus:
            allowed = f"less than the {total:g} CPUs of the running Ray: the evaluator takes one"
            raise invalid("num_collectors", cpus - 1, allowed)
        yield


@contextlib.contextmanager
def _new_connection(address: str | None, cpus: int) -> Iterator[None]:
    # Ray listens on the outward address, unless its constant says that the firewall of this system
    # would ask the user. Its processes get it from the variable; this one may have read that.
    ray_constants.ENABLE_RAY_CLUSTER = address is not None
    os.environ[ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR] = str(int(address is not None))
    # Ray opens its folder to every user; the one above it is ours alone.
    folder = tempfile.TemporaryDirectory(None, "labkit-ray-", "/tmp", ignore_cleanup_errors=True)
    with folder, contextlib.ExitStack() as stack:
        stack.callback(setattr, worker, "_worker_logs_enabled", True)
        stack.callback(quiet()(ray.shutdown))
        with quiet():
            _start(f"{folder.name}/ray", cpus) if address is None else _connect(address)
        # Ray has no option to hide its paragraphs about each failed process, for which the driver
        # prints one line.
        worker._worker_logs_enabled = False
        yield


def _start(folder: str, cpus: int) -> None:
    try:
        ray.init(
            address="local",
            num_cpus=cpus,
            object_store_memory=200_000_000,  # for weights of about 0.3 MB
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=folder,
            _system_config=SYSTEM,
        )
    except Exception as error:  # Ray raises plain ones here
        raise StalledError(f"Ray could not be started here: {first_line(error)}") from None


def _connect(address: str) -> None:
    try:
        if address != "auto":  # where nothing listens, Ray itself would wait minutes
            host, _, port = str(address).rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray's own names the address; the reason is in its cause
        reason = getattr(error, "strerror", None) or " ".join(str(error.__cause__ or error).split())
        allowed = "None, 'auto', or host:port of a Ray cluster's head whose token this node has"
        raise invalid("address", address, f"{allowed} ({reason})") from None
