"""The run logger: metrics, TensorBoard events and the saved policy of a training."""

import contextlib
import math
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from tf_agents.policies import greedy_policy, policy_saver

from labkit.errors import storage
from labkit.runtime import quiet
from labkit.sac.agent import SeededSacAgent
from labkit.sac.rollout import Evaluation
from labkit.training.metrics import TRAINING
from labkit.training.run_directory import Run

SCALARS = (*TRAINING, "eval_return")


class RunLogger:
    """Writes one run's rows, the same numbers as TensorBoard events, and its policy.

    The deterministic policy of `agent` is saved; `spent` seconds were taken before a resume.

    Raises:
        StorageError: the events cannot be written.
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
        for row in run.metrics().itertuples():
            self._write_events(row.gradient_step, {name: getattr(row, name) for name in SCALARS})

    def seconds(self) -> float:
        """Wall seconds of this run so far, including those before a resume."""
        return time.monotonic() - self._started

    def log(self, step: int, env_step: int, values: dict[str, float]) -> None:
        """Writes a row: means of the metrics since the last row, and the recent return.

        Raises:
            StorageError: see `Run.log`; or the events cannot be written.
        """
        seconds = round(self.seconds(), 3)
        self._run.log(env_step=env_step, gradient_step=step, wall_seconds=seconds, **values)
        self._write_events(step, values)

    def log_evaluation(
        self, step: int, env_step: int, evaluation: Evaluation, seconds: float
    ) -> None:
        """Writes an evaluation's row; `step` and `env_step` are those of its weights.

        `seconds` are its wall seconds: on Ray those of its weights, too, so that they may be lower
        than in the row before. In one process, training waits for the evaluation, and they include
        it.

        Raises:
            StorageError: see `Run.log`; or the events cannot be written.
        """
        self._run.log_evaluation(
            evaluation, env_step=env_step, gradient_step=step, wall_seconds=seconds
        )
        self._write_events(step, {"eval_return": evaluation.mean_return})

    def _write_events(self, step: int, values: dict[str, float]) -> None:
        with storage(self._run.path / "events"), self._default_writer():
            for name, value in values.items():
                if not math.isnan(value):
                    tf.summary.scalar(name, value, step=int(step))

    @contextlib.contextmanager
    def _default_writer(self) -> Iterator[None]:
        """TensorFlow's `as_default`, which stays set if the events cannot be written."""
        default = self._events.as_default()
        default.__enter__()
        try:
            yield
            self._events.flush()
        except BaseException:
            with contextlib.suppress(Exception):
                self._events.close()  # `as_default` no longer flushes it then, and is undone
            raise
        finally:
            default.__exit__(None, None, None)

    def save_policy(self) -> None:
        """Replaces `policy/` by the newest deterministic policy.

        Raises:
            StorageError: it cannot be written; see also `Run.check_lock`.
        """
        self._run.check_lock()
        final = self._run.path / "policy"
        partial, before = (final.with_name(f"policy.{state}") for state in ("partial", "before"))
        with storage(final), quiet():
            shutil.rmtree(partial, ignore_errors=True)
            self._saver.save(str(partial))
            _remove_autograph_files()
            if final.exists():
                shutil.rmtree(before, ignore_errors=True)  # of a process that was killed here
                final.rename(before)
            partial.rename(final)
            shutil.rmtree(before, ignore_errors=True)

    def close(self) -> None:
        """Writes the remaining events to disk.

        Raises:
            StorageError: they cannot be written.
        """
        with storage(self._run.path / "events"):
            self._events.close()


def _remove_autograph_files() -> None:
    """Deletes what AutoGraph wrote to the temporary folder: it does so at exit, unless killed."""
    for name, module in list(sys.modules.items()):
        if name.startswith("__autograph_generated_file") and module.__file__:
            Path(module.__file__).unlink(missing_ok=True)
