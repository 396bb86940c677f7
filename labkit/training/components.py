"""The components of a training run: environments, agent, strategy and replay table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import tensorflow as tf
from tf_agents.environments.py_environment import PyEnvironment

from labkit.config import MINITAUR_NAME, SACConfig, check_config
from labkit.environments.make import (
    check_separate,
    check_specs,
    environment_name,
    make_environment,
    raw_env,
)
from labkit.errors import first_line
from labkit.parameters import invalid
from labkit.replay.transitions import Layout, ReplayTable, layout_of
from labkit.runtime import seed_everything
from labkit.sac.agent import SeededSacAgent, create_agent
from labkit.sac.rollout import Collector, random_policy
from labkit.strategy import make_strategy
from labkit.training.progress import progress
from labkit.training.run import Run

MakeEnv = Callable[[], Any]  # a user's own environment, of Gym 0.23 or of Gymnasium
Environments = tuple[PyEnvironment, PyEnvironment]  # for collection, for evaluation

# Offsets of the seeds of independent random streams, far enough from one another that runs with
# neighbouring seeds share none.
COLLECT_SEED, EVAL_SEED, NOISE_SEED, RESUME_SEED = 0, 1_000_003, 2_000_003, 3_000_003


def evaluation_seed(config: SACConfig, final: bool) -> int:
    """The seed of an evaluation's episodes, for `env.seed`; both executors use it.

    All interim evaluations of a run play the same episodes, so that its curve compares policies and
    not episodes. The final evaluation plays others, and others again for each budget: a finished
    run that is resumed with more iterations is not scored by episodes that it was scored by before.

    """
    if not final:
        return (config.seed + EVAL_SEED) % 2**31
    words = np.random.SeedSequence([config.seed, config.num_iterations, EVAL_SEED])
    return int(words.generate_state(1)[0]) % 2**31


@attrs.define(kw_only=True)
class TrainingComponents:
    """The components of a training run, as `build` makes them.

    The agent is made under the strategy's scope. The table holds the transitions of the warm-up
    when training begins; `env_steps` counts env steps so far, the warm-up included.
    """

    strategy: tf.distribute.Strategy
    collect_env: PyEnvironment
    eval_env: PyEnvironment
    agent: SeededSacAgent
    replay: ReplayTable
    env_steps: int = 0

    @property
    def layout(self) -> Layout:
        """The row layout of this environment's transitions."""
        return layout_of(self.collect_env)

    def close(self) -> None:
        """Closes the replay table; may be called twice."""
        self.replay.close()


def open_replay(config: SACConfig, layout: Layout, folder: Path | None = None) -> ReplayTable:
    """The empty replay table that `config.replay` names, with rows of this layout.

    A Reverb server writes its snapshots to `folder`; None makes a temporary directory.

    Raises:
        ParameterError: Reverb cannot be imported here.
    """
    capacity, recent = config.replay_buffer_capacity, config.recent_transitions
    if config.replay == "tf_uniform":
        from labkit.replay.uniform_replay import UniformReplay

        return UniformReplay(layout, capacity, recent)
    try:
        from labkit.replay.reverb_replay import ReverbReplay
        from labkit.replay.server import warn_once
    except ImportError as error:
        allowed = f"'tf_uniform' here, where Reverb cannot be imported ({first_line(error)})"
        raise invalid("replay", config.replay, allowed) from None
    warn_once()
    return ReverbReplay(layout, capacity, folder, recent=recent)


def make_environments(
    config: SACConfig, make_env: MakeEnv | None = None, max_episode_steps: int | None = None
) -> Environments:
    """Seeds every generator, then makes the environments of collection and evaluation.

    Args:
        config: the configuration.
        make_env: replaces `config.env_name`.
        max_episode_steps: the time limit; None takes the registered one, if any.

    Raises:
        ParameterError: SAC cannot train on the environment, or `make_env` returns the same twice.
    """
    seed_everything(config.seed)

    def make(seed: int, bootstrap: bool = True) -> PyEnvironment:
        source, timeout = make_env or config.env_name, config.environment_timeout
        return make_environment(source, seed, max_episode_steps, bootstrap, timeout)

    collect_env = make(config.seed + COLLECT_SEED, config.bootstrap_time_limits)
    check_specs(collect_env)
    check_tuned(config, collect_env)
    eval_env = make(evaluation_seed(config, final=False))
    check_separate(collect_env, eval_env)
    return collect_env, eval_env


def build(
    config: SACConfig, environments: Environments | None = None, folder: Path | None = None
) -> TrainingComponents:
    """Makes all components.

    Args:
        config: the configuration.
        environments: as `make_environments` returned them; None makes them.
        folder: of the replay table's snapshots, see `open_replay`.

    Raises:
        ParameterError: see `make_environments`.
    """
    collect_env, eval_env = environments or make_environments(config)
    strategy = make_strategy(config.strategy, config.batch_size)
    return TrainingComponents(
        strategy=strategy,
        collect_env=collect_env,
        eval_env=eval_env,
        agent=create_agent(config, collect_env, strategy),
        replay=open_replay(config, layout_of(collect_env), folder),
    )


def check_config_and_run(config: Any, run: Any) -> None:
    """Rejects arguments of other types, such as a dictionary of parameters or the path of a run."""
    check_config(config)
    if run is not None and not isinstance(run, Run):
        raise invalid("run", run, "None, or what labkit.open_run(run_dir, config) returns")


def check_tuned(config: SACConfig, env: PyEnvironment) -> None:
    """Rejects settings of the Minitaur if `make_env` gave another robot."""
    special = config.env_name == MINITAUR_NAME or config.symmetry_augmentation
    if special and environment_name(env) != config.env_name:
        name = type(raw_env(env)).__name__
        allowed = (
            f"a name for the environment of `make_env`, such as {name!r}: this one chooses the "
            "reward scale, observation scale, reflection and other settings of that environment"
        )
        raise invalid("env_name", config.env_name, allowed)
    if config.reflection and layout_of(env) != Layout(*config.reflection.sizes):
        allowed = f"False: observations or actions are not those of {config.env_name}"
        raise invalid("symmetry_augmentation", True, allowed)


def warm_up(config: SACConfig, components: TrainingComponents) -> None:
    """Fills the table with `config.initial_collect_steps` env steps of uniform actions."""
    env, replay = components.collect_env, components.replay
    policy = random_policy(env.action_spec(), config.seed + NOISE_SEED)
    collector = Collector(env, policy, replay.write, n_step=config.n_step, gamma=config.gamma)
    with progress("warm-up", config.initial_collect_steps, "env steps") as ticker:
        for _ in range(config.initial_collect_steps):
            collector.run(1)
            ticker.advance()
    collector.end()
    replay.flush()
    components.env_steps += config.initial_collect_steps
