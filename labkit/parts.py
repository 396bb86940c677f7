"""What a training works with, made from a configuration."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import reverb
import tensorflow as tf

from labkit import environments, replay, runtime
from labkit.agent import SeededSacAgent, create_agent
from labkit.collect import Collector, random_policy
from labkit.config import SACConfig
from labkit.progress import progress

# Seeds of what is drawn apart; far enough from one another that runs with neighbouring
# seeds share none of them.
COLLECT_SEED, EVAL_SEED, NOISE_SEED = 0, 1_000_003, 2_000_003


@attrs.define(kw_only=True)
class Parts:
    """What a training works with. `build` makes them; notebook 03 makes them one by one."""

    strategy: tf.distribute.Strategy
    collect_env: Any
    eval_env: Any
    agent: SeededSacAgent
    server: reverb.Server
    writer: replay.TransitionWriter
    env_steps: int = 0

    @property
    def layout(self) -> replay.Layout:
        """The row layout of this environment's transitions."""
        return layout_of(self.collect_env)

    def replace_server(self, tables: list[reverb.Table], folder: Path, snapshot: Path) -> None:
        """Stops the server and starts one that holds a snapshot, with a writer of its own."""
        self.close()
        self.server = replay.start_server(tables, folder, snapshot)
        self.writer = replay.TransitionWriter(self.server)

    def close(self) -> None:
        """Stops the writer and the server; may be called twice."""
        if self.server is not None:
            self.writer.close()
            with runtime.quiet():
                self.server.stop()
            self.server = None


def layout_of(env) -> replay.Layout:
    """The row layout for an environment's observations and actions."""
    return replay.Layout(env.observation_spec().shape[0], env.action_spec().shape[0])


def build(config: SACConfig, make_env: Callable | None = None, folder: Path | None = None) -> Parts:
    """Makes every part of a run from its configuration.

    Args:
        config: the configuration.
        make_env: returns one's own Gym environment, in place of `config.env_name`.
        folder: where the replay server writes its snapshots; None is a temporary directory.
    """
    runtime.seed_everything(config.seed)
    strategy = runtime.make_strategy(config.strategy, config.batch_size)
    source = make_env or config.env_name
    collect_env = environments.make(source, seed=config.seed + COLLECT_SEED)
    environments.check_specs(collect_env)
    table = replay.packed_table(layout_of(collect_env), config.replay_buffer_capacity)
    server = replay.start_server([table], folder)
    return Parts(
        strategy=strategy,
        collect_env=collect_env,
        eval_env=environments.make(source, seed=config.seed + EVAL_SEED),
        agent=create_agent(config, collect_env, strategy),
        server=server,
        writer=replay.TransitionWriter(server),
    )


def collect_initially(config: SACConfig, parts: Parts) -> None:
    """Fills the table with `config.initial_collect_steps` env steps of uniform actions."""
    policy = random_policy(parts.collect_env.action_spec(), config.seed + NOISE_SEED)
    collector = Collector(parts.collect_env, policy, parts.writer.write)
    with progress("random collection", config.initial_collect_steps, "env steps") as ticker:
        for _ in range(config.initial_collect_steps):
            collector.run(1)
            ticker.advance()
    parts.writer.flush()
    parts.env_steps += config.initial_collect_steps
