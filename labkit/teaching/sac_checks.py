"""Checks of losses that a notebook writes by hand, against those of TF-Agents.

A check compares two functions without arguments: the loss by hand and the loss of the library, on
the same batch with the same noise. It looks at the gradient too, because a loss can have the right
value and a wrong gradient, for example where the gradient does not pass through the sample.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import tensorflow as tf
from tf_agents.agents.sac.sac_agent import SacAgent
from tf_agents.trajectories import policy_step, time_step, trajectory

from labkit.errors import RunError
from labkit.replay.transitions import Layout, Transition, layout_of, pack, split
from labkit.sac.agent import ACTOR_NOISE, CRITIC_NOISE
from labkit.sac.rollout import Collector, random_policy

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

    from labkit.config import SACConfig
    from labkit.sac.agent import SeededSacAgent

TOLERANCE = 1e-5  # of a relative difference: float32 has about seven digits
# Of a gradient. A ReLU unit whose input is almost 0 may be on in one computation and off in
# another, because they round differently. One unit of one row, of 256 each, changes the gradient by
# about 1 / (256 · √256) = 2.4e-4; a missing row would change it by about 1 / 256 = 4e-3.
GRADIENT_TOLERANCE = 1e-3
MAX_ROWS = 256  # of a batch of random actions
Variables = Sequence[tf.Variable]


class LossMismatch(RunError):
    """A loss by hand, or its gradient, is not the one of TF-Agents."""


def networks_of(agent: "SeededSacAgent") -> SimpleNamespace:
    """The networks of an agent under the names of the equations, and log α.

    Returns:
        An object with `actor`, `critics` (a pair), `targets` (a pair) and `log_alpha`.
    """
    return SimpleNamespace(
        actor=agent._actor_network,
        critics=(agent._critic_network_1, agent._critic_network_2),
        targets=(agent._target_critic_network_1, agent._target_critic_network_2),
        log_alpha=agent._log_alpha,
    )


def unpack(rows: tf.Tensor, layout: Layout) -> trajectory.Transition:
    """Turns rows `[batch, width] float32` into the `Transition` that a TF-Agents agent trains on.

    Every row is an ordinary step (`step_type` MID). Only its discount tells whether the episode
    terminated with it: 0 after a termination, not after a truncation.
    """
    observation, action, reward, discount, next_observation = split(rows, layout)
    mid = tf.fill(tf.shape(reward), tf.constant(time_step.StepType.MID, tf.int32))
    return trajectory.Transition(
        time_step.TimeStep(mid, tf.zeros_like(reward), tf.ones_like(reward), observation),
        policy_step.PolicyStep(action=action, state=(), info=()),
        time_step.TimeStep(mid, reward, discount, next_observation),
    )


def estimated_q(
    agent: "SeededSacAgent", observations: np.ndarray, actions: np.ndarray
) -> np.ndarray:
    """The lower estimate of both critics, in units of the scaled return.

    Args:
        agent: whose critics are asked.
        observations: `[n, obs] float32`.
        actions: `[n, act] float32`.

    Returns:
        `[n] float32`.
    """
    inputs = tf.constant(observations), tf.constant(actions)
    critics = (agent._critic_network_1, agent._critic_network_2)
    return np.minimum(*(network(inputs, step_type=())[0].numpy() for network in critics))


def learned_variables(agent: "SeededSacAgent") -> list[tf.Variable]:
    """What the optimizers change: the actor, both critics and log α, always in this order.

    The target critics are left out: they follow the critics, and `agent.initialize()` makes them
    equal to the critics.
    """
    networks = (agent._actor_network, agent._critic_network_1, agent._critic_network_2)
    return [*(v for network in networks for v in network.variables), agent._log_alpha]


def random_rows(env: "PyEnvironment", config: "SACConfig") -> np.ndarray:
    """Transitions of uniformly random actions, as the replay table stores them.

    Returns:
        Rows `[min(batch_size, 256), width] float32`; see `transitions.Layout`.
    """
    rows: list[np.ndarray] = []

    def write(transition: Transition) -> None:
        rows.append(pack(transition))

    policy = random_policy(env.action_spec(), config.seed)
    collector = Collector(env, policy, write, n_step=config.n_step, gamma=config.gamma)
    count = min(config.batch_size, MAX_ROWS)
    while len(rows) < count:
        collector.run(1)
    return np.stack(rows[:count]).reshape(count, layout_of(env).width)


def library_loss(agent: "SeededSacAgent", name: str, *arguments: Any, **options: Any) -> tf.Tensor:
    """A loss of TF-Agents' `SacAgent` on the networks of `agent`, with its seeded noise.

    Args:
        agent: whose networks and noise are used.
        name: 'critic_loss', 'actor_loss' or 'alpha_loss'.
        *arguments: of TF-Agents' method of that name.
        **options: of the same.
    """
    number = CRITIC_NOISE if name == "critic_loss" else ACTOR_NOISE

    class Noisy(SacAgent):
        def _actions_and_log_probs(self, time_steps: Any, training: bool = False) -> Any:
            return agent._sampler(number)(time_steps.observation)

    library: Any = copy.copy(agent)
    library.__class__ = Noisy
    return getattr(library, name)(*arguments, **options)


def gradient(loss: Callable[[], tf.Tensor], variables: Variables) -> tuple[float, np.ndarray]:
    """The value of a loss, and its gradient by `variables` as one vector `[parameters] float32`."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        value = loss()
    parts = tape.gradient(value, variables, unconnected_gradients="zero")
    return float(value), np.concatenate([np.ravel(part) for part in parts])


