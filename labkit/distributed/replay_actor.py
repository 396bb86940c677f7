"""The replay table of a distributed run: the actor that hosts it, and the learner's client."""

import shutil
import time
from pathlib import Path
from typing import Any

import ray
import reverb
import tensorflow as tf

from labkit.config import SACConfig
from labkit.distributed.cluster import fetch, process_status
from labkit.distributed.workers import DISK_SECONDS, RunContext
from labkit.errors import START_SECONDS, StalledError, storage
from labkit.replay.reverb_replay import ReverbReplay, open_dataset, table_state
from labkit.replay.server import LimiterState, check_port, connect
from labkit.replay.transitions import Layout, recent_share


def limits(config: SACConfig) -> tuple[float, int, float]:
    """The rate limiter's samples per insert, minimum size to sample, and error buffer.

    The buffer is how many samples either side may be ahead: more than a call of gradient steps with
    its prefetched batches, so that neither side blocks the other for good.
    """
    samples = samples_per_batch(config)
    per_insert = samples / config.collect_steps_per_iteration
    first = min(config.initial_collect_steps, config.replay_buffer_capacity)
    return per_insert, first, samples * max(100, 4 * config.steps_per_call)


def samples_per_batch(config: SACConfig) -> int:
    """Samples of a batch that the rate limiter counts: those of the table of all transitions."""
    return config.rows_drawn - recent_share(config.rows_drawn, config.recent_transitions)


class ReplayActor:
    """Hosts the Reverb server at the run's address, also after a restart."""

    def __init__(self, context: RunContext, layout: Layout):
        self._context, self._layout = context, layout
        self._table: ReverbReplay | None = None

    def open(self, checkpoint: str) -> None:
        """Starts the server with the table of a checkpoint, by its name; "" for an empty one.

        A server that runs keeps its newer table, for a learner that was restarted alone.
        """
        if self._table is not None:
            return
        config, folder = self._context.config, self._context.checkpoints
        # The port was free when the driver chose it.
        port = check_port(int(self._context.server_address.rpartition(":")[2]))
        per_insert, first, buffer = limits(config)
        begin = per_insert * config.initial_collect_steps
        bounds = begin - buffer, begin + buffer  # no samples until the warm-up is inserted
        limiter = reverb.rate_limiters.RateLimiter(per_insert, first, *bounds)
        capacity, recent = config.replay_buffer_capacity, config.recent_transitions
        snapshot = folder / checkpoint / "replay" if checkpoint else None
        self._table = ReverbReplay(
            self._layout, capacity, folder / "reverb", limiter, port, snapshot, recent
        )

    def save(self, target: str) -> None:
        """Writes a snapshot to the directory `target`, which a killed learner may have begun."""
        if self._table is None:  # this actor was restarted, and Ray repeats the call
            time.sleep(START_SECONDS)  # the driver is about to end the learner, which waits
            raise StalledError("the replay actor was restarted during a checkpoint")
        with storage(Path(target)):
            shutil.rmtree(target, ignore_errors=True)
            self._table.save(Path(target))

    @ray.method(concurrency_group="status")
    def status(self) -> dict[str, Any]:
        """As `process_status`, with the table's counter of inserts; None before it is open."""
        inserts = None if self._table is None else self._table.state().inserts
        return {**process_status(), "inserts": inserts}


class ReplayClient:
    """The learner's access to a table whose server is another process; a `BatchSource`.

    `replay` is the handle of the `ReplayActor`.
    """

    def __init__(self, context: RunContext, replay: Any, sample_timeout: int):
        self._replay, self.sample_timeout = replay, sample_timeout
        self._recent = context.config.recent_transitions
        self._client = connect(context.server_address)

    def dataset(self, batch_size: int) -> tf.data.Dataset:
        """See `reverb_replay.open_dataset`."""
        address = self._client.server_address
        return open_dataset(address, batch_size, self.sample_timeout, self._recent)

    def save(self, target: Path) -> None:
        """Has the server write a snapshot; see `ReplayActor.save`."""
        fetch("replay", self._replay.save.remote(str(target)))

    def state(self) -> LimiterState:
        """See `table_state`."""
        return table_state(self._client, DISK_SECONDS)
