"""The training loop: its iterations, what is due after each, and how it stops and goes on."""

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import tensorflow as tf

from labkit.config import SACConfig
from labkit.environments import watchdog
from labkit.environments.seeding import seeded_env
from labkit.replay import transitions
from labkit.sac.collector import Collector
from labkit.sac.evaluation import evaluate
from labkit.sac.policies import ActorPolicy
from labkit.training import checkpoint, live_plot, run_directory
from labkit.training.components import EVAL_SEED, NOISE_SEED, TrainingComponents, build, warm_up
from labkit.training.learner import Learner, name_last_checkpoint
from labkit.training.progress import progress
from labkit.training.signals import StopRequest, stop_request


class Background:
    """Like a `ThreadPoolExecutor` of one, but a task that hangs does not keep the process alive.

    A thread that waits inside TensorFlow or Reverb cannot be interrupted; Python's own executors
    would join it when their block ends, and again when the interpreter exits.

    Args:
        name: of the thread, for debuggers.
    """

    def __init__(self, name: str):
        self._tasks: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, function, arguments = task
            try:
                future.set_result(function(*arguments))
            except BaseException as error:
                future.set_exception(error)

    def submit(self, function: Callable, *arguments: Any) -> Future:
        """Runs `function` after what was submitted before; returns its future."""
        future: Future = Future()
        self._tasks.put((future, function, arguments))
        return future

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, *error: Any) -> None:
        self._tasks.put(None)  # the thread ends after its present task


class _StoppedError(Exception):
    """Somebody asked the run to end in the middle of an evaluation."""


class Loop:
    """The state of one call of `train`."""

    def __init__(self, config: SACConfig, run: run_directory.Run, parts: TrainingComponents):
        self.config, self.run, self.parts = config, run, parts
        self.learner = Learner(config, run, parts)
        self.policy = ActorPolicy(parts.agent, config.seed + NOISE_SEED, config.greedy_share)
        self.collector = Collector(
            parts.collect_env,
            self.policy,
            parts.replay.write,
            self.policy.new_episode,
            config.n_step,
            config.gamma,
        )
        self.greedy = ActorPolicy(parts.agent)
        self.first_env_step = parts.env_steps
        self.view = live_plot.View(run)
        self.last_return, self.owes_evaluation = "not yet", True
        if saved := checkpoint.latest(self.learner.folder):
            self.restore(saved)
        self.learner.start()

    @property
    def step(self) -> int:
        """Gradient steps so far."""
        return self.learner.step

    @property
    def env_step(self) -> int:
        """Env steps so far, the random collection included."""
        return self.first_env_step + self.collector.env_steps

    def execute(self, stop: StopRequest) -> None:
        """Runs every iteration, the evaluations in between and the one at the end.

        Raises:
            RunError: one of `errors`; the message names the last good checkpoint.
        """
        with name_last_checkpoint(self.learner.folder), self.view:
            self.run_all(stop)

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
        if self.learner.saved_at != self.step or stop:
            self.save_checkpoint()
        with contextlib.suppress(_StoppedError):
            if self.step == total and not stop:
                # Other episodes than those seen in between: nothing was chosen by this score.
                self.evaluate(stop, final=True)
                self.save_checkpoint()  # with this score: the run may be asked to go on from here
        self.learner.close()
        print(checkpoint.whereabouts(self.learner.folder))
        if stop:
            print(f"stopped at gradient step {self.step} of {total}; run this again to go on")

    def iterate(self, pool: Background, stop: StopRequest) -> int:
        """Env steps and gradient steps side by side, then what is due; returns how many."""
        config, learner = self.config, self.learner
        count = learner.until_due()
        pending = pool.submit(learner.gradient_steps, count)
        self.collector.run(count * config.collect_steps_per_iteration)
        losses, weights = self.wait_for(pending)
        self.policy.set_weights(weights)
        learner.record_steps(count, losses, self.env_step, self.collector.mean_return())
        if learner.due(config.eval_interval) and self.step < config.num_iterations:
            self.evaluate(stop)
        if learner.checkpoint_due():
            self.save_checkpoint()
        return count

    def wait_for(self, pending: Future) -> Any:
        """The result, or the named error when the replay table will never give a batch."""
        begin, seen = time.monotonic(), -1
        while True:
            try:
                return pending.result(timeout=transitions.SAMPLE_TIMEOUT_SECONDS / 10)
            except TimeoutError:
                if (begun := int(self.learner.begun)) != seen:  # slow steps are no stall
                    begin, seen = time.monotonic(), begun
                self.parts.replay.check(time.monotonic() - begin)

    def evaluate(self, stop: StopRequest, final: bool = False) -> None:
        """Plays greedy episodes in the evaluation environment and writes what came of them."""
        config = self.config
        episodes = config.num_eval_episodes if final else config.interim_eval_episodes
        self.greedy.set_weights(self.learner.flat_weights())

        def after_episode(done: int) -> None:
            ticker.advance()
            if stop:
                raise _StoppedError

        with progress("evaluation", episodes, "episodes", cell=self.view.aside) as ticker:
            seed = config.seed + (2 if final else 1) * EVAL_SEED
            result = evaluate(self.parts.eval_env, self.greedy, episodes, seed, after_episode)
        self.learner.recorder.log_evaluation(self.step, self.env_step, result)
        self.last_return, self.owes_evaluation = f"{result.mean_return:+.2f}", False

    def save_checkpoint(self) -> None:
        """Writes agent, replay table, generators and counters together; see `checkpoint`."""
        self.learner.save(
            {
                "env_steps_before": self.first_env_step,
                "last_return": self.last_return,
                "owes_evaluation": self.owes_evaluation,
                "collector": self.collector.get_state(),
                "noise": self.policy.get_state(),
                "environment": seeded_env(self.parts.collect_env).get_state(),
            }
        )

    def restore(self, saved: Path) -> None:
        """Takes everything from a checkpoint."""
        parts = self.parts
        state = self.learner.restore(saved)
        parts.replay.restore(saved / "replay")
        self.first_env_step = state["env_steps_before"]
        self.last_return, self.owes_evaluation = state["last_return"], state["owes_evaluation"]
        self.collector.set_state(state["collector"])
        self.policy.set_state(state["noise"])
        self.policy.set_weights(self.learner.flat_weights())
        # What an environment, or TF-Agents' buffer, draws from generators of its own begins anew,
        # but not from the start.
        tf.random.set_seed(self.config.seed + self.step)
        parts.collect_env.seed(self.config.seed + self.step)
        seeded_env(parts.collect_env).set_state(state["environment"])


