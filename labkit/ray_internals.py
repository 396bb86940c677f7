"""What labkit sets inside Ray, where Ray has no switch for it, and undoes after use.

These are Ray's private names: another version may lack them, and the pin is exact for that.
"""

import contextlib
import inspect
import os
import secrets
import time
from collections.abc import Iterator

from labkit.errors import PATIENCE_SECONDS
from labkit.server import free_port

TOKEN_VARIABLES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
OURS: dict[str, str] = {}  # what `require_token` put into the environment


def require_token() -> None:
    """Turns on Ray's token authentication for what this process starts from now on.

    A token that the environment names is used; else one is made, known to this process and its
    children alone.
    """
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = OURS["RAY_AUTH_MODE"] = "token"
    if not any(name in os.environ for name in TOKEN_VARIABLES):
        os.environ["RAY_AUTH_TOKEN"] = OURS["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    _read_again()


def forget_token() -> None:
    """Undoes `require_token`: another cluster has its own token, and Ray prefers ours."""
    token = OURS.get("RAY_AUTH_TOKEN")
    # Where another token stands now, the mode is its owner's too.
    if token is None or os.environ.get("RAY_AUTH_TOKEN") == token:
        for name, value in OURS.items():
            if os.environ.get(name) == value:
                del os.environ[name]
    OURS.clear()
    _read_again()


def _read_again() -> None:
    """Has Ray read the environment again, as it did when it was imported."""
    from ray import _raylet

    _raylet.Config.initialize("")  # type: ignore[attr-defined]  # its stubs lack both
    _raylet.AuthenticationTokenLoader.instance().reset_cache()  # type: ignore[attr-defined]


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """Makes Ray's processes that are started meanwhile listen on 127.0.0.1.

    Ray rewrites a loopback address that it is given to the one that faces outward, except where
    it believes that firewalls would ask about it; this is how it is told to believe so.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    os.environ[ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR] = "0"  # for the processes
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        os.environ.pop(ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR, None)


@contextlib.contextmanager
def no_messages() -> Iterator[None]:
    """Keeps Ray's paragraphs on each death of a process out of the cell: we say it in one line.

    `log_to_driver=False` leaves them there, and Ray has no other switch.
    """
    from ray._private import worker

    before = worker.print_to_stdstream
    worker.print_to_stdstream = lambda *message, **how: None
    try:
        yield
    finally:
        worker.print_to_stdstream = before


@contextlib.contextmanager
def patience() -> Iterator[None]:
    """Waits longer for a node to start than the 15 s and 30 s that are written into Ray.

    A raylet ends itself when one of its agents, loaded in Python, has not written down within 15 s
    which port it took (ray-project/ray issue 65983); beside two trainings on two cores it takes
    longer to load. So the ports are written down before: -1 for what nobody here asks.
    """
    from ray import _raylet
    from ray._private import services

    get_node, start_raylet = services.get_node, services.start_raylet
    place = list(inspect.signature(start_raylet).parameters).index

    def patient_get_node(*arguments):
        begin = time.monotonic()
        while True:
            try:
                return get_node(*arguments)
            except RuntimeError:
                if time.monotonic() - begin > PATIENCE_SECONDS:
                    raise
                time.sleep(0.5)

    def start_with_ports(*arguments, **named):
        node, folder = arguments[place("node_id")], arguments[place("session_dir")]
        unused = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port")
        ports = {**dict.fromkeys(unused, -1), "runtime_env_agent_port": free_port()}
        named["runtime_env_agent_port"] = ports["runtime_env_agent_port"]
        for name, port in ports.items():
            _raylet.persist_port(folder, node, name, port)  # type: ignore[attr-defined]
        return start_raylet(*arguments, **named)

    services.get_node, services.start_raylet = patient_get_node, start_with_ports
    try:
        yield
    finally:
        services.get_node, services.start_raylet = get_node, start_raylet
