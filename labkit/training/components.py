"""The components of a training run: environments, agent, strategy and replay table."""

from collections.abc import Callable
from pathlib import Path

import attrs
import gym
import numpy as np
import tensorflow as tf
from tf_agents.environments.py_environment import PyEnvironment

from labkit.config import SACConfig
from labkit.environments.make import check_specs, make_environment
from labkit.parameters import invalid
from labkit.replay import ports
from labkit.replay.transitions import Layout, ReplayTable, layout_of
from labkit.runtime import seed_everything
from labkit.sac.agent import SeededSacAgent, create_agent
from labkit.sac.collector import Collector
from labkit.sac.policies import random_policy
from labkit.strategy import make_strategy
from labkit.training import checkpoint
from labkit.training.progress import progress
from labkit.training.signals import StopRequest

MakeEnv = Callable[[], gym.Env]  # a user's own Gym environment

# Offsets of the seeds of independent random streams, far enough from one another that runs with
# neighbouring seeds share none.
COLLECT_SEED, EVAL_SEED, NOISE_SEED = 0, 1_000_003, 2_000_003


def evaluation_seed(config: SACConfig, final: bool) -> int:
    """The seed of an evaluation's episodes, for `env.seed`; both executors use it.

    All interim evaluations of a run play the same episodes, so that its curve compares policies and
    not episodes. The final evaluation plays others, and others again for each budget: a finished
    run that is resumed with more iterations is not scored by episodes that it was scored by before.

    Returns:
        An integer from 0 to 2³¹ − 1, a function of the seed and, if `final`, of `num_iterations`.
    """
    if not final:
        return (config.seed + EVAL_SEED) % 2**31
    words = np.random.SeedSequence([config.seed, config.num_iterations, EVAL_SEED])
    return int(words.generate_state(1)[0]) % 2**31


@attrs.define(kw_only=True)
class TrainingComponents:
    """What a training works with. `build` makes it; notebook 03 makes each component by hand.

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

    def load(self, run_path: Path) -> None:
        """Restores networks and replay table from a run's newest checkpoint, for inspection.

        Adam's moments stay as they are. Without a checkpoint nothing changes.

        Raises:
            ParameterError: the checkpoint is damaged, or of other networks.
        """
        saved = checkpoint.latest(run_path / "checkpoints")
        if saved is None:
            return
        arrays, state = checkpoint.load(saved)
        variables = list(self.agent.variables)  # the first of `agent.state_variables`
        checkpoint.assign(variables, arrays[: len(variables)], saved)
        self.replay.restore(saved / "replay")
        self.env_steps = int(state.get("env_steps", self.env_steps))

    def close(self) -> None:
        """Closes the replay table; may be called twice."""
        self.replay.close()


def open_replay(config: SACConfig, layout: Layout, folder: Path | None = None) -> ReplayTable:
    """The empty replay table that `config.replay` names, with rows of this layout.

    A Reverb server writes its snapshots to `folder`; None makes a temporary directory.

    Raises:
        ParameterError: Reverb cannot be imported here.
    """
    if config.replay == "tf_uniform":
        from labkit.replay.uniform_replay import UniformReplay

        return UniformReplay(layout, config.replay_buffer_capacity)
    try:
        from labkit.replay.reverb_replay import ReverbReplay
    except ImportError as error:
        reason = str(error).splitlines()[0]
        allowed = f"'tf_uniform' here, where Reverb cannot be imported ({reason})"
        raise invalid("replay", config.replay, allowed) from None
    ports.warn_once()
    return ReverbReplay(layout, config.replay_buffer_capacity, folder)


def build(
    config: SACConfig, make_env: MakeEnv | None = None, folder: Path | None = None
) -> TrainingComponents:
    """Makes all components; `make_env` replaces `config.env_name`; `folder`: see `open_replay`."""
    seed_everything(config.seed)
    strategy = make_strategy(config.strategy, config.batch_size)
    source = make_env or config.env_name
    collect_env = make_environment(
        source, seed=config.seed + COLLECT_SEED, bootstrap_time_limits=config.bootstrap_time_limits
    )
    check_specs(collect_env)
    return TrainingComponents(
        strategy=strategy,
        collect_env=collect_env,
        eval_env=make_environment(source, seed=config.seed + EVAL_SEED),
        agent=create_agent(config, collect_env, strategy),
        replay=open_replay(config, layout_of(collect_env), folder),
    )


def warm_up(config: SACConfig, components: TrainingComponents) -> None:
    """Fills the table with `config.initial_collect_steps` env steps of uniform actions.

    Raises:
        KeyboardInterrupt: `labkit run` was asked to stop; there is nothing to save yet.
    """
    stop = StopRequest()
    env, replay = components.collect_env, components.replay
    policy = random_policy(env.action_spec(), config.seed + NOISE_SEED)
    collector = Collector(env, policy, replay.write, n_step=config.n_step, gamma=config.gamma)
    with progress("warm-up", config.initial_collect_steps, "env steps") as ticker:
        for _ in range(config.initial_collect_steps):
            collector.run(1)
            ticker.advance()
            if stop:
                raise KeyboardInterrupt("before training began")
    collector.end()
    replay.flush()
    components.env_steps += config.initial_collect_steps
