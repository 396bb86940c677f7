"""What a training writes while it runs: metrics, TensorBoard events, the policy."""

import math
import shutil
import time
from collections.abc import Callable

import tensorflow as tf
from tf_agents.policies import greedy_policy, policy_saver

from labkit import runtime
from labkit.errors import storage
from labkit.sac.evaluation import Evaluation
from labkit.training import run_directory

LOSSES = ("critic_loss", "actor_loss", "alpha_loss")
SCALARS = (*LOSSES, "alpha", "collect_return", "eval_return")


class RunLogger:
    """Writes one run's rows, the same numbers as TensorBoard events, and its policy.

    Args:
        run: where everything goes.
        agent: whose greedy policy is saved.
        env_step: gives the number of env steps so far, the random collection included.
        spent: seconds that a resumed run had taken before.
    """

    def __init__(
        self, run: run_directory.Run, agent, env_step: Callable[[], int], spent: float = 0.0
    ):
        self._run, self._env_step = run, env_step
        self._started = time.monotonic() - spent
        self._saver = policy_saver.PolicySaver(greedy_policy.GreedyPolicy(agent.policy))
        # Events are written anew from the metrics that count, so that none is doubled.
        shutil.rmtree(run.path / "events", ignore_errors=True)
        self._events = tf.summary.create_file_writer(str(run.path / "events"))
        for row in run.metrics().itertuples():
            self._write_events(row.gradient_step, {name: getattr(row, name) for name in SCALARS})

    def seconds(self) -> float:
        """Wall seconds of this run so far, those before a resume included."""
        return time.monotonic() - self._started

    def log(self, step: int, losses, alpha: float, collect_return: float) -> None:
        """Writes the losses' means since the last row, α and the recent return as they are now."""
        values = dict(zip(LOSSES, map(float, losses), strict=True))
        values |= {"alpha": alpha, "collect_return": collect_return}
        seconds = round(self.seconds(), 3)
        self._run.log(env_step=self._env_step(), gradient_step=step, wall_seconds=seconds, **values)
        self._write_events(step, values)

    def log_evaluation(self, step: int, env_step: int, evaluation: Evaluation) -> None:
        """Writes an evaluation's row; `step` and `env_step` are those of its weights."""
        self._run.log_evaluation(
            evaluation,
            env_step=env_step,
            gradient_step=step,
            wall_seconds=self.seconds(),
        )
        self._write_events(step, {"eval_return": evaluation.mean_return})

    def _write_events(self, step: int, values: dict[str, float]) -> None:
        with storage(self._run.path / "events"), self._events.as_default():
            for name, value in values.items():
                if not math.isnan(value):
                    tf.summary.scalar(name, value, step=int(step))

    def save_policy(self) -> None:
        """Replaces `policy/` by the newest greedy policy; a half-written one is never seen."""
        partial, final = self._run.path / "policy.partial", self._run.path / "policy"
        with storage(final), runtime.quiet():
            shutil.rmtree(partial, ignore_errors=True)
            self._saver.save(str(partial))
            shutil.rmtree(final, ignore_errors=True)
            partial.rename(final)

    def close(self) -> None:
        """Writes out what TensorBoard has not got yet."""
        with storage(self._run.path / "events"):
            self._events.close()
