"""Packed transitions: one float32 row each, the form in which both replay tables hold them.

A transition is `[obs_tm1 | a_tm1 | r_t | discount_t | obs_t]`. Such a row never spans two episodes,
so that no loss has to mask what a two-step window would mix (TF-Agents' SAC masks nothing).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tf_agents.trajectories import policy_step, time_step, trajectory

from labkit.replay.n_step import NStepWriter

SAMPLE_TIMEOUT_SECONDS = 120


class Layout(NamedTuple):
    """Where each part of a transition stands in a row.

    Args:
        observation: number of values in one observation.
        action: number of values in one action.
    """

    observation: int
    action: int

    @property
    def width(self) -> int:
        """Values in one row: 66 for the Minitaur (28 + 8 + 1 + 1 + 28)."""
        return 2 * self.observation + self.action + 2

    @property
    def sizes(self) -> list[int]:
        """Values of obs_tm1, a_tm1, r_t, discount_t and obs_t, in this order."""
        return [self.observation, self.action, 1, 1, self.observation]


def layout_of(env) -> Layout:
    """The row layout for an environment's observations and actions."""
    return Layout(env.observation_spec().shape[0], env.action_spec().shape[0])


def pack(obs_tm1, a_tm1, r_t, discount_t, obs_t) -> np.ndarray:
    """One transition as a row `[width] float32`."""
    return np.concatenate([obs_tm1, a_tm1, [r_t, discount_t], obs_t], dtype=np.float32)


def unpack(rows: tf.Tensor, layout: Layout) -> trajectory.Transition:
    """Turns rows `[batch, width] float32` into the `Transition` that a TF-Agents agent trains on.

    Every row is an ordinary step (`step_type` MID); whether the episode ended with it is told by
    its discount alone: 0 after a fall, 1 otherwise, the end of time included.
    """
    obs_tm1, a_tm1, r_t, discount_t, obs_t = tf.split(rows, layout.sizes, axis=1)
    r_t, discount_t = r_t[:, 0], discount_t[:, 0]
    mid = tf.fill(tf.shape(r_t), tf.constant(time_step.StepType.MID, tf.int32))
    return trajectory.Transition(
        time_step.TimeStep(mid, tf.zeros_like(r_t), tf.ones_like(r_t), obs_tm1),
        policy_step.PolicyStep(action=a_tm1, state=(), info=()),
        time_step.TimeStep(mid, r_t, discount_t, obs_t),
    )


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset without tf.data's autotuning, which can be let go of at once.

    The tuning thread sleeps up to a minute between two looks, and whoever lets go of an iterator
    waits for it: some later cell, where Python happens to collect garbage, would stand still.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


class TransitionObserver:
    """An observer for TF-Agents drivers that makes transitions of neighbouring steps.

    A driver tells of step t without the observation that followed; that one arrives with the
    next call, the boundary between two episodes included, from which no transition starts. Nor
    does one start from a step that a new episode follows unannounced, because another driver
    took the environment over.

    Args:
        write: takes `(obs_tm1, a_tm1, r_t, discount_t, obs_t)`.
        n_step, gamma: each transition spans that many env steps, see `NStepWriter`.
    """

    def __init__(self, write: Callable[..., Any], n_step: int = 1, gamma: float = 1.0):
        self._rows = NStepWriter(write, n_step, gamma)
        self._previous: trajectory.Trajectory | None = None

    def __call__(self, step: trajectory.Trajectory) -> None:
        """Takes a driver's unbatched trajectories one by one."""
        last, self._previous = self._previous, step
        if last is None:
            return
        if last.is_boundary() or step.is_first():
            self._rows.end()
        else:
            self._rows.write(
                last.observation, last.action, last.reward, last.discount, step.observation
            )

    def end(self) -> None:
        """Writes what waits for the rest of its window; no step may follow."""
        self._rows.end()