def relative_difference(found: np.ndarray, expected: np.ndarray) -> float:
    """‖found − expected‖ / ‖expected‖; 0 where both are zero."""
    difference = float(np.linalg.norm(np.subtract(found, expected)))
    return difference / float(np.linalg.norm(expected)) if difference else 0.0


def compare(
    by_hand: Callable[[], tf.Tensor],
    library: Callable[[], tf.Tensor],
    networks: Mapping[str, Variables],
) -> pd.DataFrame:
    """Compares a loss by hand with the library's: the value, and the gradient of each network.

    Args:
        by_hand: returns a scalar.
        library: returns the scalar that it should equal.
        networks: the variables that this loss trains, by name.

    Returns:
        A row for each network: both losses, the norm of the library's gradient, and
        ‖g − g′‖ / ‖g′‖.

    Raises:
        LossMismatch: a loss differs by more than 1e-5 (relative, or absolute below one), or a
            gradient by more than `GRADIENT_TOLERANCE`.
    """
    rows, wrong = {}, []
    for name, variables in networks.items():
        mine, g = gradient(by_hand, variables)
        theirs, expected = gradient(library, variables)
        apart = relative_difference(g, expected)
        rows[name] = (mine, theirs, float(np.linalg.norm(expected)), apart)
        if not abs(mine - theirs) <= TOLERANCE * max(1.0, abs(theirs)):
            wrong.append(f"the loss is {mine:.6g}, TF-Agents has {theirs:.6g}")
        if not apart <= GRADIENT_TOLERANCE:
            wrong.append(f"the gradient of {name} differs by a relative {apart:.1e}")
    if wrong:
        raise LossMismatch("; ".join(dict.fromkeys(wrong)))
    columns = ["loss by hand", "TF-Agents", "‖g‖", "‖g − g′‖ / ‖g‖"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def check_equal(
    name: str, found: np.ndarray, expected: np.ndarray, tolerance: float = TOLERANCE
) -> float:
    """The relative difference of two arrays.

    Raises:
        LossMismatch: it is above `tolerance`.
    """
    apart = relative_difference(np.asarray(found), np.asarray(expected))
    if not apart <= tolerance:
        raise LossMismatch(f"{name} differs from the expected one by a relative {apart:.1e}")
    return apart
