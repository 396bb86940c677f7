"""Transitions: what a collector writes, how a replay table stores one, what an agent trains on.

A stored transition is one row `[observation | action | reward | discount | next observation]` of
float32. A row never spans two episodes, so that no loss has to mask a boundary as it would in a
two-step window (TF-Agents' SAC masks none).
"""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # TensorFlow takes seconds to load, and a collector does without
    import tensorflow as tf
    from tf_agents.environments.py_environment import PyEnvironment

SAMPLE_TIMEOUT_SECONDS = 120


class Transition(NamedTuple):
    """One env step, or n of them (see `NStepWriter`)."""

    observation: np.ndarray  # [obs] float32, before the step
    action: np.ndarray  # [act] float32
    reward: Any  # a number or an array [] float32: the discounted sum over n steps
    discount: Any  # the same: 0 after a termination, else, also after a truncation, γ^(n-1)
    next_observation: np.ndarray  # [obs] float32, after the step, or after n steps


Write = Callable[[Transition], None]


class NStepWriter:
    """Turns single env steps into transitions over n = `n_step` of them, which it gives to `write`.

    With rewards r, the environment's discounts d and γ = `gamma`, the discount per env step, it
    writes for the step at time t

        reward = Σ_k γ^k d_1 … d_k r_{t+k},  discount = γ^(n-1) d_1 … d_n,

    with the observation n steps later as next observation. A critic that computes
    reward + γ · discount · V(next observation) learns from n rewards at once (Sutton and Barto
    2018, equation 7.1; without correction for the older policy that took the actions in between).
    At the end of an episode the last windows are shorter.
    """

    def __init__(self, write: Write, n_step: int, gamma: float):
        self._write, self._n_step, self._gamma = write, n_step, gamma
        self._open: list[Transition] = []  # windows that later steps extend, oldest first

    def write(self, step: Transition) -> None:
        """Adds one env step; writes the window that is now full."""
        self._open = [
            window._replace(
                reward=window.reward + self._gamma * window.discount * step.reward,
                discount=window.discount * (self._gamma * step.discount),
                next_observation=step.next_observation,
            )
            for window in self._open
        ]
        reward, discount = np.float32(step.reward), np.float32(step.discount)
        self._open.append(step._replace(reward=reward, discount=discount))
        if len(self._open) == self._n_step:
            self._write(self._open.pop(0))

    def end(self) -> None:
        """Writes the windows that are not full: the episode, or the collection, is over."""
        while self._open:
            self._write(self._open.pop(0))


class Layout(NamedTuple):
    """Where each part of a transition is in a row."""

    observation: int  # number of values in one observation
    action: int  # number of values in one action

    @property
    def width(self) -> int:
        """Values in one row: 66 for the Minitaur (28 + 8 + 1 + 1 + 28)."""
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """Values of each part of a `Transition`, in its order."""
        return [self.observation, self.action, 1, 1, self.observation]


class BatchSource(Protocol):
    """What a learner needs of a replay table."""

    sample_timeout: int  # seconds without a sample until the dataset ends

    def dataset(self, batch_size: int) -> "tf.data.Dataset":
        """Batches of rows `[batch_size, width] float32` and their `info`, without end.

        Rows are drawn uniformly, or half of them from the newest ones: see `recent_share`. `info`
        has each item's `key`, an integer, and the `probability` of its draw, each `[batch_size]`.
        """

    def save(self, target: Path) -> None:
        """Writes a snapshot of the table to the new directory `target`."""


class ReplayTable(BatchSource, Protocol):
    """A table of transitions in this process: `ReverbReplay` or `UniformReplay`."""

    def write(self, transition: Transition) -> None:
        """Stores one transition; after the next `flush` at the latest it can be sampled."""

    def flush(self) -> None:
        """Waits until everything written can be sampled."""

    def check(self, waited: float) -> None:
        """Raises a `StalledError` if waiting longer than `waited` seconds is pointless."""

    def size(self) -> int:
        """Number of rows in the table."""

    def sample(self, batch_size: int) -> np.ndarray:
        """Draws rows `[batch_size, width] float32` once."""

    def restore(self, snapshot: Path) -> None:
        """Replaces the contents by a snapshot that `save` wrote."""

    def close(self) -> None:
        """Frees the table; may be called twice."""


def recent_share(batch_size: int, recent: int) -> int:
    """How many rows of a batch are drawn from the newest `recent` transitions: half of them.

    A reward summed over several steps is that of the policy that collected it, so old transitions
    say too little about a policy that has improved since; but without them the critics may forget
    what they teach, such as how a robot falls. Wang and Ross (2019, arXiv 1906.04009) draw from
    ever newer transitions; a fixed half needs one parameter fewer. 0: all are drawn alike.
    """
    return batch_size // 2 if recent else 0


def layout_of(env: "PyEnvironment") -> Layout:
    """The row layout for an environment's observations and actions."""
    return Layout(env.observation_spec().shape[0], env.action_spec().shape[0])


def pack(transition: Transition) -> np.ndarray:
    """One transition as a row `[width] float32`."""
    observation, action, reward, discount, next_observation = transition
    row: list[Any] = [observation, action, [reward, discount], next_observation]
    return np.concatenate(row, dtype=np.float32)


def split(rows: "tf.Tensor", layout: Layout) -> Transition:
    """The parts of rows `[batch, width] float32`, as tensors `[batch, …]`."""
    import tensorflow as tf

    observation, action, reward, discount, next_observation = tf.split(rows, layout.sizes, axis=1)
    return Transition(observation, action, reward[:, 0], discount[:, 0], next_observation)


def joined(*datasets: "tf.data.Dataset") -> "tf.data.Dataset":
    """Batches of several datasets, whose rows and info are concatenated."""
    import tensorflow as tf

    def join(*batches: Any) -> Any:
        return tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=0), *batches)

    return tf.data.Dataset.zip(datasets).map(tf.autograph.experimental.do_not_convert(join))


def untuned(dataset: "tf.data.Dataset") -> "tf.data.Dataset":
    """The dataset without tf.data's autotuning, so that its iterators are freed at once.

    The destructor of an iterator waits for the tuning thread, which sleeps up to a minute.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def write_npz(file: Path, arrays: Mapping[str, npt.ArrayLike]) -> None:
    """Writes arrays by name for `np.load`; raises an OSError if the disk is full or gone.

    `np.savez` leaves its archive open when a write fails: Python prints a traceback later.
    """
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)
