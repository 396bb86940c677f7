"""What a training works with, made from a configuration."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import attrs
import tensorflow as tf

from labkit import runtime
from labkit.config import SACConfig
from labkit.environments.make import check_specs, make_environment
from labkit.parameters import invalid
from labkit.replay import ports
from labkit.replay.transitions import Layout, layout_of
from labkit.sac.agent import SeededSacAgent, create_agent
from labkit.sac.collector import Collector
from labkit.sac.policies import random_policy
from labkit.strategy import make_strategy
from labkit.training import checkpoint
from labkit.training.progress import progress
from labkit.training.signals import StopRequest

if TYPE_CHECKING:
    from labkit.replay.reverb_replay import ReverbReplay
    from labkit.replay.uniform_replay import UniformReplay

# Seeds of what is drawn apart; far enough from one another that runs with neighbouring
# seeds share none of them.
COLLECT_SEED, EVAL_SEED, NOISE_SEED = 0, 1_000_003, 2_000_003


@attrs.define(kw_only=True)
class TrainingComponents:
    """What a training works with. `build` makes them; notebook 03 makes them one by one."""

    strategy: tf.distribute.Strategy
    collect_env: Any
    eval_env: Any
    agent: SeededSacAgent
    replay: Union["ReverbReplay", "UniformReplay"]
    env_steps: int = 0

    @property
    def layout(self) -> Layout:
        """The row layout of this environment's transitions."""
        return layout_of(self.collect_env)

    def load(self, run_path: Path) -> None:
        """Takes networks and replay table from a run's newest checkpoint, to look at or to judge.

        Adam's moments stay as they are. A run that has no checkpoint yet changes nothing.

        Args:
            run_path: the run directory.

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
        """Stops what runs beside the training; may be called twice."""
        self.replay.close()


def open_replay(
    config: SACConfig, layout: Layout, folder: Path | None = None
) -> Union["ReverbReplay", "UniformReplay"]:
    """The empty replay table that `config.replay` names.

    Args:
        config: the configuration.
        layout: what a row holds.
        folder: where a Reverb server writes its snapshots; None is a temporary directory.

    Raises:
        ParameterError: Reverb cannot be imported here.
    """
    if config.replay == "tf_uniform":
        from labkit.replay.uniform_replay import UniformReplay

        return UniformReplay(layout, config.replay_buffer_capacity, folder)
    try:
        from labkit.replay.reverb_replay import ReverbReplay
    except ImportError as error:
        reason = str(error).splitlines()[0]
        raise invalid(
            "replay", config.replay, f"'tf_uniform', for Reverb cannot be imported here ({reason})"
        ) from None
    ports.warn_once()
    return ReverbReplay(layout, config.replay_buffer_capacity, folder)


def build(
    config: SACConfig, make_env: Callable | None = None, folder: Path | None = None
) -> TrainingComponents:
    """Makes every part of a run from its configuration.

    Args:
        config: the configuration.
        make_env: returns one's own Gym environment, in place of `config.env_name`.
        folder: where a Reverb server writes its snapshots; None is a temporary directory.
    """
    runtime.seed_everything(config.seed)
    strategy = make_strategy(config.strategy, config.batch_size)
    source = make_env or config.env_name
    collect_env = make_environment(
        source,
        seed=config.seed + COLLECT_SEED,
        bootstrap_time_limits=config.bootstrap_time_limits,
    )
    check_specs(collect_env)
    return TrainingComponents(
        strategy=strategy,
        collect_env=collect_env,
        eval_env=make_environment(source, seed=config.seed + EVAL_SEED),
        agent=create_agent(config, collect_env, strategy),
        replay=open_replay(config, layout_of(collect_env), folder),
    )


def warm_up(config: SACConfig, parts: TrainingComponents) -> None:
    """Fills the table with `config.initial_collect_steps` env steps of uniform actions.

    Raises:
        KeyboardInterrupt: `make run` was asked to stop; there is nothing yet that a run could keep.
    """
    stop = StopRequest()
    policy = random_policy(parts.collect_env.action_spec(), config.seed + NOISE_SEED)
    collector = Collector(
        parts.collect_env, policy, parts.replay.write, n_step=config.n_step, gamma=config.gamma
    )
    with progress("random collection", config.initial_collect_steps, "env steps") as ticker:
        for _ in range(config.initial_collect_steps):
            collector.run(1)
            ticker.advance()
            if stop:
                raise KeyboardInterrupt("before training began")
    collector.end()
    parts.replay.flush()
    parts.env_steps += config.initial_collect_steps