def train(
    config: SACConfig,
    run: run_directory.Run | None = None,
    parts: TrainingComponents | None = None,
    make_env: Callable | None = None,
) -> run_directory.Run:
    """Trains SAC as configured and leaves the results in the run directory.

    Env steps and gradient steps are taken at the same time, the latter in a thread, so that
    TensorFlow computes while the physics runs, `config.steps_per_call` iterations at once: the
    weights that act are up to twice as many gradient steps old.

    A run directory that holds a checkpoint is gone on with: networks, optimizers, replay table,
    generators, metrics. The physics is not saved: a resumed run begins a new episode. Ctrl-C, the
    kernel's stop button and SIGTERM end the run after its iteration, with a checkpoint.

    Args:
        config: the configuration.
        run: where results go; None makes a new numbered directory under `runs/`.
        parts: made by hand, with the table filled; None builds them and collects at random.
        make_env: one's own Gym environment, `labkit.train(config, make_env=MyEnv)`.

    Returns:
        The run; `run.metrics()` is the table of everything measured.

    Raises:
        DivergedError: a loss or an action is no longer finite.
        BrokenEnvironmentError: an observation or a reward is not finite.
        StalledError: Reverb gave no batch within its time limit.
        StorageError: the run directory cannot be written.
        ParameterError: a checkpoint is damaged or of another agent.
    """
    run = run or run_directory.open_run("", config)
    ours = parts is None
    if parts is None:
        parts = build(config, make_env, run.path / "checkpoints" / "reverb")
        if checkpoint.latest(run.path / "checkpoints") is None:
            warm_up(config, parts)
    if why := watchdog.read_kill_note(run.path):
        print(f"the last start of this run: {why}")
    try:
        loop = Loop(config, run, parts)
        with _watched(config, run, parts), _short_switches(), stop_request() as stop:
            loop.execute(stop)
    finally:
        if ours:
            parts.close()
    return run


@contextlib.contextmanager
def _watched(
    config: SACConfig, run: run_directory.Run, parts: TrainingComponents
) -> Iterator[None]:
    """Ends the process when an environment hangs; see `watchdog`."""
    dog = watchdog.Watchdog(config.environment_timeout, run.path)
    for env in (parts.collect_env, parts.eval_env):
        seeded_env(env).watchdog = dog
    try:
        yield
    finally:
        dog.close()


@contextlib.contextmanager
def _short_switches() -> Iterator[None]:
    """Lets the thread of the gradient step get hold of Python soon after it asked.

    PyBullet keeps Python's lock for the whole of a step, and Python hands it over only every
    5 ms by default: the gradient step would wait where it should overlap.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
