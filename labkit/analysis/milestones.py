"""When a run reached a return: env steps, and minutes of training without its evaluations."""

from collections.abc import Sequence

import numpy as np

from labkit.analysis.compare import TrackedRun
from labkit.parameters import MANY, check_int
from labkit.training.run_directory import RAY_SUMMARY


def first_sustained(
    run: TrackedRun, level: float, in_a_row: int = 2, budget: int | None = None
) -> int | None:
    """Env steps at the first of `in_a_row` consecutive evaluations of at least `level`.

    One evaluation of a few episodes can be lucky; two in a row rarely are. Of several evaluations
    after the same gradient step the first counts.

    Args:
        run: a run with its metrics.
        level: mean return of an evaluation.
        in_a_row: number of consecutive evaluations, 1 or more.
        budget: gradient steps after which evaluations are ignored; None uses all of them.

    Returns:
        Env steps, warm-up included, or None if the run has no such evaluations.

    Raises:
        ParameterError: `in_a_row` is not a whole number of at least 1.
    """
    rows = run.evaluations.groupby("gradient_step", as_index=False).first()
    if budget is not None:
        rows = rows[rows.gradient_step <= budget]
    return sustained(rows.env_step.tolist(), rows.eval_return.tolist(), level, in_a_row)


def sustained(
    env_steps: Sequence[int], returns: Sequence[float], level: float, in_a_row: int = 2
) -> int | None:
    """Like `first_sustained`, for evaluations given by their env steps and their mean returns.

    Raises:
        ParameterError: `in_a_row` is not a whole number of at least 1.
    """
    in_a_row = check_int("in_a_row", in_a_row, 1, MANY, "evaluations")
    for start in range(len(returns) - in_a_row + 1):
        if min(returns[start : start + in_a_row]) >= level:
            return int(env_steps[start])
    return None


def training_seconds(run: TrackedRun, env_step: int) -> float:
    """Seconds of training until `env_step`, without the warm-up and the evaluations before it.

    An evaluation lasts from the row of losses of its gradient step, or the row before, to its own
    row. The result is NaN if the run has no row of losses at `env_step`, and for a run on Ray,
    which trains while it evaluates.
    """
    if (run.path / RAY_SUMMARY).exists():
        return float("nan")
    metrics = run.metrics
    rows = metrics[metrics.env_step <= env_step]
    evaluated = rows.eval_return.notna().to_numpy()
    losses = rows[~evaluated]
    if losses.empty or losses.env_step.iloc[-1] != env_step:
        return float("nan")
    durations = np.diff(rows.wall_seconds.to_numpy(), prepend=0.0)
    return float(durations[~evaluated].sum())
