"""The training loop: its iterations, what is due after each, and how it stops and goes on."""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from labkit import checkpoint, environments, learn, live, rows, runs, runtime
from labkit.agent import state_variables
from labkit.background import Background
from labkit.collect import ActorPolicy, Collector
from labkit.config import SACConfig
from labkit.errors import DivergedError, RunError, StalledError
from labkit.evaluation import evaluate
from labkit.parts import EVAL_SEED, NOISE_SEED, Parts
from labkit.progress import progress
from labkit.recorder import Recorder
from labkit.stopping import StopRequest


class _StoppedError(Exception):
    """Somebody asked the run to end in the middle of an evaluation."""


class Loop:
    """The state of one call of `train`."""

    def __init__(self, config: SACConfig, run: runs.Run, parts: Parts):
        self.config, self.run, self.parts = config, run, parts
        self.folder = run.path / "checkpoints"
        self.update = learn.make_update(parts.agent, parts.layout, parts.strategy)
        # Compiled now: Adam's moments come into being, and a checkpoint may fill them.
        batch = tf.TensorSpec([config.batch_size, parts.layout.width], tf.float32)
        self.update.get_concrete_function(batch)
        self.policy = ActorPolicy(parts.agent, config.seed + NOISE_SEED, config.greedy_share)
        self.collector = Collector(
            parts.collect_env, self.policy, parts.replay.write, self.policy.new_episode
        )
        self.greedy = ActorPolicy(parts.agent)
        self.step, self.first_env_step, spent = 0, parts.env_steps, 0.0
        self.view = live.View(run)
        self.loss_sum, self.loss_count = np.zeros(4), 0
        self.last_return, self.owes_evaluation = "not yet", True
        if saved := checkpoint.latest(self.folder):
            spent = self.restore(saved)
        else:
            run.forget_metrics_after(None)
        self.recorder = Recorder(run, parts.agent, lambda: self.env_step, spent)
        self.saved_at, self.saved_seconds = -1, self.recorder.seconds()
        with runtime.quiet(), self.stall_named():  # Reverb's sampler says hello
            batches = iter(parts.replay.dataset(config.batch_size))
            next(batches)
        self.steps, self.begun = learn.make_steps(parts.agent, self.update, batches)

    @property
    def env_step(self) -> int:
        """Env steps so far, the random collection included."""
        return self.first_env_step + self.collector.env_steps

    def execute(self, stop: StopRequest) -> None:
        """Runs every iteration, the evaluations in between and the one at the end.

        Raises:
            RunError: one of `errors`; the message names the last good checkpoint.
        """
        try:
            with self.view:
                self.run_all(stop)
        except RunError as error:
            good = checkpoint.latest(self.folder)
            raise type(error)(f"{error}; last good checkpoint: {good or 'none yet'}") from None

    def run_all(self, stop: StopRequest) -> None:
        """What `execute` does, whose errors do not yet say what is safe."""
        total = self.config.num_iterations
        try:
            if self.owes_evaluation:
                self.evaluate(stop)
            with (
                Background("gradient steps") as pool,
                progress("training", total, "it", done=self.step, cell=self.view) as ticker,
            ):
                while self.step < total and not stop:
                    count = self.iterate(pool, stop)
                    ticker.advance(count, last_return=self.last_return)
        except _StoppedError:
            self.owes_evaluation = True
        self.parts.env_steps = self.env_step
        if self.saved_at != self.step or stop:
            self.save_checkpoint()
        with contextlib.suppress(_StoppedError):
            if self.step == total and not stop:
                # Other episodes than those seen in between: nothing was chosen by this score.
                self.evaluate(stop, final=True)
                self.save_checkpoint()  # with this score: the run may be asked to go on from here
        self.recorder.save_policy()
        self.recorder.close()
        megabytes = checkpoint.size_bytes(self.folder) / 1e6
        print(f"the newest checkpoints are in {self.folder}: {megabytes:.0f} MB on disk")
        if stop:
            print(f"stopped at gradient step {self.step} of {total}; run this again to go on")

    def iterate(self, pool: Background, stop: StopRequest) -> int:
        """Env steps and gradient steps side by side, then what is due; returns how many."""
        config = self.config
        count = self.until_due()
        pending = pool.submit(self.gradient_steps, count)
        self.collector.run(count * config.collect_steps_per_iteration)
        losses, weights = self.wait_for(pending)
        self.policy.set_weights(weights)
        self.step += count
        self.loss_sum += losses
        self.loss_count += count
        if self.due(config.log_interval) or self.step == config.num_iterations:
            alpha = float(np.exp(losses[3]))
            means = self.loss_sum[:3] / self.loss_count
            self.recorder.log(self.step, means, alpha, self.collector.mean_return())
            self.loss_sum, self.loss_count = np.zeros(4), 0
        if self.due(config.policy_save_interval):
            self.recorder.save_policy()
        if self.due(config.eval_interval) and self.step < config.num_iterations:
            self.evaluate(stop)
        waited = self.recorder.seconds() - self.saved_seconds
        if self.due(config.checkpoint_interval) or 0 < config.checkpoint_seconds <= waited:
            self.save_checkpoint()
        return count

    def wait_for(self, pending: Future) -> Any:
        """The result, or the named error when the replay table will never give a batch."""
        begin = time.monotonic()
        while True:
            try:
                return pending.result(timeout=rows.SAMPLE_TIMEOUT_SECONDS / 10)
            except TimeoutError:
                self.parts.replay.check(time.monotonic() - begin)

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
            raise StalledError(
                f"the replay table gave no batch of {self.config.batch_size} transitions within "
                f"{rows.SAMPLE_TIMEOUT_SECONDS} s: is its server still running?"
            ) from None

    def evaluate(self, stop: StopRequest, final: bool = False) -> None:
        """Plays greedy episodes in the evaluation environment and writes what came of them."""
        config = self.config
        episodes = config.num_eval_episodes if final else config.interim_eval_episodes
        self.greedy.set_weights(learn.flat_weights(self.parts.agent).numpy())

        def after_episode(done: int) -> None:
            ticker.advance()
            if stop:
                raise _StoppedError

        with progress("evaluation", episodes, "episodes", cell=self.view.aside) as ticker:
            seed = config.seed + (2 if final else 1) * EVAL_SEED
            result = evaluate(self.parts.eval_env, self.greedy, episodes, seed, after_episode)
        self.recorder.log_evaluation(self.step, result)
        self.last_return, self.owes_evaluation = f"{result.mean_return:+.2f}", False

    def save_checkpoint(self) -> None:
        """Writes agent, replay table, generators and counters together; see `checkpoint`."""
        parts = self.parts
        state = {
            "env_steps_before": self.first_env_step,
            "seconds": self.recorder.seconds(),
            "metrics_bytes": self.run.metrics_bytes(),
            "losses": [*self.loss_sum.tolist(), self.loss_count],
            "last_return": self.last_return,
            "owes_evaluation": self.owes_evaluation,
            "collector": self.collector.get_state(),
            "noise": self.policy.get_state(),
            "environment": environments.isolated(parts.collect_env).get_state(),
        }
        arrays = [variable.numpy() for variable in state_variables(parts.agent)]
        checkpoint.save(self.folder, self.step, arrays, state, parts.replay)
        self.saved_at, self.saved_seconds = self.step, self.recorder.seconds()

    def restore(self, saved: Path) -> float:
        """Takes everything from a checkpoint; returns the seconds that the run had taken."""
        parts, config = self.parts, self.config
        arrays, state = checkpoint.load(saved)
        checkpoint.assign(state_variables(parts.agent), arrays, saved)
        parts.replay.restore(saved / "replay")
        self.run.forget_metrics_after(state["metrics_bytes"])
        self.step, self.first_env_step = state["step"], state["env_steps_before"]
        *loss_sum, self.loss_count = state["losses"]
        self.loss_sum = np.array(loss_sum)
        self.last_return, self.owes_evaluation = state["last_return"], state["owes_evaluation"]
        self.collector.set_state(state["collector"])
        self.policy.set_state(state["noise"])
        self.policy.set_weights(learn.flat_weights(parts.agent).numpy())
        # What an environment, or TF-Agents' buffer, draws from generators of its own begins anew,
        # but not from the start.
        tf.random.set_seed(config.seed + self.step)
        parts.collect_env.seed(config.seed + self.step)
        environments.isolated(parts.collect_env).set_state(state["environment"])
        return state["seconds"]
