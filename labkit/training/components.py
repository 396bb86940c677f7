"""The components of a training run: environments, agent, strategy and replay table."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import tensorflow as tf
from tf_agents.environments.py_environment import PyEnvironment

from labkit.config import MINITAUR_NAME, SACConfig, check_config
from labkit.environments import make
from labkit.errors import ParameterError, RunError
from labkit.parameters import invalid
from labkit.replay.transitions import Layout, ReplayTable, layout_of
from labkit.replay.uniform_replay import UniformReplay
from labkit.runtime import seed_everything
from labkit.sac.agent import SeededSacAgent, create_agent
from labkit.sac.rollout import Collector, Row, random_policy
from labkit.strategy import make_strategy
from labkit.training import checkpoint
from labkit.training.progress import progress
from labkit.training.records import describe, has_begun
from labkit.training.run import Run, check_free, check_same, open_run

MakeEnv = Callable[[], Any]  # a user's own environment, of Gym 0.23 or of Gymnasium
Environments = tuple[PyEnvironment, PyEnvironment]  # for collection, for evaluation

# Offsets of the seeds of independent random streams, far enough from one another that runs with
# neighbouring seeds share none.
COLLECT_SEED, EVAL_SEED, NOISE_SEED, RESUME_SEED = 0, 1_000_003, 2_000_003, 3_000_003


def evaluated(config: SACConfig, final: bool = False) -> tuple[int, int]:
    """How many episodes an evaluation has, and its seed; both executors use them.

    All interim evaluations of a run play the same episodes, so that its curve compares policies and
    not episodes. The final evaluation plays others, and others again for each budget: a finished
    run that is resumed with more iterations is not scored by episodes that it was scored by before.
    """
    if not final:
        return config.interim_eval_episodes, (config.seed + EVAL_SEED) % 2**31
    words = np.random.SeedSequence([config.seed, config.num_iterations, EVAL_SEED])
    return config.num_eval_episodes, int(words.generate_state(1)[0]) % 2**31


@attrs.define
class TrainingComponents:
    """The components of a training run, as `build` makes them.

    The agent is made under the strategy's scope. The table holds the transitions of the warm-up
    when training begins; `env_steps` counts env steps so far, the warm-up included.
    """

    strategy: tf.distribute.Strategy
    collect_env: PyEnvironment
    eval_env: PyEnvironment
    agent: SeededSacAgent
    layout: Layout  # of a row of the table
    replay: ReplayTable
    env_steps: int = 0
    early: Iterator[Row] | None = None  # the evaluation of gradient step 0, where it has begun


def make_environments(
    config: SACConfig, make_env: MakeEnv | None = None, max_episode_steps: int | None = None
) -> Environments:
    """Seeds every generator, then makes the environments of collection and evaluation.

    `make_env` replaces `config.env_name`; without `max_episode_steps`, the registered time limit
    counts, if any. Rejects an environment on which SAC cannot train, and one that is made twice.
    """
    seed_everything(config.seed)

    def one(seed: int, bootstrap: bool = True) -> PyEnvironment:
        source, timeout = make_env or config.env_name, config.environment_timeout
        return make.make_environment(source, seed, max_episode_steps, bootstrap, timeout)

    collect_env = one(config.seed + COLLECT_SEED, config.bootstrap_time_limits)
    make.check_specs(collect_env)
    check_tuned(config, collect_env)
    eval_env = one(evaluated(config)[1])
    make.check_separate(collect_env, eval_env)
    return collect_env, eval_env


def build(
    config: SACConfig, environments: Environments | None = None, folder: Path | None = None
) -> TrainingComponents:
    """Makes all components, with environments as `make_environments` returns them.

    A Reverb server writes its snapshots to `folder`; None makes a temporary directory.
    """
    collect_env, eval_env = environments or make_environments(config)
    layout, strategy = layout_of(collect_env), make_strategy(config.strategy, config.batch_size)
    agent = create_agent(config, collect_env, strategy)
    capacity, recent = config.replay_buffer_capacity, config.recent_transitions
    replay: ReplayTable
    if config.replay == "tf_uniform":
        replay = UniformReplay(layout, capacity, recent)
    else:
        from labkit.replay.reverb_replay import ReverbReplay  # it has builds for Linux only
        from labkit.replay.server import warn_once

        warn_once()
        replay = ReverbReplay(layout, capacity, folder, recent=recent)
    return TrainingComponents(strategy, collect_env, eval_env, agent, layout, replay)


@contextlib.contextmanager
def open_training(
    executor: str, config: SACConfig, run: Run | None, make_env: MakeEnv | None, limit: int | None
) -> Iterator[tuple[Run, Environments]]:
    """Checks an executor's arguments; its run, and its environments, which are closed afterwards.

    `limit` is that of an episode. If an argument is rejected, a new run directory without rows and
    checkpoints is removed. Other errors name the last good checkpoint.
    """
    check_config(config)
    if run is not None and not isinstance(run, Run):
        raise invalid("run", run, "None, or what labkit.open_run(run_dir, config) returns")
    if run is not None:
        check_same(run.path, run.config, config)
    with contextlib.ExitStack() as stack:
        environments = make_environments(config, make_env, limit)
        for env in environments:
            stack.callback(env.close)
        found = {"executor": executor, **describe(environments[0])}
        opened = run or open_run("", config, environment=found)
        try:
            check_free(opened.path)
            opened.check_environment(found)
            yield opened, environments
        except ParameterError:
            if run is None and not has_begun(opened.path):
                shutil.rmtree(opened.path, ignore_errors=True)
            raise
        except Exception as error:
            newest = checkpoint.latest(opened.path / "checkpoints")
            what = f"last good checkpoint: {newest or 'none yet'}"
            if isinstance(error, RunError):
                raise type(error)(f"{error}; {what}") from None
            print(f"the run ends with a {type(error).__name__}; {what}")
            raise


def check_tuned(config: SACConfig, env: PyEnvironment) -> None:
    """Rejects settings of the Minitaur if `make_env` gave another robot."""
    special = config.env_name == MINITAUR_NAME or config.symmetry_augmentation
    if special and make.environment_name(env) != config.env_name:
        name = type(make.raw_env(env)).__name__
        allowed = f"a name for the environment of `make_env`, such as {name!r}: this one chooses"
        allowed += " the reward scale, observation scale, reflection and other settings of that one"
        raise invalid("env_name", config.env_name, allowed)
    known = config.reflection
    if known and layout_of(env) != Layout(len(known.observation_order), len(known.action_order)):
        allowed = f"False: observations or actions are not those of {config.env_name}"
        raise invalid("symmetry_augmentation", True, allowed)


def warm_up(config: SACConfig, components: TrainingComponents) -> None:
    """Fills the table with `config.initial_collect_steps` env steps of uniform actions."""
    env, replay = components.collect_env, components.replay
    policy = random_policy(env.action_spec(), config.seed + NOISE_SEED)
    collector = Collector(env, policy, replay.write, n_step=config.n_step, gamma=config.gamma)
    with progress("warm-up", config.initial_collect_steps, "env steps") as bar:
        for _ in range(config.initial_collect_steps):
            collector.run(1)
            bar.advance()
    collector.end()
    replay.flush()
    components.env_steps += config.initial_collect_steps
