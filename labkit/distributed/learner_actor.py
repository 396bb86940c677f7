"""The learner of a distributed run, in a separate process."""

import threading
import time
from typing import Any

import ray

from labkit.distributed.cluster import fetch, process_status
from labkit.distributed.replay_actor import ReplayClient, samples_per_batch
from labkit.distributed.workers import RunContext, silence_limit
from labkit.errors import StalledError
from labkit.replay.server import LimiterState
from labkit.replay.transitions import SAMPLE_TIMEOUT_SECONDS, layout_of
from labkit.runtime import seed_everything
from labkit.sac.agent import create_agent
from labkit.strategy import make_strategy
from labkit.training import checkpoint
from labkit.training.learner import Learner
from labkit.training.run import Run

PUSH_STEPS = 10  # gradient steps after which newer weights are pushed, at the latest


class LearnerActor:
    """Takes gradient steps as fast as the rate limiter allows, and pushes weights."""

    def __init__(self, context: RunContext):
        self._context, self._config, self._stop = context, context.config, threading.Event()
        self._learner: Learner | None = None
        self._phase, self._first_step = "warm-up", 0
        self._table: LimiterState  # its counters, after the last call of gradient steps
        self._pushed: Any  # the reference of the last push's answer
        self._saved_env_step = 0  # of the last checkpoint
        self._request: tuple[Any, dict[str, Any]] | None = None  # an evaluation: answer, facts

    def train(self, replay: Any, parameters: Any, evaluator: Any) -> dict[str, Any]:
        """Trains with these peers until all is done or `stop` is called; returns the counters."""
        self._parameters, self._evaluator = parameters, evaluator
        learner = self._prepare(replay)
        self._push(learner)
        if learner.evaluation_pending():
            self._evaluate(learner)
        if not self._wait_for_batches(1, self._config.initial_collect_steps):
            return {"inserts": self._table.inserts, "samples": self._table.samples}
        learner.start()
        self._phase = "training"
        while learner.step < self._config.num_iterations and not self._stop.is_set():
            self._iterate(learner)
        table = self._table = self._replay.state()
        self._save(learner)
        if learner.final_evaluation_pending() and not self._stop.is_set():
            self._phase = "evaluation"
            self._evaluate(learner, final=True)
            self._log_evaluation(learner, wait=True)
            self._save(learner)
        learner.close()
        return {"inserts": table.inserts, "samples": table.samples}

    def _prepare(self, replay: Any) -> Learner:
        """The learner, at the last checkpoint; the replay actor opens its table first."""
        config, context = self._config, self._context
        saved = checkpoint.latest(context.checkpoints)
        fetch("replay", replay.open.remote(saved.name if saved else ""))
        self._replay = ReplayClient(context, replay, silence_limit(config) + SAMPLE_TIMEOUT_SECONDS)
        self._table = self._replay.state()
        seed_everything(config.seed)
        strategy = make_strategy(config.strategy, config.batch_size)
        env = context.environment(config.seed)  # for its shapes
        agent = create_agent(config, env, strategy)
        run = Run(context.checkpoints.parent, config)
        learner = Learner(config, run, agent, strategy, layout_of(env), self._replay)
        if saved:
            self._saved_env_step = learner.restore(saved)["env_steps"]
        self._learner, self._first_step = learner, learner.step
        return learner

    def _wait_for_batches(self, count: int, first: int = 0) -> bool:
        """Waits until the limiter allows `count` batches and the table has got `first` rows.

        TensorFlow would wait for a batch, too, but nothing could interrupt it. Returns False if the
        learner was asked to stop before; a `StalledError` if no row arrived for too long.
        """
        seen, since = -1, time.monotonic()
        while not self._stop.is_set():
            inserts = self._table.inserts
            allowed = self._table.balance - self._table.min_diff  # samples before the next insert
            if inserts >= first and allowed >= count * samples_per_batch(self._config):
                return True
            if inserts != seen:
                seen, since = inserts, time.monotonic()
            elif time.monotonic() - since > (waited := self._replay.sample_timeout):
                raise StalledError(f"no transition arrived for {waited} s, after {seen} of them")
            time.sleep(0.01)
            self._table = self._replay.state()
        return False

    def _iterate(self, learner: Learner) -> None:
        count = learner.count_until_due(PUSH_STEPS - learner.step % PUSH_STEPS)
        if not self._wait_for_batches(count):
            return
        totals, _ = learner.gradient_steps(count)
        self._table = self._replay.state()
        learner.record_steps(count, totals, self._table.inserts, ray.get(self._pushed))
        if learner.step % PUSH_STEPS == 0:
            self._push(learner)
        self._log_evaluation(learner)
        if learner.evaluation_pending():
            self._evaluate(learner)
        if learner.checkpoint_due():
            self._save(learner)

    def _push(self, learner: Learner) -> None:
        """Sends the newest weights; does not wait for the answer, the workers' mean return."""
        newest = (learner.step, self._table.inserts, learner.flat_weights())
        self._pushed = self._parameters.push.remote(*newest)

    def _evaluate(self, learner: Learner, final: bool = False) -> None:
        """Requests an evaluation of the present weights, once the previous one is logged."""
        self._log_evaluation(learner, wait=True)
        if not self._stop.is_set():
            answer = self._evaluator.evaluate.remote(learner.flat_weights(), final)
            place = {"step": learner.step, "env_step": self._table.inserts}
            self._request = answer, {**place, "final": final, "seconds": learner.seconds()}

    def _log_evaluation(self, learner: Learner, wait: bool = False) -> None:
        """Logs the requested evaluation, if it was played; or waits for it, but not in a stop."""
        if self._request is None:
            return
        answer, facts = self._request
        while not ray.wait([answer], timeout=0.1 if wait else 0)[0]:
            if not wait or self._stop.is_set():
                return
        self._request = None
        learner.log_evaluation(result=fetch("evaluator", answer), **facts)

    def _save(self, learner: Learner) -> None:
        self._saved_env_step = self._replay.state().inserts
        learner.save({"env_steps": self._saved_env_step})

    @ray.method(concurrency_group="status")
    def stop(self) -> None:
        """Ends `train` after its present call or wait, with a checkpoint."""
        self._stop.set()

    @ray.method(concurrency_group="status")
    def status(self) -> dict[str, Any]:
        """As `process_status`, with phase, progress, and what the last checkpoint holds."""
        learner = self._learner
        return {
            **process_status(),
            "phase": self._phase,
            "step": learner.step if learner else 0,
            "first_step": self._first_step,
            "saved_step": max(0, learner.saved_step) if learner else 0,
            "saved_env_step": self._saved_env_step,
            "last_return": learner.last_return if learner else "not yet",
        }
