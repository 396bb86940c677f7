"""The learning half of a run: gradient steps, what is due after them, what is saved of them.

Both executors have one: the local executor beside its collector, Ray's in a process of its own.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from labkit import runtime
from labkit.config import SACConfig
from labkit.errors import DivergedError, RunError, StalledError
from labkit.parameters import invalid
from labkit.replay import transitions
from labkit.sac.agent import state_variables
from labkit.sac.update import flat_weights, make_steps, make_update
from labkit.training import checkpoint, run_directory
from labkit.training.components import TrainingComponents
from labkit.training.logger import RunLogger


class Learner:
    """Takes gradient steps on what the replay table gives, and counts, logs and saves them.

    Args:
        config: the configuration.
        run: where metrics, policy and checkpoints go.
        parts: agent, strategy and replay table.
        executor: 'local' or 'ray'; each goes on with its own checkpoints only.
    """

    def __init__(
        self,
        config: SACConfig,
        run: run_directory.Run,
        parts: TrainingComponents,
        executor: str = "local",
    ):
        self.config, self.run, self.parts, self.executor = config, run, parts, executor
        self.folder = run.path / "checkpoints"
        self.update = make_update(parts.agent, parts.layout, parts.strategy)
        # Compiled now: Adam's moments come into being, and a checkpoint may fill them.
        batch = tf.TensorSpec([config.batch_size, parts.layout.width], tf.float32)
        self.update.get_concrete_function(batch)
        self.step, self.env_step = 0, parts.env_steps
        self.loss_sum, self.loss_count = np.zeros(4), 0
        self.saved_at, self.spent = -1, 0.0

    def restore(self, saved: Path) -> dict[str, Any]:
        """Takes the agent and the counters from a checkpoint; returns the rest of its state.

        Raises:
            ParameterError: it is damaged, of another agent, or of the other executor.
        """
        arrays, state = checkpoint.load(saved)
        theirs = state.get("executor", "local")
        if theirs != self.executor:
            begun, here = (
                "labkit.train_on_ray" if name == "ray" else "labkit.train"
                for name in (theirs, self.executor)
            )
            raise invalid(
                "run_dir",
                str(self.run.path),
                f"a run that {here} started: this one was started by {begun}",
            )
        checkpoint.assign(state_variables(self.parts.agent), arrays, saved)
        self.run.forget_metrics_after(state["metrics_bytes"])
        self.step, self.spent = state["step"], state["seconds"]
        *loss_sum, self.loss_count = state["losses"]
        self.loss_sum = np.array(loss_sum)
        return state

    def start(self) -> None:
        """Opens the run's files and the stream of batches, after a checkpoint was restored or none.

        Raises:
            StalledError: the replay table gave no batch.
        """
        if checkpoint.latest(self.folder) is None:
            self.run.forget_metrics_after(None)
        self.recorder = RunLogger(self.run, self.parts.agent, lambda: self.env_step, self.spent)
        self.saved_seconds = self.recorder.seconds()
        with runtime.quiet(), self.stall_named():  # Reverb's sampler says hello
            batches = iter(self.parts.replay.dataset(self.config.batch_size))
            next(batches)
        self.steps, self.begun = make_steps(self.parts.agent, self.update, batches)

    def gradient_steps(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """So many updates: `[critic, actor, alpha loss]` summed, log α, and the actor's weights."""
        try:
            with self.stall_named():
                losses, weights = self.steps(count)
        except tf.errors.InvalidArgumentError as error:
            if "inf or nan" not in str(error):
                raise
            what = next(name for name in ("Critic", "Actor", "Alpha") if name in str(error))
            step = self.step + int(self.begun)
            raise DivergedError(
                f"{what.lower()} loss is infinite or not a number at gradient step {step}"
            ) from None
        return losses.numpy(), weights.numpy()

    @contextlib.contextmanager
    def stall_named(self) -> Iterator[None]:
        """Names what Reverb's time limit means."""
        try:
            yield
        except (StopIteration, tf.errors.OutOfRangeError, tf.errors.DeadlineExceededError):
            seconds = getattr(self.parts.replay, "patience", transitions.SAMPLE_TIMEOUT_SECONDS)
            raise StalledError(
                f"the replay table gave no batch of {self.config.batch_size} transitions within "
                f"{seconds} s: is its server still running?"
            ) from None

    def record_steps(
        self, count: int, losses: np.ndarray, env_step: int, collect_return: float
    ) -> None:
        """Counts gradient steps that were taken, logs them and saves the policy where that is due.

        Args:
            count: how many.
            losses: as `gradient_steps` gives them.
            env_step: env steps so far, the random collection included.
            collect_return: of the latest collected episodes.
        """
        self.step += count
        self.env_step = env_step
        self.loss_sum += losses
        self.loss_count += count
        if self.due(self.config.log_interval) or self.step == self.config.num_iterations:
            alpha = float(np.exp(losses[3]))
            means = self.loss_sum[:3] / self.loss_count
            self.recorder.log(self.step, means, alpha, collect_return)
            self.loss_sum, self.loss_count = np.zeros(4), 0
        if self.due(self.config.policy_save_interval):
            self.recorder.save_policy()

    def until_due(self) -> int:
        """How many steps to take at once: no further than the next that something is due after."""
        config = self.config
        intervals = (
            config.log_interval,
            config.policy_save_interval,
            config.eval_interval,
            config.checkpoint_interval,
        )
        due = [interval - self.step % interval for interval in intervals if interval]
        return min(config.steps_per_call, config.num_iterations - self.step, *due)

    def due(self, interval: int) -> bool:
        """Whether this step is a multiple of an interval; 0 is never."""
        return interval > 0 and self.step % interval == 0

    def checkpoint_due(self) -> bool:
        """Whether it is time for a checkpoint, by steps or by seconds."""
        waited = self.recorder.seconds() - self.saved_seconds
        by_time = 0 < self.config.checkpoint_seconds <= waited
        return self.due(self.config.checkpoint_interval) or by_time

    def save(self, state: dict[str, Any]) -> None:
        """Writes agent, replay table and counters together, and what else `state` holds."""
        state = {
            "executor": self.executor,
            "seconds": self.recorder.seconds(),
            "metrics_bytes": self.run.metrics_bytes(),
            "losses": [*self.loss_sum.tolist(), self.loss_count],
            **state,
        }
        arrays = [variable.numpy() for variable in state_variables(self.parts.agent)]
        checkpoint.save(self.folder, self.step, arrays, state, self.parts.replay)
        self.saved_at, self.saved_seconds = self.step, self.recorder.seconds()

    def flat_weights(self) -> np.ndarray:
        """The actor's parameters now, one flat float32 vector."""
        return flat_weights(self.parts.agent).numpy()

    def close(self) -> None:
        """Saves the policy and closes the files."""
        self.recorder.save_policy()
        self.recorder.close()


@contextlib.contextmanager
def name_last_checkpoint(folder: Path) -> Iterator[None]:
    """Adds to a run's named error which checkpoint is safe.

    Raises:
        RunError: of the same class.
    """
    try:
        yield
    except RunError as error:
        good = checkpoint.latest(folder)
        raise type(error)(f"{error}; last good checkpoint: {good or 'none yet'}") from None
