"""Ray: started on this machine's loopback interface, or a connection to a running cluster.

Everyone who can reach a Ray cluster can run programs on it. So a Ray that is started here requires
a token and listens on the loopback interface only. The first half of this module sets what Ray has
no option for, and undoes it after use. It uses private names of Ray, so Ray's version is pinned
exactly.
"""

import contextlib
import importlib.util
import inspect
import logging
import os
import secrets
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from labkit.distributed.process_reaper import reaper
from labkit.errors import START_SECONDS, ParameterError, StalledError, first_line, poll
from labkit.parameters import invalid
from labkit.replay.server import free_port
from labkit.runtime import quiet

TOKEN_VARIABLES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
SET_HERE: dict[str, str] = {}  # what `require_token` put into the environment


def require_token() -> None:
    """Turns on Ray's token authentication for processes that this one starts from now on.

    It uses the token that the environment names, or makes one that only this process and its
    children know.
    """
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = SET_HERE["RAY_AUTH_MODE"] = "token"
    if not any(name in os.environ for name in TOKEN_VARIABLES):
        os.environ["RAY_AUTH_TOKEN"] = SET_HERE["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    _read_again()


def forget_token() -> None:
    """Undoes `require_token`: another cluster has its own token, and Ray would use this one."""
    token = SET_HERE.get("RAY_AUTH_TOKEN")
    # If the token was replaced since, its owner has set the mode as well.
    if token is None or os.environ.get("RAY_AUTH_TOKEN") == token:
        for name, value in SET_HERE.items():
            if os.environ.get(name) == value:
                del os.environ[name]
    SET_HERE.clear()
    _read_again()


def _read_again() -> None:
    """Makes Ray read the environment again, as it did when it was imported."""
    from ray import _raylet

    _raylet.Config.initialize("")  # type: ignore[attr-defined]  # its stubs lack both
    _raylet.AuthenticationTokenLoader.instance().reset_cache()  # type: ignore[attr-defined]  # as above


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """Makes Ray processes that start inside the block listen on 127.0.0.1.

    Ray replaces a loopback address by the outward one, except on systems whose firewalls would
    ask the user; this sets the flag for such a system.
    """
    from ray._private import ray_constants

    variable = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    before, given = ray_constants.ENABLE_RAY_CLUSTER, os.environ.get(variable)
    ray_constants.ENABLE_RAY_CLUSTER = False
    os.environ[variable] = "0"  # for the processes
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        del os.environ[variable]
        if given is not None:
            os.environ[variable] = given


@contextlib.contextmanager
def no_messages() -> Iterator[None]:
    """Hides Ray's paragraphs about each failed process; the driver prints one line instead.

    `log_to_driver=False` does not hide them, and Ray has no other option.
    """
    from ray._private import worker

    before = worker.print_to_stdstream
    worker.print_to_stdstream = lambda *message, **options: None
    try:
        yield
    finally:
        worker.print_to_stdstream = before


@contextlib.contextmanager
def long_start() -> Iterator[None]:
    """Waits longer for a node to start than the 15 s and 30 s that are fixed in Ray.

    A raylet ends itself when one of its Python agents has not stored its port within 15 s
    (ray-project/ray issue 65983); next to two trainings on two cores an agent takes longer to load.
    So the ports are stored before: -1 for agents that nothing here uses.
    """
    from ray import _raylet
    from ray._private import services

    get_node, start_raylet = services.get_node, services.start_raylet
    place = list(inspect.signature(start_raylet).parameters).index

    def patient_get_node(*arguments: Any) -> Any:
        return poll(lambda: get_node(*arguments), RuntimeError, pause=0.5)

    def start_with_ports(*arguments: Any, **named: Any) -> Any:
        node, folder = arguments[place("node_id")], arguments[place("session_dir")]
        unused = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port")
        ports = {**dict.fromkeys(unused, -1), "runtime_env_agent_port": free_port()}
        named["runtime_env_agent_port"] = ports["runtime_env_agent_port"]
        for name, port in ports.items():
            _raylet.persist_port(folder, node, name, port)  # type: ignore[attr-defined]  # as above
        return start_raylet(*arguments, **named)

    services.get_node, services.start_raylet = patient_get_node, start_with_ports
    try:
        yield
    finally:
        services.get_node, services.start_raylet = get_node, start_raylet


OBJECT_STORE_BYTES = 200_000_000  # for weights of about 0.3 MB
# Ray gives its workers a lower priority than all other processes, so that they would starve, and
# gives up on workers that start slowly on a busy machine.
SYSTEM = {
    "worker_niceness": 0,
    "worker_register_timeout_seconds": START_SECONDS,
    "agent_register_timeout_ms": 1000 * START_SECONDS,
}
CONNECT_SECONDS = 10
ADDRESSES = "None, 'auto', or host:port of the head of a running Ray cluster"
# Ray speaks gRPC over HTTP/2 (RFC 9113): a client greets with this line and a settings frame, and a
# server answers with its settings, whose fourth byte is their type.
HTTP2_SETTINGS = b"\x04"
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + HTTP2_SETTINGS + bytes(5)


def check_installed() -> None:
    """Raises a `ParameterError` with what to install, if Ray is missing."""
    if importlib.util.find_spec("ray") is None:
        raise ParameterError("Ray is not installed here: pip install '.[ray]' in labkit's folder")


@contextlib.contextmanager
def connection(address: str | None, cpus: int) -> Iterator[None]:
    """A connection to Ray for the length of a block.

    Args:
        address: of a running cluster, which stays running: `host:port` of its head, or 'auto' for
            the one that this machine belongs to. None starts Ray on this machine and stops it; a
            Ray that this process has already connected to is used as it is.
        cpus: number of CPUs that a Ray started here schedules on; it does not measure them.

    Raises:
        ParameterError: there is no such cluster, or it requires another token.
    """
    check_installed()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    if ray.is_initialized():
        connected = ray.get_runtime_context().gcs_address
        given = None if address == "auto" else address
        if given is not None and not _same_host_and_port(given, connected):
            allowed = f"None, or {connected!r}, to which this process is already connected"
            raise invalid("address", address, allowed)
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    with contextlib.ExitStack() as stack:
        stack.enter_context(no_messages())
        if address is None:
            folder = tempfile.mkdtemp(prefix="labkit-ray-", dir="/tmp")  # sockets: short paths
            # Ray opens its folder to every user; this one above it stays ours alone.
            stack.enter_context(reaper(folder))
            stack.enter_context(on_loopback())
        if address is None:
            stack.callback(forget_token)  # after the shutdown, which is registered next
        stack.callback(quiet()(ray.shutdown))
        with quiet():
            if address is None:
                require_token()
                _start(f"{folder}/ray", cpus)
            else:
                _connect(address)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray replaces it
        yield


def _same_host_and_port(one: str, other: str) -> bool:
    """Whether two `host:port` lead to one address, as a name and its number do."""

    def found(address: str) -> set[Any]:
        host, _, port = address.rpartition(":")
        try:
            return {info[4][:2] for info in socket.getaddrinfo(host.strip("[]"), int(port))}
        except (OSError, ValueError):
            return {address}

    return bool(found(one) & found(other))


def _start(folder: str, cpus: int) -> None:
    import ray

    try:
        with long_start():
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
        what = "Ray could not be started on this machine"
        raise StalledError(f"{what}: {first_line(error)}") from None
    if not ray.util.get_node_ip_address().startswith("127."):
        raise ParameterError(
            "Ray was imported before labkit could keep it on the loopback interface: restart the "
            "kernel, and call labkit first"
        )


def check_address(address: str | None) -> None:
    """Rejects an address where nothing answers as Ray does; 'auto' is Ray's to find.

    Ray itself would wait minutes for an answer.

    Raises:
        ParameterError: names the address and the reason, within `2 * CONNECT_SECONDS`.
    """
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address  # as Ray does
    if address is None or address == "auto":
        return
    if not isinstance(address, str):
        raise invalid("address", address, ADDRESSES)
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS) as connected:
            connected.sendall(HTTP2_GREETING)
            answer = connected.recv(9)
    except TimeoutError:
        reason = f"there is no answer within {CONNECT_SECONDS} s"
        raise invalid("address", address, f"{ADDRESSES} ({reason})") from None
    except (OSError, ValueError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise invalid("address", address, f"{ADDRESSES} ({reason})") from None
    # With TLS a server answers this greeting in another way.
    if answer[3:4] != HTTP2_SETTINGS and os.environ.get("RAY_USE_TLS", "0") == "0":
        raise invalid("address", address, f"{ADDRESSES} (something else answers there)")


def check_cpus(num_collectors: int) -> None:
    """Rejects more workers than fit into a Ray that this process has already connected to.

    Raises:
        ParameterError: a rollout worker or the evaluator would wait for a CPU.
    """
    import ray

    if ray.is_initialized():
        total = ray.cluster_resources().get("CPU", 0)
        if num_collectors >= total:
            allowed = f"less than the {total:g} CPUs of the running Ray: the evaluator takes one"
            raise invalid("num_collectors", num_collectors, allowed)


def head_answers() -> bool:
    """Whether the cluster's head, Ray's process `gcs_server`, accepts connections."""
    import ray

    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except OSError:
        return False
    return True


def _connect(address: str) -> None:
    import ray

    check_address(address)
    forget_token()
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        # Ray's own message names the address only; the reason is in its cause, on several lines.
        reason = " ".join(str(error.__cause__ or error).split()) or type(error).__name__
        here = "with its token, and this machine must be one of its nodes"
        raise invalid("address", address, f"{ADDRESSES}, {here} ({reason})") from None
