"""Who plays in a distributed run: rollout workers to learn from, the tester to judge.

`distributed` makes Ray actors of these classes. Whatever they wait for has a time limit, or is
watched by the driver, which has one.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
import reverb
import tensorflow as tf

from labkit.config import SACConfig
from labkit.distributed.parameter_server import status, wait_for_actor
from labkit.environments.make import make_environment
from labkit.environments.seeding import seeded_env
from labkit.environments.watchdog import Watchdog
from labkit.errors import ServerGoneError, StalledError
from labkit.replay.reverb_replay import RowWriter, counters
from labkit.sac.agent import create_agent
from labkit.sac.collector import Collector
from labkit.sac.evaluation import evaluate
from labkit.sac.policies import ActorPolicy, Policy, random_policy
from labkit.training.components import COLLECT_SEED, EVAL_SEED, NOISE_SEED

PULL_STEPS = 10  # env steps after which a collector asks for newer weights, at the latest
LOOK_STEPS = 50  # env steps after which it looks at the table's counters: a call of the server
SEEDS_APART = 10_000_019  # from one collector to the next


def actor_policy(config: SACConfig, env, seed: int | None, greedy_share: float = 0.0):
    """The NumPy policy for an environment; its weights come from the parameter server."""
    with contextlib.suppress(RuntimeError):  # else it would take memory from the learner's GPUs
        tf.config.set_visible_devices([], "GPU")
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    return ActorPolicy(create_agent(config, env, strategy), seed, greedy_share)


def watched(config: SACConfig, env, run_path: Path) -> Any:
    """The environment, whose process is ended when it hangs; Ray then starts another."""
    seeded_env(env).watchdog = Watchdog(config.environment_timeout, run_path)
    return env


class RolloutWorker:
    """Collects with the newest weights it has, and writes what it sees into the replay table.

    Args:
        number: of this collector, from 0.
        config: the configuration.
        make_env: returns one's own Gym environment; None takes `config.env_name`.
        run_path: the run directory.
        address: of the Reverb server.
        names: what the names of this run's actors begin with.
        random_steps: env steps, of all collectors together, that are taken at random.
        collectors: how many there are.
    """

    def __init__(
        self,
        number: int,
        config: SACConfig,
        make_env: Callable | None,
        run_path: Path,
        address: str,
        names: str,
        random_steps: int,
        collectors: int,
    ):
        self._number, self._config, self._make_env = number, config, make_env
        self._run_path, self._address, self._names = run_path, address, names
        self._random_steps, self._collectors = random_steps, collectors
        self._version: int | None = None
        self._made_at, self._random = 0, True
        self._collector: Any = None

    def run(self) -> None:
        """Collects until the process is ended."""
        config, number = self._config, self._number
        self._parameters = wait_for_actor(self._names, "parameter server")
        self._client = reverb.Client(self._address)
        inserts = counters(self._client).inserts
        self._writer = RowWriter(self._address)
        # Another life of the same collector, at another count, draws other numbers.
        seed = (config.seed + SEEDS_APART * number + inserts) % 2**31
        source = self._make_env or config.env_name
        env = make_environment(
            source,
            seed=seed + COLLECT_SEED,
            bootstrap_time_limits=config.bootstrap_time_limits,
        )
        env = watched(config, env, self._run_path)
        self._policy = actor_policy(config, env, (seed + NOISE_SEED), config.greedy_share)
        self._collector = Collector(
            env, self._policy, self._write, self._begin_episode, config.n_step, config.gamma
        )
        at_random: Policy = random_policy(env.action_spec(), seed + NOISE_SEED)
        while True:
            left = self._random_steps - inserts
            if self._random and left <= 0:
                # Nothing was older than these weights while nobody acted by any.
                self._made_at = max(self._made_at, self._random_steps)
            self._random = left > 0
            self._collector.policy = at_random if self._random else self._policy
            if self._random:
                self._collector.run(min(LOOK_STEPS, -(-left // self._collectors)))
                self._pull()
                self._flush()
            else:
                for _ in range(LOOK_STEPS // PULL_STEPS):
                    self._collector.run(PULL_STEPS)
                    self._pull()
            # Looked at again and again: a table that begins anew is filled at random again.
            inserts = counters(self._client).inserts

    def _write(self, *transition) -> None:
        self._outlive(lambda: self._writer.write(*transition))

    def _flush(self) -> None:
        self._outlive(lambda: self._writer.flush())

    def _outlive(self, action: Callable[[], None]) -> None:
        try:
            action()
        except ServerGoneError:
            counters(self._client)  # waits for it; the last rows, not confirmed, are lost
            self._writer.drop()
            self._writer = RowWriter(self._address)
        except StalledError:
            pass  # nobody samples: whether that may be is the driver's to judge

    def _begin_episode(self) -> None:
        self._pull()
        self._policy.new_episode()

    def _pull(self) -> None:
        mean_return = self._collector.mean_return()
        in_use = None if self._random else self._version
        asked = self._parameters.pull.remote(in_use, self._made_at, self._number, mean_return)
        if (newest := ray.get(asked)) is not None:
            self._version, self._made_at, weights = newest
            self._policy.set_weights(weights)

    def status(self) -> dict[str, Any]:
        """As `status`, with the env steps of this life."""
        steps = 0 if self._collector is None else self._collector.env_steps
        return {**status(), "env_steps": steps}


class Evaluator:
    """Evaluates, while training goes on, the weights that the learner marks for it.

    Args:
        config: the configuration.
        make_env: returns one's own Gym environment; None takes `config.env_name`.
        run_path: the run directory.
        names: what the names of this run's actors begin with.
    """

    def __init__(self, config: SACConfig, make_env: Callable | None, run_path: Path, names: str):
        self._config, self._source = config, make_env or config.env_name
        self._run_path, self._names = run_path, names
        self._episodes = 0

    def run(self) -> None:
        """Evaluates until the process is ended."""
        config, done = self._config, None
        parameters = wait_for_actor(self._names, "parameter server")
        learner = wait_for_actor(self._names, "learner")
        env = watched(config, make_environment(self._source, seed=config.seed), self._run_path)
        policy = actor_policy(config, env, None)
        while True:
            one = ray.get(parameters.to_test.remote(done))
            if one is None:
                time.sleep(0.2)
                continue
            policy.set_weights(one.weights)
            episodes = config.num_eval_episodes if one.last else config.interim_eval_episodes
            seed = config.seed + (2 if one.last else 1) * EVAL_SEED
            result = evaluate(env, policy, episodes, seed, self._count)
            ray.get(learner.add_evaluation.remote(one.key, one.env_step, result))
            done = one.key

    def _count(self, done: int) -> None:
        self._episodes = done

    def status(self) -> dict[str, Any]:
        """As `status`, with the episodes done of the present evaluation."""
        return {**status(), "episodes": self._episodes}
