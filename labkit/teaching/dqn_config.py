"""Hyperparameters of the DQN in notebook 02, checked like those of `SACConfig`."""

from collections.abc import Mapping
from typing import Any

import attrs

from labkit.parameters import MANY, from_notebook, integer, invalid, real, text


@attrs.frozen(kw_only=True)
class DQNConfig:
    """Deep Q-learning on CartPole. Names follow the TF-Agents tutorials where those have one.

    An integer field also accepts a whole float (papermill passes `1e3` as `1000.0`), and every
    number may be given as text.

    Raises:
        ParameterError: names the first field, in the order below, whose value is not allowed.
    """

    # Run
    num_iterations: int = integer(2_000, 1, MANY, "rounds of collecting, then training")
    seed: int = integer(0, 0, 2**31 - 1, "seed of every generator that labkit owns")
    # Collection and replay
    initial_collect_steps: int = integer(1_000, 2, MANY, "env steps of random actions")
    collect_steps_per_iteration: int = integer(10, 1, 10_000, "env steps")
    replay_buffer_capacity: int = integer(50_000, 2, 100_000_000, "steps")
    batch_size: int = integer(128, 1, 1_000_000, "two-step windows")
    # Loss and optimizer
    train_steps_per_iteration: int = integer(10, 1, 10_000, "gradient steps")
    learning_rate: float = real(1e-3, 0, 1, "Adam step size", above=True)
    gamma: float = real(0.99, 0, 1, "discount per env step")
    target_update_tau: float = real(0.01, 0, 1, "share of the new weights", above=True)
    target_update_period: int = integer(1, 1, 1_000_000, "gradient steps")
    td_loss: str = text("squared", "squared|huber", "'squared' or 'huber'")
    # Exploration
    epsilon_end: float = real(0.1, 0, 1, "final share of random actions")
    epsilon_decay_steps: int = integer(20_000, 1, MANY, "gradient steps")
    # Evaluation and benchmark; an interval of 0 means never
    eval_interval: int = integer(100, 0, MANY, "iterations")
    interim_eval_episodes: int = integer(10, 1, 10_000, "episodes")
    num_eval_episodes: int = integer(20, 1, 10_000, "episodes")
    replay_steps: int = integer(4_000, 1_000, 1_000_000, "env steps of the short run with a ring")
    benchmark_seconds: float = real(2.0, 0, 600, "seconds of each measurement", above=True)

    def __attrs_post_init__(self) -> None:
        if self.replay_buffer_capacity < self.batch_size:
            allowed = f"at least `batch_size` = {self.batch_size} (steps)"
            raise invalid("replay_buffer_capacity", self.replay_buffer_capacity, allowed)

    @classmethod
    def from_notebook(cls, namespace: Mapping[str, Any]) -> "DQNConfig":
        """Reads and checks a notebook's parameters: `DQNConfig.from_notebook(globals())`.

        Names that are no field are ignored.

        Raises:
            ParameterError: a value is not allowed, or a parameters cell assigns a name that is
                not a field.
        """
        return cls(**from_notebook(namespace, [field.name for field in attrs.fields(cls)]))
