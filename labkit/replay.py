"""Reverb: one table of packed transitions, how it is written and how it is read.

A transition is stored as one float32 row, `[obs_tm1 | a_tm1 | r_t | discount_t | obs_t]`, in one
column of one step. The same transition as a two-step trajectory of six columns costs Reverb three
times the work to write and four times the work to sample, and holds the same numbers. A row never
spans two episodes, so that no loss has to mask what a two-step window would mix.
"""

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import reverb
import tensorflow as tf
from tf_agents.trajectories import policy_step, time_step, trajectory

from labkit.runtime import quiet

TABLE = "transitions"
SAMPLE_TIMEOUT_SECONDS = 120
UNCONFIRMED = 16  # transitions on their way before the writer waits; Reverb warns at 50


class StalledError(RuntimeError):
    """A wait on the replay table was given up after its time limit."""


class Layout(NamedTuple):
    """Where each part of a transition stands in a row.

    Args:
        observation: number of values in one observation.
        action: number of values in one action.
    """

    observation: int
    action: int

    @property
    def width(self) -> int:
        """Values in one row: 66 for the Minitaur (28 + 8 + 1 + 1 + 28)."""
        return 2 * self.observation + self.action + 2

    @property
    def sizes(self) -> list[int]:
        """Values of obs_tm1, a_tm1, r_t, discount_t and obs_t, in this order."""
        return [self.observation, self.action, 1, 1, self.observation]


def packed_table(layout: Layout, capacity: int) -> reverb.Table:
    """A table of rows `[layout.width] float32`: uniform sampling, oldest removed first."""
    return reverb.Table(
        TABLE,
        max_size=capacity,
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature={"row": tf.TensorSpec([layout.width], tf.float32)},
    )


def start_server(
    tables: list[reverb.Table], folder: Path | None = None, snapshot: Path | None = None
) -> reverb.Server:
    """Starts a Reverb server on a free port; its own log lines are not printed.

    Args:
        tables: what it holds; a snapshot's sizes and rate limiters override theirs.
        folder: where it writes snapshots, emptied first: Reverb would load what lies there. None
            is a temporary directory.
        snapshot: what it starts with, as `checkpoint.save` keeps it; None starts empty.
    """
    folder = Path(tempfile.mkdtemp(prefix="labkit-reverb-")) if folder is None else folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begin = None if snapshot is None else str(snapshot)
    with quiet():
        checkpointer = reverb.checkpointers.DefaultCheckpointer(
            str(folder), fallback_checkpoint_path=begin
        )
        return reverb.Server(tables, checkpointer=checkpointer)


class TransitionWriter:
    """Writes transitions into the packed table, and is an observer for TF-Agents drivers."""

    def __init__(self, server: reverb.Server):
        self._writer = reverb.Client(f"localhost:{server.port}").trajectory_writer(1)
        self._previous: trajectory.Trajectory | None = None
        self._written = 0

    def write(self, obs_tm1, a_tm1, r_t, discount_t, obs_t) -> None:
        """Stores one transition; it can be sampled at once, with the same chance as any other."""
        row = np.concatenate([obs_tm1, a_tm1, [r_t, discount_t], obs_t], dtype=np.float32)
        self._writer.append({"row": row})
        self._writer.create_item(TABLE, 1.0, {"row": self._writer.history["row"][-1]})
        self._written += 1
        if self._written % UNCONFIRMED == 0:
            # Inserts are confirmed behind our back; on a busy host that would pile up.
            self._writer.flush(UNCONFIRMED, timeout_ms=SAMPLE_TIMEOUT_SECONDS * 1000)

    def __call__(self, step: trajectory.Trajectory) -> None:
        """Takes a driver's unbatched trajectories one by one and pairs neighbours.

        A driver tells of step t without the observation that followed; that one arrives with the
        next call, the boundary between two episodes included, from which no transition starts.
        Nor does one start from a step that a new episode follows unannounced, because another
        driver took the environment over.
        """
        last, self._previous = self._previous, step
        if last is not None and not last.is_boundary() and not step.is_first():
            self.write(last.observation, last.action, last.reward, last.discount, step.observation)

    def flush(self) -> None:
        """Waits until everything written can be sampled."""
        self._writer.flush(timeout_ms=SAMPLE_TIMEOUT_SECONDS * 1000)

    def close(self) -> None:
        """Flushes and gives the connection back; Reverb's own `close` drops what is on its way."""
        self.flush()
        self._writer.close()


def transition_dataset(server: reverb.Server, batch_size: int) -> tf.data.Dataset:
    """Batches of rows `[batch_size, width] float32`, drawn uniformly and without end.

    Batching comes before dropping Reverb's sample info: a `map` over single items would cost
    five times as much. Two batches are fetched ahead, so that sampling overlaps training.
    """
    samples = reverb.TrajectoryDataset.from_table_signature(
        f"localhost:{server.port}",
        TABLE,
        max_in_flight_samples_per_worker=2 * batch_size,
        num_workers_per_iterator=1,
        rate_limiter_timeout_ms=SAMPLE_TIMEOUT_SECONDS * 1000,
        get_signature_timeout_secs=SAMPLE_TIMEOUT_SECONDS,
    )
    batches = samples.batch(batch_size, drop_remainder=True)
    return batches.map(lambda sample: sample.data["row"]).prefetch(2)


def sample_rows(server: reverb.Server, batch_size: int, batches: int = 1) -> np.ndarray:
    """Draws `batches` batches once and returns them as rows `[batches * batch_size, width]`."""
    with quiet():  # each new sampler logs its first connection
        drawn = list(transition_dataset(server, batch_size).take(batches).as_numpy_iterator())
    return np.concatenate(drawn)


def unpack(rows: tf.Tensor, layout: Layout) -> trajectory.Transition:
    """Turns rows `[batch, width] float32` into the `Transition` that a TF-Agents agent trains on.

    Every row is an ordinary step (`step_type` MID); whether the episode ended with it is told by
    its discount alone: 0 after a fall, 1 otherwise, the end of time included.
    """
    obs_tm1, a_tm1, r_t, discount_t, obs_t = tf.split(rows, layout.sizes, axis=1)
    r_t, discount_t = r_t[:, 0], discount_t[:, 0]
    mid = tf.fill(tf.shape(r_t), tf.constant(time_step.StepType.MID, tf.int32))
    return trajectory.Transition(
        time_step.TimeStep(mid, tf.zeros_like(r_t), tf.ones_like(r_t), obs_tm1),
        policy_step.PolicyStep(action=a_tm1, state=(), info=()),
        time_step.TimeStep(mid, r_t, discount_t, obs_t),
    )
