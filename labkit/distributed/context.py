"""What all Ray actors of a run share: its configuration, its addresses, and how to find a peer."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import ray

from labkit.config import SACConfig
from labkit.environments.make import make_environment
from labkit.errors import START_SECONDS, StalledError, poll

if TYPE_CHECKING:  # the parameter server's process does without TensorFlow
    from tf_agents.environments.py_environment import PyEnvironment

    from labkit.training.components import MakeEnv

NAMESPACE = "labkit"  # of the actors' names
UNLIMITED_SECONDS = 10**6  # eleven days: for waits that need a number


@attrs.frozen
class RunContext:
    """The part of an actor's constructor that is the same for all actors of a run."""

    config: SACConfig
    make_env: "MakeEnv | None"  # returns an environment, in place of `config.env_name`
    run_path: Path  # the run directory, absolute
    server_address: str  # `host:port` of the Reverb server
    actor_prefix: str  # the names of this run's actors begin with it
    max_episode_steps: int | None = None  # None is the registered time limit

    @property
    def checkpoints(self) -> Path:
        """The run's `checkpoints/`."""
        return self.run_path / "checkpoints"

    def environment(self, seed: int, *, collect: bool = False) -> "PyEnvironment":
        """A seeded environment; a call that hangs ends the process, and Ray restarts it.

        `config.bootstrap_time_limits` only applies to an environment that is to `collect`.
        """
        return make_environment(
            self.config.env_name if self.make_env is None else self.make_env,
            seed=seed,
            max_episode_steps=self.max_episode_steps,
            bootstrap_time_limits=self.config.bootstrap_time_limits or not collect,
            timeout=self.config.environment_timeout,
        )

    def wait_for_actor(self, name: str) -> Any:
        """The handle of another actor of this run; a `StalledError` if none starts in time."""
        full_name = self.actor_prefix + name
        try:
            return poll(lambda: ray.get_actor(full_name, NAMESPACE), ValueError, pause=0.1)
        except ValueError:
            raise StalledError(f"there was no {name} for {START_SECONDS} s") from None


def environment_seconds(config: SACConfig) -> int:
    """How long one environment call may last: `environment_timeout`, where 0 means no limit."""
    return config.environment_timeout or UNLIMITED_SECONDS


def process_status() -> dict[str, Any]:
    """Which process an actor runs in, and the CPU seconds that it has used."""
    node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
    return {"process": (node, os.getpid()), "cpu_seconds": time.process_time()}
