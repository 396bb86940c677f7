"""The local executor: one process that collects, learns, evaluates and saves."""

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tensorflow as tf
from tf_agents.policies import greedy_policy, policy_saver

from labkit import learn, replay, runs, runtime
from labkit.collect import ActorPolicy, Collector
from labkit.config import SACConfig
from labkit.evaluation import Evaluation, evaluate
from labkit.parts import EVAL_SEED, NOISE_SEED, Parts, build, collect_initially
from labkit.progress import progress


class DivergedError(RuntimeError):
    """A loss became infinite or not a number."""


def train(
    config: SACConfig,
    run: runs.Run | None = None,
    parts: Parts | None = None,
    make_env: Callable | None = None,
) -> runs.Run:
    """Trains SAC as configured and leaves the results in the run directory.

    Each iteration takes env steps and one gradient step at the same time, the latter in a
    thread: TensorFlow computes while the physics runs. The gradient step samples what was
    stored before the iteration began, and its weights act from the next iteration on.

    Args:
        config: the configuration.
        run: where results go; None makes a new numbered directory under `runs/`.
        parts: made by hand, with the table filled; None builds them and collects at random.
        make_env: one's own Gym environment, `labkit.train(config, make_env=MyEnv)`.

    Returns:
        The run; `run.metrics()` is the table of everything measured.

    Raises:
        DivergedError: a loss is no longer finite.
        StalledError: Reverb gave no batch within its time limit.
    """
    run = run or runs.Run.create(runs.claim(""), config)
    ours = parts is None
    if parts is None:
        parts = build(config, make_env)
        collect_initially(config, parts)
    try:
        _Loop(config, run, parts).execute()
    finally:
        if ours:
            parts.close()
    return run


class _Loop:
    """The state of one call of `train`."""

    def __init__(self, config: SACConfig, run: runs.Run, parts: Parts):
        self.config, self.run, self.parts = config, run, parts
        self.update = learn.make_update(parts.agent, parts.layout, parts.strategy)
        self.batches = iter(replay.transition_dataset(parts.server, config.batch_size))
        self.greedy = ActorPolicy(parts.agent)
        self.policy = ActorPolicy(parts.agent, seed=config.seed + NOISE_SEED)
        self.collector = Collector(parts.collect_env, self.policy, parts.writer.write)
        self.saver = policy_saver.PolicySaver(greedy_policy.GreedyPolicy(parts.agent.policy))
        self.events = tf.summary.create_file_writer(str(run.path / "events"))
        self.started = time.monotonic()
        self.first_env_step = parts.env_steps
        self.last_return = "not yet"

    def execute(self) -> None:
        """Runs every iteration, the evaluations in between and the one at the end."""
        config = self.config
        if self.run.metrics().empty:
            self.evaluate(0, config.interim_eval_episodes, config.seed + EVAL_SEED)
        window: list[np.ndarray] = []
        with (
            ThreadPoolExecutor(1, "gradient step") as pool,
            progress("training", config.num_iterations, "it") as ticker,
        ):
            with runtime.quiet():  # Reverb's sampler says hello with its first batch
                first = self.gradient_step()
            window.append(first[0])
            for step in range(1, config.num_iterations + 1):
                # The first gradient step compiled the update; the loop overlaps all others.
                pending = pool.submit(self.gradient_step) if step > 1 else None
                self.collector.run(config.collect_steps_per_iteration)
                losses, weights = pending.result() if pending else first
                self.policy.set_weights(weights)
                window.append(losses)
                ticker.advance(last_return=self.last_return)
                if _due(step, config.log_interval) or step == config.num_iterations:
                    self.log(step, np.mean(window, axis=0))
                    window.clear()
                if _due(step, config.eval_interval) and step < config.num_iterations:
                    self.evaluate(step, config.interim_eval_episodes, config.seed + EVAL_SEED)
                    ticker.refresh(last_return=self.last_return)
                if _due(step, config.policy_save_interval):
                    self.save_policy()
        self.parts.env_steps = self.env_step
        # Other episodes than those seen in between: a final score that nothing was chosen by.
        self.evaluate(config.num_iterations, config.num_eval_episodes, config.seed + 2 * EVAL_SEED)
        self.save_policy()
        self.events.close()

    def gradient_step(self) -> tuple[np.ndarray, np.ndarray]:
        """One batch, one update: `[critic, actor, alpha loss, log α]` and the actor's weights."""
        try:
            losses, weights = self.update(next(self.batches))
        except (StopIteration, tf.errors.DeadlineExceededError):
            raise replay.StalledError(
                f"table {replay.TABLE!r} gave no batch of {self.config.batch_size} within "
                f"{replay.SAMPLE_TIMEOUT_SECONDS} s: is its Reverb server still running?"
            ) from None
        except tf.errors.InvalidArgumentError as error:
            if "inf or nan" not in str(error):
                raise
            what = next(name for name in ("Critic", "Actor", "Alpha") if name in str(error))
            raise DivergedError(
                f"{what.lower()} loss is infinite or not a number at gradient step "
                f"{self.parts.agent.train_step_counter.numpy() + 1}"
            ) from None
        return losses.numpy(), weights.numpy()

    @property
    def env_step(self) -> int:
        """Env steps so far, the random collection included."""
        return self.first_env_step + self.collector.env_steps

    def log(self, step: int, losses: np.ndarray) -> None:
        """Writes the losses' means since the last row, and α as it is now."""
        values = {
            "critic_loss": losses[0],
            "actor_loss": losses[1],
            "alpha_loss": losses[2],
            "alpha": float(np.exp(self.parts.agent._log_alpha.numpy())),
            "collect_return": self.collector.mean_return(),
        }
        self.run.log(
            env_step=self.env_step,
            gradient_step=step,
            wall_seconds=round(time.monotonic() - self.started, 3),
            **values,
        )
        self.write_events(step, values)

    def evaluate(self, step: int, episodes: int, seed: int) -> Evaluation:
        """Plays greedy episodes in the evaluation environment and writes what came of them."""
        weights = learn.flat_weights(self.parts.agent).numpy()
        self.greedy.set_weights(weights)
        with progress("evaluation", episodes, "episodes") as ticker:
            result = evaluate(
                self.parts.eval_env, self.greedy, episodes, seed, lambda done: ticker.advance()
            )
        self.last_return = f"{result.mean_return:+.2f}"
        self.run.log_evaluation(
            result,
            env_step=self.env_step,
            gradient_step=step,
            wall_seconds=time.monotonic() - self.started,
        )
        self.write_events(step, {"eval_return": result.mean_return})
        return result

    def write_events(self, step: int, values: dict[str, float]) -> None:
        """Writes the same numbers for TensorBoard."""
        with self.events.as_default():
            for name, value in values.items():
                tf.summary.scalar(name, value, step=step)

    def save_policy(self) -> None:
        """Replaces `policy/` by the newest greedy policy; a half-written one is never seen."""
        save_policy(self.saver, self.run.path)


def save_policy(saver: policy_saver.PolicySaver, run_path: Path) -> None:
    """Writes a SavedModel beside the old one, then takes its place."""
    partial, final = run_path / "policy.partial", run_path / "policy"
    shutil.rmtree(partial, ignore_errors=True)
    with runtime.quiet():
        saver.save(str(partial))
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)


def _due(step: int, interval: int) -> bool:
    return interval > 0 and step % interval == 0
