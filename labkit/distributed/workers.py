"""Rollout workers, which collect transitions, and the evaluator of a distributed run."""

import contextlib
import sys
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import ray
import tensorflow as tf
from tf_agents.environments.py_environment import PyEnvironment

from labkit.config import SACConfig
from labkit.distributed.cluster import process_status
from labkit.environments.make import make_environment
from labkit.errors import START_SECONDS, ServerGoneError, StalledError
from labkit.replay.reverb_replay import TransitionWriter, table_state
from labkit.replay.server import connect
from labkit.replay.transitions import Transition
from labkit.sac.actor import ActorPolicy
from labkit.sac.agent import create_agent
from labkit.sac.rollout import Collector, Evaluation, evaluate, random_policy
from labkit.training.components import COLLECT_SEED, NOISE_SEED, evaluated

PULL_STEPS = 10  # env steps after which a worker asks for newer weights, at the latest
COUNT_STEPS = 50  # env steps after which it reads the table's counters, a call to the server
WORKER_SEED = 10_000_019  # offset from one worker's seeds to the next
DISK_SECONDS = 600  # to write or load a snapshot of the table, on a slow disk


@attrs.frozen
class RunContext:
    """What all actors of a run get: its configuration and its places."""

    config: SACConfig
    make_env: bytes | None  # pickled, in place of `config.env_name`
    sys_path: list[str]  # the driver's, where the module of `make_env` may be
    checkpoints: Path  # that of the run directory, absolute
    server_address: str  # `host:port` of the Reverb server
    max_episode_steps: int | None = None  # None is the registered time limit

    def environment(self, seed: int, *, collect: bool = False) -> PyEnvironment:
        """A seeded environment, also for evaluation; Ray restarts a process in which it hangs."""
        sys.path += [path for path in self.sys_path if path not in sys.path]
        make_env = self.make_env and ray.cloudpickle.loads(self.make_env)
        source, timeout = make_env or self.config.env_name, self.config.environment_timeout
        bootstrap = self.config.bootstrap_time_limits or not collect
        return make_environment(source, seed, self.max_episode_steps, bootstrap, timeout)


def silence_limit(config: SACConfig) -> int:
    """Seconds that an actor may be silent: longer than an environment may hang; 0 is no limit."""
    return START_SECONDS + (config.environment_timeout or 10**6)


def actor_policy(config: SACConfig, env: PyEnvironment, seed: int | None) -> ActorPolicy:
    """The NumPy policy for an environment; its weights come from the parameter server."""
    with contextlib.suppress(RuntimeError):  # else it would take memory of the learner's GPUs
        tf.config.set_visible_devices([], "GPU")
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    return ActorPolicy(create_agent(config, env, strategy), seed)


class RolloutWorker:
    """Collects with the newest weights; number 0, 1, … of `workers` that share the warm-up."""

    status = ray.method(concurrency_group="status")(process_status)

    def __init__(self, context: RunContext, number: int, workers: int):
        self._context, self._number, self._workers = context, number, workers
        self._version: tuple[int | None, int] = None, 0  # with the env steps when it was made

    def run(self, parameters: Any) -> None:
        """Collects until the process ends; `parameters` is the parameter server's handle."""
        config, self._parameters = self._context.config, parameters
        self._client = connect(self._context.server_address)
        # After a restart with other random numbers.
        seed = (config.seed + WORKER_SEED * self._number + self._env_steps()) % 2**31
        env = self._context.environment(seed + COLLECT_SEED, collect=True)
        self._policy = actor_policy(config, env, seed + NOISE_SEED)
        at_random = random_policy(env.action_spec(), seed + NOISE_SEED)
        how = self._store, self._pull, config.n_step, config.gamma
        collector = self._collector = Collector(env, at_random, *how)
        self._writer = self._open_writer()
        while True:
            # Read again and again: a table that was restarted empty needs a new warm-up.
            left = config.initial_collect_steps - self._env_steps()
            if left > 0:
                collector.policy = at_random
                collector.run(min(COUNT_STEPS, -(-left // self._workers)))
                self._store(None)
                continue
            collector.policy = self._policy
            for _ in range(COUNT_STEPS // PULL_STEPS):
                self._pull()
                collector.run(PULL_STEPS)

    def _open_writer(self) -> TransitionWriter:
        context = self._context
        return TransitionWriter(context.server_address, context.config.recent_transitions)

    def _env_steps(self) -> int:
        """Those of all workers so far, from the table's counters; waits for its server."""
        return table_state(self._client, DISK_SECONDS).inserts

    def _store(self, transition: Transition | None) -> None:
        """Writes a transition, or flushes them all; waits for a server that is restarted."""
        try:
            self._writer.write(transition) if transition else self._writer.flush()
        except ServerGoneError:
            self._env_steps()  # waits for it; the last, unconfirmed rows are lost
            self._writer.drop()
            self._writer = self._open_writer()
        except StalledError:
            pass  # nobody samples: the learner decides how long that may last

    def _pull(self) -> None:
        """Gets newer weights, every few env steps and before each episode after the warm-up."""
        if self._collector.policy is self._policy:
            told = (*self._version, self._number, self._collector.mean_return())
            if (newest := ray.get(self._parameters.pull.remote(*told))) is not None:
                version, made_at, weights = newest
                # Those of before were not used in the warm-up: their age counts from its end.
                self._version = version, max(made_at, self._context.config.initial_collect_steps)
                self._policy.set_weights(weights)


class Evaluator:
    """Evaluates the weights that the learner sends, while training continues."""

    status = ray.method(concurrency_group="status")(process_status)

    def __init__(self, context: RunContext):
        self._context = context
        self._env: PyEnvironment | None = None

    def evaluate(self, weights: np.ndarray, final: bool) -> Evaluation:
        """Plays the episodes of an interim or the final evaluation with `[parameters] float32`."""
        config = self._context.config
        if self._env is None:
            self._env = self._context.environment(config.seed)
            self._policy = actor_policy(config, self._env, None)
        self._policy.set_weights(weights)
        return evaluate(self._env, self._policy, *evaluated(config, final))
