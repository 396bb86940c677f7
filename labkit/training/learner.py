"""The learner: gradient steps, and what is due after them. Both executors use it."""

import contextlib
import math
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.policies import greedy_policy, policy_saver

from labkit.config import SACConfig
from labkit.errors import DivergedError, StalledError, storage
from labkit.parameters import MANY
from labkit.replay.transitions import BatchSource, Layout
from labkit.runtime import quiet
from labkit.sac.agent import SeededSacAgent, state_variables
from labkit.sac.rollout import Evaluation
from labkit.sac.update import flat_weights, make_steps, make_update
from labkit.training import checkpoint, records
from labkit.training.run import Run


class Learner:
    """Takes gradient steps on batches of the replay table; counts, logs and saves them.

    `layout` is that of the table's rows.
    """

    def __init__(
        self,
        config: SACConfig,
        run: Run,
        agent: SeededSacAgent,
        strategy: tf.distribute.Strategy,
        layout: Layout,
        replay: BatchSource,
    ):
        self.config, self.agent, self.replay = config, agent, replay
        self.run, self.folder = run, run.path / "checkpoints"
        self._events_folder = run.path / "events"
        self._update = make_update(agent, layout, strategy, config.reflection)
        # Compiled now, and not in the thread that takes the first steps.
        batch = tf.TensorSpec([config.rows_drawn, layout.width], tf.float32)
        self._update.get_concrete_function(batch)
        self.step = 0
        self.evaluated: set[tuple[int, bool]] = set()  # (gradient step, final evaluation or not)
        self.last_return = "not yet"
        self._totals: dict[str, np.ndarray] = {}  # of each metric since the last row: sum, count
        self.saved_step, self._policy_step = -1, -1
        self._spent, self._started_at = 0.0, math.inf

    def seconds(self) -> float:
        """Wall seconds of this run until now: those before a resume, and those since `start`."""
        return self._spent + max(0.0, time.monotonic() - self._started_at)

    def restore(self, saved: Path) -> dict[str, Any]:
        """Restores agent, counters and metrics from a checkpoint; returns the rest of its state."""
        state = checkpoint.read_state(saved)
        checkpoint.assign(state_variables(self.agent), saved)
        self.saved_step = self.step = state["step"]
        self._spent = state["seconds"]
        self._totals = {name: np.array(total) for name, total in state["totals"].items()}
        records.cut(self.run.path, self.step)
        table = self.run.metrics()
        self._spent = max(self._spent, *table.wall_seconds)  # of an evaluation after it was saved
        for row in table[table.eval_return.notna()].itertuples():
            final = len(row.eval_returns) >= self.config.num_eval_episodes
            self._note_evaluation(int(row.gradient_step), final, row.eval_return)
        return state

    def start(self) -> None:
        """Opens the run's files and the stream of batches; a checkpoint is restored before.

        Raises StalledError if the table returns no batch, StorageError if nothing can be written.
        """
        if checkpoint.latest(self.folder) is None:
            records.cut(self.run.path, -1)
        self.run.write_config()
        self._saver = policy_saver.PolicySaver(greedy_policy.GreedyPolicy(self.agent.policy))
        # Events are rewritten from the metrics, so that a resumed run duplicates none.
        with storage(self._events_folder):
            shutil.rmtree(self._events_folder, ignore_errors=True)
            # Absolute: TensorFlow opens the file later, perhaps in another working directory.
            self._events = tf.summary.create_file_writer(str(self._events_folder.absolute()))
        for row in self.run.metrics().to_dict("records"):
            self._write_events(row)
        self._started_at, self._saved_seconds = time.monotonic(), self._spent
        with quiet(), self._stall_named():  # Reverb's sampler logs its first connection
            batches = iter(self.replay.dataset(self.config.rows_drawn))
            next(batches)
        self._steps, self.started = make_steps(self.agent, self._update, batches)

    def count_until_due(self, most: int = MANY) -> int:
        """Gradient steps to take until something is due: at most one call's, and at most `most`."""
        config = self.config
        intervals = [config.log_interval, config.policy_save_interval]
        intervals += [config.eval_interval, config.checkpoint_interval]
        due = [interval - self.step % interval for interval in intervals if interval]
        return min(config.steps_per_call, most, config.num_iterations - self.step, *due)

    def gradient_steps(self, count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Takes `count` gradient steps.

        Returns for each metric its sum over the steps and how many had it; and the actor's weights
        `[parameters] float32`. Raises DivergedError if a loss, or a number in a batch, is infinite
        or not a number; StalledError if the table returned no batch within its time limit.
        """
        try:
            with self._stall_named():
                totals, weights = self._steps(count)
        except tf.errors.InvalidArgumentError as error:
            found = re.search(r"(\w+ loss|batch) : Tensor had", str(error))
            if not found:
                raise
            what = "a row of the replay table" if found[1] == "batch" else found[1]
            what += f" is infinite or not a number at gradient step {self.step + int(self.started)}"
            raise DivergedError(what) from None
        return {name: total.numpy() for name, total in totals.items()}, weights.numpy()

    def record_steps(
        self, count: int, totals: dict[str, np.ndarray], env_step: int, collect_return: float
    ) -> None:
        """Counts gradient steps, and logs them and saves the policy where that is due.

        `totals` are as `gradient_steps` returned them, `env_step` includes the warm-up, and
        `collect_return` is the mean return of the latest collected episodes.
        """
        self.step += count
        for name, total in totals.items():
            self._totals[name] = self._totals.get(name, 0.0) + total
        last = self.step == self.config.num_iterations
        if self._due(self.config.log_interval) or last:
            # NaN where no step had the metric since the last row.
            means = {name: float(s / c) if c else np.nan for name, (s, c) in self._totals.items()}
            counts = {"env_step": env_step, "gradient_step": self.step}
            row = {**counts, "wall_seconds": round(self.seconds(), 3), **means}
            row["collect_return"] = collect_return
            self.run.log(**row)
            self._write_events(row)
            self._totals = {}
        # The last policy is saved before its score: a run that has its score has its policy.
        if self._due(self.config.policy_save_interval) or last:
            self._save_policy()

    def _write_events(self, row: dict[str, Any]) -> None:
        with storage(self._events_folder), self._events.as_default():
            for name in set(row) - {*records.FIRST, *records.PER_EPISODE}:
                if not math.isnan(row[name]):
                    tf.summary.scalar(name, row[name], step=int(row["gradient_step"]))
            self._events.flush()

    def _save_policy(self) -> None:
        """Replaces `policy/` by the present deterministic policy, unless it is this one."""
        if self._policy_step == self.step:
            return
        final, partial = self.run.path / "policy", self.run.path / "policy.partial"
        with storage(final), quiet():
            shutil.rmtree(partial, ignore_errors=True)
            self._saver.save(str(partial))
            shutil.rmtree(final, ignore_errors=True)
            partial.rename(final)
        self._policy_step = self.step

    def flat_weights(self) -> np.ndarray:
        """The actor's parameters now, one flat float32 vector."""
        return flat_weights(self.agent).numpy()

    def _due(self, interval: int) -> bool:
        """Whether this step is a multiple of an interval; 0 means never."""
        return interval > 0 and self.step % interval == 0

    @contextlib.contextmanager
    def _stall_named(self) -> Iterator[None]:
        try:
            yield
        except (StopIteration, tf.errors.OutOfRangeError, tf.errors.DeadlineExceededError):
            what = f"the replay table returned no batch of {self.config.rows_drawn} transitions"
            limit = f"within {self.replay.sample_timeout} s: is its server still running?"
            raise StalledError(f"{what} {limit}") from None

    def evaluation_pending(self) -> bool:
        """Whether this step's interim evaluation is due and missing, that of step 0 included."""
        due = self._due(self.config.eval_interval) and self.step < self.config.num_iterations
        return due and self.step not in {step for step, _ in self.evaluated}

    def final_evaluation_pending(self) -> bool:
        """Whether all gradient steps are taken, but not yet the final evaluation."""
        return self.step == self.config.num_iterations and (self.step, True) not in self.evaluated

    def log_evaluation(
        self, step: int, env_step: int, result: Evaluation, final: bool, seconds: float
    ) -> None:
        """Writes an evaluation of the weights after `step` gradient steps.

        `seconds` are those of `seconds()` at that step, or after an evaluation that it waited for.
        """
        counts = {"env_step": env_step, "gradient_step": step}
        self.run.log_evaluation(result, **counts, wall_seconds=seconds)
        self._write_events({"gradient_step": step, "eval_return": result.mean_return})
        self._note_evaluation(step, final, result.mean_return)

    def _note_evaluation(self, step: int, final: bool, mean_return: float) -> None:
        self.evaluated.add((step, final))
        self.last_return = f"{mean_return:+.2f}"

    def checkpoint_due(self) -> bool:
        """Whether a checkpoint is due, by steps or by seconds."""
        waited = self.seconds() - self._saved_seconds
        by_time = 0 < self.config.checkpoint_seconds <= waited
        return self._due(self.config.checkpoint_interval) or by_time

    def save(self, state: dict[str, Any]) -> None:
        """Writes a checkpoint: agent, replay table, counters, and the executor's own `state`.

        Errors are those of `checkpoint.save`, and DivergedError: a weight is infinite or not a
        number, so nothing could resume from it.
        """
        arrays = [variable.numpy() for variable in state_variables(self.agent)]
        if not all(np.isfinite(array).all() for array in arrays):
            what = "the agent has weights that are infinite or not a number"
            raise DivergedError(f"{what} after gradient step {self.step}")
        file = self.run.path / records.METRICS
        with storage(file), contextlib.suppress(FileNotFoundError):  # somebody removed it
            checkpoint.flush_to_disk(file)
        totals = {name: total.tolist() for name, total in self._totals.items()}
        state = {"seconds": self.seconds(), "totals": totals, **state}
        checkpoint.save(self.folder, self.step, arrays, state, self.replay)
        self.saved_step, self._saved_seconds = self.step, self.seconds()

    def close(self) -> None:
        """Saves the policy, unless that of this step is saved, and closes the files."""
        self._save_policy()
        self.close_events()

    def close_events(self) -> None:
        """Writes the remaining events to disk. Raises StorageError: they cannot be written."""
        with storage(self._events_folder):
            self._events.close()
