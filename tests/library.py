"""TF-Agents' own `SacAgent`, to compare with: its losses, its experience, its variables."""

import copy
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tf_agents.agents.sac.sac_agent import SacAgent
from tf_agents.trajectories import policy_step, time_step, trajectory

from labkit.replay.transitions import Layout, split
from labkit.sac.agent import ACTOR_NOISE, CRITIC_NOISE

if TYPE_CHECKING:
    from labkit.sac.agent import SeededSacAgent


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


def learned_variables(agent: "SeededSacAgent") -> list[tf.Variable]:
    """What the optimizers change: the actor, both critics and log α, always in this order.

    The target critics are left out: they follow the critics, and `agent.initialize()` makes them
    equal to the critics.
    """
    networks = (agent._actor_network, agent._critic_network_1, agent._critic_network_2)
    return [*(v for network in networks for v in network.variables), agent._log_alpha]


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
