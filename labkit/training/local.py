"""The local executor: one process that collects, learns, evaluates and saves."""

import contextlib
import sys
import time
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from labkit.config import SACConfig
from labkit.errors import RunError, StorageError
from labkit.runtime import cpu_cores, in_background
from labkit.sac.actor import ActorPolicy
from labkit.sac.rollout import Collector, Evaluation, begin_evaluation
from labkit.training import checkpoint, components
from labkit.training.components import MakeEnv, TrainingComponents
from labkit.training.learner import Learner
from labkit.training.progress import LivePlot, StoppedError, StopRequest, progress
from labkit.training.run import Run

JOIN_SECONDS = 30  # for the gradient steps that run when an error ends the training
STEPS_BETWEEN_CHECKS = 100  # gradient steps; see `LocalTraining.check_table`


def train(
    config: SACConfig,
    run: Run | None = None,
    make_env: MakeEnv | None = None,
    *,
    max_episode_steps: int | None = None,
    on_metrics: Callable[[dict[str, Any]], Any] | None = None,
) -> Run:
    """Trains SAC as configured and leaves the results in the run directory.

    Collection and gradient steps run at the same time, `config.steps_per_call` iterations at once:
    TensorFlow computes in a thread while the physics runs, and the weights of the acting policy lag
    the learner's by up to that many gradient steps.

    A run directory with a checkpoint is resumed: networks, optimizers, replay table, generators and
    metrics. The physics is not saved, so a resumed run begins a new episode. Ctrl-C, the kernel's
    stop button and SIGTERM end the run after the current iteration, with a checkpoint.

    Args:
        config: every hyperparameter.
        run: an open run of this configuration; None resumes the newest unfinished one under `runs/`
            or makes a new numbered directory there, see `labkit.open_run`.
        make_env: returns an environment of Gym 0.23 or Gymnasium, as in
            `labkit.train(config, make_env=MyEnv)`. `config.env_name` names it.
        max_episode_steps: env steps until the time limit, in both environments; None takes the
            registered one, if any. Pass it again to resume: a run with another one is rejected.
        on_metrics: gets each row of metrics as a dictionary, once it is written.

    Returns:
        The run; `run.metrics()` is the table of everything measured.

    Raises:
        KeyboardInterrupt: the run was stopped in the warm-up, after which there is nothing to save.
        RunError: one of `errors`; names the last good checkpoint.
        ParameterError: an argument is of another type, `run` is of another configuration, another
            process writes to it, `make_env` cannot be used, or a checkpoint is damaged.
    """
    arguments = ("local", config, run, make_env, max_episode_steps)
    with components.open_training(*arguments) as (opened, environments):
        opened.on_metrics = on_metrics
        folder = opened.path / "checkpoints"
        made = components.build(config, environments, folder / "reverb")
        with contextlib.closing(made.replay), contextlib.ExitStack() as stack:
            stop = StopRequest()
            if checkpoint.latest(folder) is None:
                if config.eval_interval:  # of the untrained policy, at the same time
                    task = made.eval_env, ActorPolicy(made.agent), *components.evaluated(config)
                    begun = begin_evaluation(*task, cpu_cores() - 1, stop.check)
                    made.early = stack.enter_context(begun)
                components.warm_up(config, made)
            with stop:
                LocalTraining(config, opened, made).execute(stop)
    return opened


