"""The learner of a distributed run, in a process of its own; `distributed` makes an actor of it."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

from labkit import runtime
from labkit.config import SACConfig
from labkit.distributed.evaluation_queue import EvaluationRequest, EvaluationRequester
from labkit.distributed.parameter_server import status, wait_for_actor
from labkit.distributed.replay_actor import ReplayClient, limits
from labkit.environments.make import make_environment
from labkit.errors import START_SECONDS, StalledError
from labkit.replay.transitions import SAMPLE_TIMEOUT_SECONDS
from labkit.sac.agent import create_agent
from labkit.sac.evaluation import Evaluation
from labkit.strategy import make_strategy
from labkit.training import checkpoint, run_directory
from labkit.training.components import TrainingComponents
from labkit.training.learner import Learner

PUSH_STEPS = 10  # gradient steps after which newer weights go out, at the latest


class LearnerActor:
    """Takes gradient steps as fast as the rate limiter lets it, and pushes weights.

    Args:
        config: the configuration.
        make_env: returns one's own Gym environment; None takes `config.env_name`.
        run_path: the run directory.
        address: of the Reverb server.
        names: what the names of this run's actors begin with.
    """

    def __init__(
        self,
        config: SACConfig,
        make_env: Callable | None,
        run_path: Path,
        address: str,
        names: str,
    ):
        self._config, self._source = config, make_env or config.env_name
        self._run_path, self._address, self._names = run_path, address, names
        self._stop = threading.Event()
        self._examiner = EvaluationRequester(self._send, set())
        self._learner: Learner | None = None
        self._phase, self._last_return, self._began = "getting ready", "not yet", 0
        self._pushed: Any = None

    def train(self) -> dict[str, Any]:
        """Trains until all is done, or `stop`; returns counters of the end.

        Raises:
            RunError: one of `errors`.
        """
        patience = START_SECONDS + int(self._config.environment_timeout)
        self._replay = ReplayClient(self._names, self._address, patience + SAMPLE_TIMEOUT_SECONDS)
        self._parameters = wait_for_actor(self._names, "parameter server")
        learner = self._learner = self._prepare()
        total = self._config.num_iterations
        self._push(test=self._owes_evaluation(learner.step))
        self._phase = "random collection"
        if self._filled():
            learner.start()
            self._phase = "training"
        while self._phase == "training" and learner.step < total and not self._stop.is_set():
            self._iterate(learner)
        counters = self._replay.counters()
        if self._phase == "training":
            learner.save(self._state())
        if learner.step == total and not self._stop.is_set():
            self._evaluate_at_end(learner)
            learner.save(self._state())
        if self._phase != "random collection":
            learner.close()
        return {
            "step": learner.step,
            "inserts": counters.inserts,
            "samples": counters.samples,
            "stopped": self._stop.is_set(),
        }

    def _prepare(self) -> Learner:
        config = self._config
        runtime.seed_everything(config.seed)
        strategy = make_strategy(config.strategy, config.batch_size)
        env = make_environment(self._source, seed=config.seed)  # for its shapes
        agent = create_agent(config, env, strategy)
        parts = TrainingComponents(
            strategy=strategy,
            collect_env=env,
            eval_env=env,
            agent=agent,
            replay=self._replay,  # type: ignore[arg-type]
        )
        learner = Learner(config, run_directory.Run(self._run_path, config), parts, "ray")
        if saved := checkpoint.latest(learner.folder):
            state = learner.restore(saved)
            self._last_return = state["last_return"]
            self._examiner.evaluated = {(step, last) for step, last in state["evaluated"]}
        self._began = learner.step
        return learner

    def _owes_evaluation(self, step: int) -> bool:
        """Whether the evaluation that was last due is missing: of the start, or lost on its way."""
        interval = self._config.eval_interval or self._config.num_iterations
        return step - step % interval not in {done for done, _ in self._examiner.evaluated}

    def _filled(self) -> bool:
        """Waits for the first transitions; False when it was asked to stop before."""
        first = limits(self._config)[1]
        seen, since = -1, time.monotonic()
        while not self._stop.is_set():
            size = self._replay.counters().size
            if size >= first:
                return True
            if size != seen:
                seen, since = size, time.monotonic()
            elif time.monotonic() - since > self._replay.patience:
                raise StalledError(
                    f"the replay table holds {size} of the {first} transitions that training "
                    f"begins with, and none came for {self._replay.patience} s"
                )
            time.sleep(0.1)
        return False

    def _iterate(self, learner: Learner) -> None:
        config = self._config
        count = min(learner.until_due(), PUSH_STEPS - learner.step % PUSH_STEPS)
        losses, _ = learner.gradient_steps(count)
        learner.record_steps(count, losses, self._replay.counters().inserts, self._collect_return())
        test = learner.due(config.eval_interval) and learner.step < config.num_iterations
        if learner.due(PUSH_STEPS) or test:
            self._push(test)
        self._log_evaluations(learner)
        if learner.checkpoint_due():
            learner.save(self._state())

    def _push(self, test: bool, last: bool = False) -> None:
        """Sends the newest weights; the answer to the push before is awaited first."""
        learner = self._learner
        assert learner is not None
        self._collect_return()
        newest = (learner.step, self._replay.counters().inserts, learner.flat_weights())
        self._pushed = self._parameters.push.remote(*newest)
        if test:
            self._examiner.ask(*newest, last)

    def _send(self, one: EvaluationRequest) -> None:
        self._parameters.test.remote(one)

    def _collect_return(self) -> float:
        """The collectors' mean return, as the last push was answered."""
        return float("nan") if self._pushed is None else ray.get(self._pushed)

    def _evaluate_at_end(self, learner: Learner) -> None:
        self._phase = "evaluation"
        if (learner.step, True) not in self._examiner.evaluated:
            self._push(test=True, last=True)
        while (learner.step, True) not in self._examiner.evaluated and not self._stop.is_set():
            self._log_evaluations(learner)
            time.sleep(0.05)

    def add_evaluation(self, key: tuple, env_step: int, evaluation: Evaluation) -> None:
        """Takes what the tester found; it is logged between two calls of gradient steps."""
        self._examiner.answer(key, env_step, evaluation)

    def _log_evaluations(self, learner: Learner) -> None:
        self._examiner.ask_again()
        for version, env_step, evaluation in self._examiner.news():
            learner.recorder.log_evaluation(version, env_step, evaluation)
            self._last_return = f"{evaluation.mean_return:+.2f}"

    def _state(self) -> dict[str, Any]:
        """What a checkpoint of this executor holds beside the learner's."""
        return {
            "env_steps": self._replay.counters().inserts,
            "last_return": self._last_return,
            "evaluated": sorted(self._examiner.evaluated),
        }

    def stop(self) -> None:
        """Ends `train` after its present call, with a checkpoint."""
        self._stop.set()

    def status(self) -> dict[str, Any]:
        """As `actors.status`, with how far training is, since which step, and the inserts seen."""
        if self._learner is None:  # it will begin where its checkpoint is
            step = began = max(checkpoint.steps(self._run_path / "checkpoints"), default=0)
            env_step = 0
        else:
            step, began, env_step = self._learner.step, self._began, self._learner.env_step
        return {
            **status(),
            "phase": self._phase,
            "step": step,
            "began": began,
            "env_step": env_step,
            "last_return": self._last_return,
        }
