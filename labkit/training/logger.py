"""The run logger: metrics, TensorBoard events and the saved policy of a training."""

import math
import shutil
import time
from typing import Any

import tensorflow as tf
from tf_agents.policies import greedy_policy, policy_saver

from labkit.errors import storage
from labkit.runtime import quiet
from labkit.sac.agent import SeededSacAgent
from labkit.sac.rollout import Evaluation
from labkit.training.records import FIRST, PER_EPISODE
from labkit.training.run import Run


class RunLogger:
    """Writes one run's rows, the same numbers as TensorBoard events, and its policy.

    The deterministic policy of `agent` is saved; `spent` seconds were taken before a resume.

    Each method raises StorageError if something cannot be written.
    """

    def __init__(self, run: Run, agent: SeededSacAgent, spent: float = 0.0):
        self._run = run
        self._started = time.monotonic() - spent
        self._saver = policy_saver.PolicySaver(greedy_policy.GreedyPolicy(agent.policy))
        # Events are rewritten from the metrics, so that a resumed run duplicates none.
        with storage(run.path / "events"):
            shutil.rmtree(run.path / "events", ignore_errors=True)
            # Absolute: TensorFlow opens the file later, perhaps in another working directory.
            self._events = tf.summary.create_file_writer(str(run.path.absolute() / "events"))
        for row in run.metrics().to_dict("records"):
            self._write_events(row)

    def seconds(self) -> float:
        """Wall seconds of this run so far, including those before a resume."""
        return time.monotonic() - self._started

    def log(self, step: int, env_step: int, values: dict[str, float]) -> None:
        """Writes a row: means of the metrics since the last row, and the recent return."""
        seconds = round(self.seconds(), 3)
        self._run.log(env_step=env_step, gradient_step=step, wall_seconds=seconds, **values)
        self._write_events({"gradient_step": step, **values})

    def log_evaluation(
        self, step: int, env_step: int, evaluation: Evaluation, seconds: float
    ) -> None:
        """Writes an evaluation's row; step, env step and seconds are those of its weights.

        In one process, training waits for the evaluation, and `seconds` include it.
        """
        self._run.log_evaluation(
            evaluation, env_step=env_step, gradient_step=step, wall_seconds=seconds
        )
        self._write_events({"gradient_step": step, "eval_return": evaluation.mean_return})

    def _write_events(self, row: dict[str, Any]) -> None:
        with storage(self._run.path / "events"), self._events.as_default():
            for name in set(row) - {*FIRST, *PER_EPISODE}:
                if not math.isnan(row[name]):
                    tf.summary.scalar(name, row[name], step=int(row["gradient_step"]))
            self._events.flush()

    def save_policy(self) -> None:
        """Replaces `policy/` by the newest deterministic policy.

        Raises:
            StorageError: it cannot be written.
        """
        final = self._run.path / "policy"
        partial = final.with_name("policy.partial")
        with storage(final), quiet():
            shutil.rmtree(partial, ignore_errors=True)
            self._saver.save(str(partial))
            shutil.rmtree(final, ignore_errors=True)
            partial.rename(final)

    def close(self) -> None:
        """Writes the remaining events to disk. Raises StorageError: they cannot be written."""
        with storage(self._run.path / "events"):
            self._events.close()
