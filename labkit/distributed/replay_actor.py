"""The replay table of a distributed run: the actor that hosts it, and the learner's client."""

import shutil
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import ray
import reverb
import tensorflow as tf
from ray.exceptions import GetTimeoutError, RayTaskError

from labkit.config import SACConfig
from labkit.distributed.context import RunContext, process_status
from labkit.errors import START_SECONDS, ParameterError, StalledError, storage
from labkit.replay.reverb_replay import ReverbReplay, connect, open_dataset, table_state
from labkit.replay.server import LimiterState, check_port
from labkit.replay.transitions import Layout, recent_share
from labkit.training import checkpoint

DISK_SECONDS = 600  # to write or load a snapshot of the table, on a slow disk


def limiter_of(config: SACConfig) -> reverb.rate_limiters.RateLimiter:
    """Allows samples once the warm-up is inserted, then holds the ratio of samples to inserts."""
    per_insert, first, buffer = limits(config)
    begin = per_insert * config.initial_collect_steps
    return reverb.rate_limiters.RateLimiter(per_insert, first, begin - buffer, begin + buffer)


def limits(config: SACConfig) -> tuple[float, int, float]:
    """The rate limiter's samples per insert, minimum size to sample, and error buffer.

    The error buffer, in samples, is how far either side may be ahead. It is larger than a call of
    gradient steps with its prefetched batches, so that neither side blocks the other for good; the
    faster one still waits.
    """
    first = min(config.initial_collect_steps, config.replay_buffer_capacity)
    samples = samples_per_batch(config)
    return (
        samples / config.collect_steps_per_iteration,
        first,
        samples * max(100, 4 * config.steps_per_call),
    )


def samples_per_batch(config: SACConfig) -> int:
    """Samples of a batch that the rate limiter counts: those of the table of all transitions."""
    return config.batch_size - recent_share(config.batch_size, config.recent_transitions)


def batches_allowed(state: LimiterState, config: SACConfig) -> float:
    """How many batches the rate limiter lets the learner draw before the next insert."""
    return (state.balance - state.min_diff) / samples_per_batch(config)


class ReplayActor:
    """Hosts the Reverb server; after a restart it begins with the snapshot of the last checkpoint.

    The server uses the port of the run's address, also after a restart. The ratio of samples to
    inserts is only enforced if `limited`; otherwise inserts are free.
    """

    def __init__(self, context: RunContext, layout: Layout, limited: bool = True):
        self._context, self._layout, self._limited = context, layout, limited
        self._table: Any = None
        self._ready = threading.Event()
        self._start_id, self._restored = uuid.uuid4().hex, 0
        self._loaded: str | None = ""  # the checkpoint of the table; None once it was saved
        self._saving = threading.Lock()

    def run(self) -> None:
        """Serves until the process ends."""
        config, folder = self._context.config, self._context.checkpoints
        port = int(self._context.server_address.rpartition(":")[2])
        try:
            check_port(port)  # it was free when the driver chose it
        except ParameterError:
            raise StalledError(f"port {port} was taken in between: start the run again") from None
        saved = checkpoint.latest(folder)
        self._loaded = "" if saved is None else saved.name
        # Started with the snapshot: peers wait for this port and would use an empty table.
        self._table = ReverbReplay(
            self._layout,
            config.replay_buffer_capacity,
            folder / "reverb",
            limiter_of(config) if self._limited else None,
            port,
            None if saved is None else saved / "replay",
            config.recent_transitions,
        )
        self._restored = self._table.state().inserts
        self._ready.set()
        threading.Event().wait()

    def attach(self, resumed: str) -> str:
        """Prepares the table for a learner that resumes a checkpoint, by its name; "" for none.

        Waits until the table is loaded. The learner may have completed a checkpoint just after this
        actor, restarted, had looked for the newest one: then the table is loaded again.

        Returns:
            An id that differs after each restart of this actor.

        Raises:
            StalledError: the table was not loaded in time.
        """
        if not self._ready.wait(DISK_SECONDS):
            folder = self._context.checkpoints
            why = f"the replay table was not loaded within {DISK_SECONDS} s"
            raise StalledError(f"{why}: does the disk of {folder} answer?")
        if self._loaded is not None and resumed != self._loaded:
            self._ready.clear()  # its server does not answer while it loads
            self._table.restore(self._context.checkpoints / resumed / "replay")
            self._loaded, self._restored = resumed, self._table.state().inserts
            self._ready.set()
        return self._start_id

    def save(self, target: str, start_id: str) -> bool:
        """Writes a snapshot to the directory `target`; False after a restart.

        Ray repeats a call after a restart of the actor, and the table is then an older one. A
        learner that was killed may have left a call that still writes: the next one replaces what
        that one has written.

        Raises:
            StorageError: it could not be written.
        """
        if start_id != self._start_id:
            return False
        with self._saving, storage(Path(target)):
            shutil.rmtree(target, ignore_errors=True)
            self._table.save(Path(target))
        self._loaded = None
        return True

    def status(self) -> dict[str, Any]:
        """As `process_status`; with the table's counters, and its inserts at the start.

        A table that loads for long has none of them yet.
        """
        if not self._ready.wait(START_SECONDS / 2):
            return process_status()
        now = self._table.state()
        table = {"inserts": now.inserts, "samples": now.samples, "size": now.size}
        return {**process_status(), **table, "restored": self._restored}


class ReplayClient:
    """The learner's access to a table whose server is another process; a `BatchSource`."""

    def __init__(self, context: RunContext, sample_timeout: int):
        self._address, self.sample_timeout = context.server_address, sample_timeout
        self._recent = context.config.recent_transitions
        self._replay = context.wait_for_actor("replay")
        self._client = connect(self._address)
        newest = checkpoint.latest(context.checkpoints)
        try:
            self._start_id = ray.get(self._replay.attach.remote(newest.name if newest else ""))
        except RayTaskError as error:
            raise error.cause from None

    def dataset(self, batch_size: int) -> tf.data.Dataset:
        """See `reverb_replay.open_dataset`."""
        return open_dataset(self._address, batch_size, self.sample_timeout, self._recent)

    def save(self, target: Path) -> None:
        """Has the server write a snapshot.

        Raises:
            StorageError: it could not be written.
            StalledError: the replay actor was restarted, so its table is older than the weights; or
                it wrote no snapshot in time.
        """
        try:
            saving = self._replay.save.remote(str(target), self._start_id)
            same = ray.get(saving, timeout=DISK_SECONDS)
        except RayTaskError as error:
            raise error.cause from None
        except GetTimeoutError:
            why = f"the replay server wrote no snapshot within {DISK_SECONDS} s"
            raise StalledError(f"{why}: does the disk of {target.parent} answer?") from None
        if not same:
            time.sleep(START_SECONDS)  # the driver is about to end this process
            raise StalledError("the replay actor was restarted during a checkpoint")

    def state(self) -> LimiterState:
        """See `table_state`."""
        return table_state(self._client, DISK_SECONDS)

    def env_steps(self, state: LimiterState | None = None) -> int:
        """Env steps in the table so far, or at a `state` of it: each writes one row."""
        return (state or self.state()).inserts