class LocalTraining:
    """The state of one call of `train`."""

    def __init__(self, config: SACConfig, run: Run, made: TrainingComponents):
        self.config, self.components, self.early = config, made, made.early
        agent, replay = made.agent, made.replay
        windows: dict[str, Any] = {"n_step": config.n_step, "gamma": config.gamma}
        self.learner = Learner(config, run, agent, made.strategy, made.layout, replay)
        self.policy = ActorPolicy(agent, config.seed + components.NOISE_SEED)
        self.collector = Collector(made.collect_env, self.policy, replay.write, **windows)
        self.deterministic_policy = ActorPolicy(agent)
        self.first_env_step = made.env_steps
        self.live_plot = LivePlot(run)
        if saved := checkpoint.latest(self.learner.folder):
            self.restore(saved)
        self.rows = replay.size()
        self.learner.start()

    @property
    def step(self) -> int:
        """Gradient steps so far."""
        return self.learner.step

    @property
    def env_step(self) -> int:
        """Env steps so far, the warm-up included."""
        return self.first_env_step + self.collector.env_steps

    def execute(self, stop: StopRequest) -> None:
        """Runs every iteration, the interim evaluations and the final one."""
        # PyBullet keeps Python's lock for the whole of a step, and Python passes it on only every
        # 5 ms by default: the gradient steps would wait where they should overlap.
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-4)
        try:
            with self.live_plot:
                self._run(stop)
        except BaseException:
            with contextlib.suppress(StorageError):  # what went wrong before counts
                self.learner.close_events()
            raise
        finally:
            sys.setswitchinterval(interval)
        print(checkpoint.summary(self.learner.folder))
        if stop:
            total = self.config.num_iterations
            print(f"stopped at gradient step {self.step} of {total}; run this again to resume")

    def _run(self, stop: StopRequest) -> None:
        learner, total = self.learner, self.config.num_iterations
        if learner.evaluation_pending():
            self.evaluate(stop)
        with progress("training", total, "it", self.step, self.live_plot.line) as bar:
            while self.step < total and not stop:
                bar.advance(self.iterate(stop), last_return=learner.last_return)
        self.components.env_steps = self.env_step
        if learner.saved_step != self.step:
            self.save_checkpoint()
        if learner.final_evaluation_pending() and not stop:
            self.evaluate(stop, final=True)
        learner.close()

    def iterate(self, stop: StopRequest) -> int:
        """Env steps and gradient steps at the same time, then what is due; returns how many."""
        config, learner = self.config, self.learner
        count = learner.count_until_due()
        pending = in_background(learner.gradient_steps, count)
        failed = None
        try:
            self.collector.run(count * config.collect_steps_per_iteration)
        except Exception as error:  # of the user's environment, or of labkit
            failed = error
        except BaseException:  # an interpreter that exits while TensorFlow computes aborts
            futures.wait([pending], JOIN_SECONDS)
            raise
        totals, weights = self.wait_for(pending)
        self.components.replay.flush()  # the next call may sample what this one collected
        self.policy.set_weights(weights)
        learner.record_steps(count, totals, self.env_step, self.collector.mean_return())
        if failed:
            if not isinstance(failed, RunError):
                with contextlib.suppress(Exception):  # what failed before counts
                    self.save_checkpoint()
            raise failed
        if self.step % STEPS_BETWEEN_CHECKS < count:
            self.check_table()
        if learner.evaluation_pending():
            self.evaluate(stop)
        if learner.checkpoint_due():
            self.save_checkpoint()
        return count

    def wait_for(self, pending: "futures.Future[Any]") -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The result of the gradient steps, or an error if the table will never return a batch."""
        replay, begin, seen = self.components.replay, time.monotonic(), -1
        while True:
            try:
                return pending.result(timeout=replay.sample_timeout / 10)
            except TimeoutError:
                if (started := int(self.learner.started)) != seen:  # slow steps, not a stall
                    begin, seen = time.monotonic(), started
                replay.check(time.monotonic() - begin)

    def check_table(self) -> None:
        """Notices that the table was emptied: any client that reaches Reverb's port can do that."""
        rows = self.components.replay.size()
        if rows < self.rows:
            found = f"the replay table holds {rows} rows at gradient step {self.step}, and had"
            raise RunError(f"{found} {self.rows}: another client must have removed them")
        self.rows = rows

    def evaluate(self, stop: StopRequest, final: bool = False) -> None:
        """Plays deterministic episodes in the evaluation environment and logs the results.

        A stop ends it between two env steps, and nothing is logged.
        """
        learner, (early, self.early) = self.learner, (self.early, None)
        self.deterministic_policy.set_weights(learner.flat_weights())
        numbers = components.evaluated(self.config, final)
        task = self.components.eval_env, self.deterministic_policy, *numbers, cpu_cores()
        bar = progress("evaluation", numbers[0], "episodes", cell=self.live_plot.line)
        with contextlib.suppress(StoppedError), bar, contextlib.ExitStack() as stack:
            bar.iterable = early or stack.enter_context(begin_evaluation(*task, stop.check))
            result = Evaluation(*zip(*bar, strict=True))
            learner.log_evaluation(self.step, self.env_step, result, final, learner.seconds())

    def save_checkpoint(self) -> None:
        """Writes agent, replay table, generators and counters together; see `checkpoint`."""
        state = {
            "env_steps": self.env_step,
            "env_steps_before": self.first_env_step,
            "collector": self.collector.get_state(),
            "noise": self.policy.get_state(),
            "environment": self.components.collect_env.gym.get_state(),
        }
        self.learner.save(state)

    def restore(self, saved: Path) -> None:
        """Restores what `save_checkpoint` wrote."""
        state = self.learner.restore(saved)
        self.components.replay.restore(saved / "replay")
        # Generators inside an environment, or of TF-Agents' buffer, are not saved: they get a seed
        # that no earlier part of the run used.
        words = np.random.SeedSequence([self.config.seed, self.step, components.RESUME_SEED])
        seed = int(words.generate_state(1)[0]) % 2**31
        tf.random.set_seed(seed)
        self.components.collect_env.seed(seed)
        self.policy.set_weights(self.learner.flat_weights())
        self.first_env_step = state["env_steps_before"]
        self.collector.set_state(state["collector"])
        self.policy.set_state(state["noise"])
        self.components.collect_env.gym.set_state(state["environment"])
