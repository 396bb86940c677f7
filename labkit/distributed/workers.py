"""Rollout workers, which collect transitions, and the evaluator of a distributed run.

Every wait here has a time limit, or is watched by the driver, which has one.
"""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import ray
import tensorflow as tf
from tf_agents.environments.py_environment import PyEnvironment

from labkit.config import SACConfig
from labkit.distributed.context import RunContext, process_status
from labkit.distributed.evaluation_queue import Key
from labkit.distributed.replay_actor import DISK_SECONDS
from labkit.errors import ServerGoneError, StalledError
from labkit.replay.reverb_replay import TransitionWriter, connect, table_state
from labkit.replay.transitions import Transition
from labkit.sac.actor import ActorPolicy
from labkit.sac.agent import create_agent
from labkit.sac.rollout import Collector, evaluate, random_policy
from labkit.training.components import COLLECT_SEED, NOISE_SEED, evaluation_seed

PULL_STEPS = 10  # env steps after which a worker asks for newer weights, at the latest
COUNT_STEPS = 50  # env steps after which it reads the table's counters, a call to the server
WORKER_SEED = 10_000_019  # offset from one worker's seeds to the next


def actor_policy(config: SACConfig, env: PyEnvironment, seed: int | None) -> ActorPolicy:
    """The NumPy policy for an environment; its weights come from the parameter server."""
    with contextlib.suppress(RuntimeError):  # else it would take memory of the learner's GPUs
        tf.config.set_visible_devices([], "GPU")
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    return ActorPolicy(create_agent(config, env, strategy), seed)


class RolloutWorker:
    """Collects with the newest weights it has, and writes transitions into the replay table.

    Numbers begin at 0. All `workers` together take `warm_up_steps` env steps with random actions.
    """

    def __init__(self, context: RunContext, number: int, warm_up_steps: int, workers: int):
        self._context, self._number = context, number
        self._warm_up_steps, self._workers = warm_up_steps, workers
        self._version: int | None = None
        self._made_at, self._warming_up = 0, True
        self._collector: Collector | None = None

    def run(self) -> None:
        """Collects until the process ends."""
        self._parameters = self._context.wait_for_actor("parameter server")
        self._client = connect(self._context.server_address)
        self._writer = self._new_writer()
        env_steps = self._env_steps()
        collector = self._prepare(env_steps)
        while True:
            left = self._warm_up_steps - env_steps
            if self._warming_up and left <= 0:
                # The warm-up did not use these weights, so their age counts from its end.
                self._made_at = max(self._made_at, self._warm_up_steps)
            self._warming_up = left > 0
            if self._warming_up:
                collector.policy = self._random_policy
                collector.run(min(COUNT_STEPS, -(-left // self._workers)))
                self._pull()
                self._retry(self._writer.flush)
            else:
                collector.policy = self._policy
                for _ in range(COUNT_STEPS // PULL_STEPS):
                    collector.run(PULL_STEPS)
                    self._pull()
            # Read again and again: a table that was restarted empty needs a new warm-up.
            env_steps = self._env_steps()

    def _new_writer(self) -> TransitionWriter:
        context = self._context
        return TransitionWriter(context.server_address, context.config.recent_transitions)

    def _env_steps(self) -> int:
        """Those of all workers so far, from the table's counters."""
        inserts = table_state(self._client, DISK_SECONDS).inserts
        return inserts

    def _prepare(self, env_steps: int) -> Collector:
        """Environment, policies and collector; after a restart with other random numbers."""
        config = self._context.config
        seed = (config.seed + WORKER_SEED * self._number + env_steps) % 2**31
        env = self._context.environment(seed + COLLECT_SEED, collect=True)
        self._policy = actor_policy(config, env, seed + NOISE_SEED)
        self._random_policy = random_policy(env.action_spec(), seed + NOISE_SEED)
        self._collector = Collector(
            env, self._policy, self._write, self._pull, config.n_step, config.gamma
        )
        return self._collector

    def _write(self, transition: Transition) -> None:
        self._retry(lambda: self._writer.write(transition))

    def _retry(self, action: Callable[[], None]) -> None:
        """Writes or flushes; waits for a server that is restarted."""
        try:
            action()
        except ServerGoneError:
            table_state(
                self._client, DISK_SECONDS
            )  # waits for it; the last, unconfirmed rows are lost
            self._writer.drop()
            self._writer = self._new_writer()
        except StalledError:
            pass  # nobody samples: the driver decides how long that may last

    def _pull(self) -> None:
        assert self._collector is not None
        mean_return = self._collector.mean_return()
        in_use = None if self._warming_up else self._version
        answer = self._parameters.pull.remote(in_use, self._made_at, self._number, mean_return)
        if (newest := ray.get(answer)) is not None:
            self._version, self._made_at, weights = newest
            self._policy.set_weights(weights)

    def status(self) -> dict[str, Any]:
        """As `process_status`, with the env steps since the last restart."""
        steps = 0 if self._collector is None else self._collector.env_steps
        return {**process_status(), "env_steps": steps}


class Evaluator:
    """Evaluates the weights that the learner sends, while training continues."""

    def __init__(self, context: RunContext):
        self._context, self._episodes, self._final = context, 0, False

    def run(self) -> None:
        """Evaluates until the process ends."""
        config = self._context.config
        done: Key | None = None
        parameters = self._context.wait_for_actor("parameter server")
        learner = self._context.wait_for_actor("learner")
        env = self._context.environment(config.seed)
        policy = actor_policy(config, env, None)
        while True:
            request = ray.get(parameters.next_request.remote(done))
            if request is None:
                time.sleep(0.2)
                continue
            policy.set_weights(request.weights)
            episodes = config.num_eval_episodes if request.final else config.interim_eval_episodes
            seed = evaluation_seed(config, request.final)
            self._episodes, self._final = 0, request.final
            result = evaluate(env, policy, episodes, seed, self._count)
            ray.get(learner.add_evaluation.remote(request.key, result))
            done = request.key

    def _count(self, done: int) -> None:
        self._episodes = done

    def status(self) -> dict[str, Any]:
        """As `process_status`, with the finished episodes of the final evaluation."""
        return {**process_status(), "final_episodes": self._episodes * self._final}
