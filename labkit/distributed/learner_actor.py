"""The learner of a distributed run, in a separate process."""

import threading
import time
from typing import Any

import ray

from labkit.distributed.context import RunContext, environment_seconds, process_status
from labkit.distributed.evaluation_queue import EvaluationRequester, Key
from labkit.distributed.replay_actor import ReplayClient, batches_allowed
from labkit.errors import START_SECONDS, StalledError
from labkit.replay.server import LimiterState
from labkit.replay.transitions import SAMPLE_TIMEOUT_SECONDS, layout_of
from labkit.runtime import seed_everything
from labkit.sac.agent import create_agent
from labkit.sac.rollout import Evaluation
from labkit.strategy import make_strategy
from labkit.training import checkpoint
from labkit.training.learner import Learner
from labkit.training.run import Run

PUSH_STEPS = 10  # gradient steps after which newer weights are pushed, at the latest


class LearnerActor:
    """Takes gradient steps as fast as the rate limiter allows, and pushes weights."""

    def __init__(self, context: RunContext):
        self._context, self._config = context, context.config
        self._stop = threading.Event()
        # Waits for each answer: Ray may run calls of one caller in another order otherwise.
        self._evaluations = EvaluationRequester(
            lambda request: ray.get(self._parameters.request_evaluation.remote(request))
        )
        self._table: LimiterState | None = None  # after the last call of gradient steps
        self._learner: Learner | None = None
        self._phase, self._first_step = "starting", 0
        self._messages: list[str] = []  # for the driver to print
        self._pushed: Any = None

    def train(self) -> dict[str, Any]:
        """Trains until all steps are done or `stop` is called; returns the final counters."""
        timeout = START_SECONDS + environment_seconds(self._config) + SAMPLE_TIMEOUT_SECONDS
        self._replay = ReplayClient(self._context, timeout)
        self._parameters = self._context.wait_for_actor("parameter server")
        learner = self._learner = self._prepare()
        first = learner.step
        waits = self._evaluations.is_open(learner.step)  # since before the checkpoint
        self._push(learner, evaluate=learner.evaluation_pending() and not waits)
        self._phase = "warm-up"
        if warm := self._wait_for_batches(1, self._config.initial_collect_steps):
            learner.start()
            self._phase = "training"
            while learner.step < self._config.num_iterations and not self._stop.is_set():
                self._iterate(learner)
        counters = self._replay.state()
        if warm:
            self._save(learner)
            if learner.final_evaluation_pending() and not self._stop.is_set():
                self._evaluate_at_end(learner)
                self._save(learner)
            self._phase = "saving"  # the policy
            learner.close()
        taken = learner.step - first
        return {"inserts": counters.inserts, "samples": counters.samples, "taken": taken}

    def _prepare(self) -> Learner:
        config = self._config
        seed_everything(config.seed)
        strategy = make_strategy(config.strategy, config.batch_size)
        env = self._context.environment(config.seed)  # for its shapes
        agent = create_agent(config, env, strategy)
        run = Run(self._context.run_path, config, self._messages.append)
        learner = Learner(config, run, agent, strategy, layout_of(env), self._replay, "ray")
        if saved := checkpoint.latest(learner.folder):
            learner.restore(saved)
        self._first_step = learner.step
        return learner

    def _wait_for_batches(
        self, count: int, first: int = 0, known: LimiterState | None = None
    ) -> bool:
        """Waits until the limiter allows `count` batches and the table has got `first` transitions.

        TensorFlow would wait for a batch, too, but nothing could interrupt it. A state of the table
        that is `known` from before saves a request.

        Returns:
            False if it was asked to stop before.

        Raises:
            StalledError: no transition arrived within the replay's `sample_timeout`.
        """
        seen, since = -1, time.monotonic()
        while not self._stop.is_set():
            state, known = known or self._replay.state(), None
            if state.inserts >= first and batches_allowed(state, self._config) >= count:
                return True
            if state.inserts != seen:
                seen, since = state.inserts, time.monotonic()
            elif time.monotonic() - since > self._replay.sample_timeout:
                raise StalledError(
                    f"the learner waits for more than the {seen} transitions that the replay table "
                    f"has got, and none arrived for {self._replay.sample_timeout} s"
                )
            time.sleep(0.01)
        return False

    def _iterate(self, learner: Learner) -> None:
        count = learner.count_until_due(PUSH_STEPS - learner.step % PUSH_STEPS)
        if not self._wait_for_batches(count, known=self._table):
            return
        losses, _ = learner.gradient_steps(count)
        self._table = self._replay.state()
        env_steps = self._replay.env_steps(self._table)
        learner.record_steps(count, losses, env_steps, self._collect_return())
        evaluate = learner.evaluation_due()
        if learner.step % PUSH_STEPS == 0 or evaluate:
            self._push(learner, evaluate)
        self._log_evaluations(learner)
        if learner.checkpoint_due():
            self._save(learner)

    def _push(self, learner: Learner, evaluate: bool, final: bool = False) -> None:
        """Sends the newest weights, after the answer to the previous push has arrived."""
        self._collect_return()
        env_steps, weights = self._replay.env_steps(self._table), learner.flat_weights()
        self._pushed = self._parameters.push.remote(learner.step, env_steps, weights)
        if evaluate:
            seconds = learner.seconds()
            self._evaluations.request(learner.step, env_steps, seconds, weights, final)

    def _collect_return(self) -> float:
        """The rollout workers' mean return, from the answer to the last push."""
        return float("nan") if self._pushed is None else ray.get(self._pushed)

    def _evaluate_at_end(self, learner: Learner) -> None:
        self._phase = "evaluation"
        self._push(learner, evaluate=True, final=True)
        while learner.final_evaluation_pending() and not self._stop.is_set():
            self._log_evaluations(learner)
            time.sleep(0.05)

    def add_evaluation(self, key: Key, evaluation: Evaluation) -> None:
        """Takes the evaluator's result; it is logged between two calls of gradient steps."""
        self._evaluations.answer(key, evaluation)

    def _log_evaluations(self, learner: Learner) -> None:
        for request, result in self._evaluations.results():
            learner.log_evaluation(
                request.version, request.env_step, result, request.final, request.seconds
            )
        self._evaluations.repeat()  # of those without an answer

    def _save(self, learner: Learner) -> None:
        before, self._phase = self._phase, "saving"
        learner.save({"env_steps": self._replay.env_steps()})
        self._phase = before

    def stop(self) -> None:
        """Ends `train` after its present call or wait, with a checkpoint."""
        self._stop.set()

    def status(self) -> dict[str, Any]:
        """As `process_status`, with the learner's progress.

        These are phase, gradient step, first step, env step, last return, the number of interim
        evaluations that are waiting, and the messages so far.
        """
        if self._learner is None:  # it will resume its newest checkpoint
            step = first = max(checkpoint.steps(self._context.checkpoints), default=0)
            env_step, last_return = 0, "not yet"
        else:
            step, first = self._learner.step, self._first_step
            env_step, last_return = self._learner.env_step, self._learner.last_return
        steps = {"step": step, "first_step": first, "env_step": env_step}
        shown = {"last_return": last_return, "waiting": self._evaluations.waiting()}
        shown["messages"] = list(self._messages)
        return {**process_status(), "phase": self._phase, **steps, **shown}
