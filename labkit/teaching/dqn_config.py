"""Hyperparameters of notebook 02's DQN, checked as `SACConfig` is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pandas as pd

from labkit.parameters import MANY, check_capacity, from_notebook, integer, real, text

# Of the table that `benchmarks/cartpole_dqn.py` writes: what a reader sees, and its column.
COLUMNS = [
    ("kept", "mean_return"),
    ("±", "deviation"),
    ("last round", "last_return"),
    ("± ", "last_deviation"),
    ("training, s", "training_seconds"),
    ("of CPU, s", "cpu_seconds"),
]


@attrs.frozen(kw_only=True)
class DQNConfig:
    """Deep Q-learning on CartPole. Names follow the TF-Agents tutorials where those have one.

    Whole floats (papermill passes `1e3` as `1000.0`) and numbers given as text are taken for
    what they mean.

    Raises:
        ParameterError: for the first field that is not allowed, in the order below.
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
    td_loss: str = text("squared", "squared|huber", "'squared' or 'huber'", "loss of the TD error")
    # Exploration
    epsilon_end: float = real(0.1, 0, 1, "share of random actions, at last")
    epsilon_decay_steps: int = integer(20_000, 1, MANY, "gradient steps")
    # Evaluation and measuring; an interval of 0 means never
    eval_interval: int = integer(100, 0, MANY, "iterations")
    interim_eval_episodes: int = integer(10, 1, 10_000, "episodes")
    num_eval_episodes: int = integer(20, 1, 10_000, "episodes")
    benchmark_seconds: float = real(2.0, 0, 600, "seconds for each measurement", above=True)

    def __attrs_post_init__(self) -> None:
        check_capacity(self.replay_buffer_capacity, self.batch_size, "steps")

    @classmethod
    def from_notebook(cls, namespace: Mapping[str, Any]) -> "DQNConfig":
        """Checks a notebook's parameters: `DQNConfig.from_notebook(globals())`.

        Args:
            namespace: name → value; the fields are taken from it, all else is left alone.

        Raises:
            ParameterError: one line that names the parameter, its value and what is allowed.
        """
        return cls(**from_notebook(namespace, [field.name for field in attrs.fields(cls)]))


def read_seed_runs(path: Path) -> pd.DataFrame:
    """The table that `benchmarks/cartpole_dqn.py` wrote, in a reader's words and units.

    `kept` and `last round` are mean returns of the final greedy episodes with the best weights seen
    and with the last ones, each with its standard deviation behind it.
    """
    table = pd.read_csv(path, dtype={"changed": str, "value": str}, keep_default_na=False)
    back = (table.changed + " " + table.value).str.strip().rename("taken back")
    numbers = table[[name for _, name in COLUMNS]].astype(float)
    words = numbers.set_axis([label for label, _ in COLUMNS], axis=1)
    return pd.concat(
        [back.where(back != "", "nothing").rename("taken back"), table.seed, words], axis=1
    )
