"""The agent: TF-Agents' `SacAgent`, with a gradient step that is written out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.agents.sac import sac_agent
from tf_agents.agents.tf_agent import LossInfo
from tf_agents.environments.py_environment import PyEnvironment
from tf_agents.train.utils import spec_utils, train_utils

from labkit.config import SACConfig
from labkit.parameters import invalid
from labkit.replay.transitions import Transition
from labkit.sac import losses
from labkit.sac.networks import ScaledActorNetwork, ScaledCriticNetwork
from labkit.strategy import replica_slice

CRITIC_NOISE, ACTOR_NOISE = 0, 1  # the draws of a gradient step
Trained = tuple[tf.keras.optimizers.Optimizer, list[tf.Variable]]  # and what it changes


class SeededSacAgent(sac_agent.SacAgent):
    """`SacAgent` with the losses of `losses`, and noise that depends on seed and step only.

    TF-Agents' losses draw from a stateful, unseeded generator. Here the noise of gradient step k
    comes from a counter-based one (Salmon et al. 2011, as `tf.random.stateless_normal`) keyed by
    (seed, k). So a run can be repeated and resumed, and N replicas use the slices of what one
    device would draw for the whole batch.

    Actor and temperature take one gradient step for every `actor_update_period` of the critics
    (Fujimoto et al. 2018, section 5.2), and share one action of the actor in each state.
    """

    def __init__(self, *args: Any, seed: int = 0, actor_update_period: int = 1, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._seed, self.actor_update_period = seed, actor_update_period

    def gradient_step(
        self,
        batch: Transition,
        train_actor: bool = True,
        critic_loss: Callable[[list[tf.Tensor]], tf.Tensor] = losses.critic_loss,
    ) -> dict[str, tf.Tensor]:
        """Critics, then actor and temperature, then the target critics.

        Args:
            batch: this replica's rows of the global batch, as tensors `[rows, …] float32`.
            train_actor: False leaves out actor and temperature; their values are NaN.
            critic_loss: makes a scalar of both critics' TD errors, each `[rows] float32`.

        Returns this replica's part of each scalar: losses before the step, the entropy −E[log π].
        """
        critics = [_critic(self._critic_network_1), _critic(self._critic_network_2)]
        targets = [_critic(self._target_critic_network_1), _critic(self._target_critic_network_2)]
        critic, actor, temperature = trained_by(self)
        alpha, gamma, scale = tf.exp(self._log_alpha), self._gamma, self._reward_scale_factor
        sample = self._sampler(CRITIC_NOISE)
        y = losses.critic_target(batch, targets, sample, alpha, gamma, scale)
        with tf.GradientTape() as tape:
            loss = critic_loss(losses.td_errors(batch, critics, y))
        found = {"critic_loss": _descend("critic loss", loss, tape, critic)}
        if train_actor:
            sample = self._sampler(ACTOR_NOISE)
            with tf.GradientTape() as tape:
                loss, log_pi = losses.actor_loss(batch.observation, critics, sample, alpha)
            found["actor_loss"] = _descend("actor loss", loss, tape, actor)
            with tf.GradientTape() as tape:
                loss = losses.alpha_loss(self._log_alpha, log_pi, self._target_entropy)
            found["alpha_loss"] = _descend("alpha loss", loss, tape, temperature)
            found["entropy"] = -losses.global_mean(log_pi)
        else:
            found |= dict.fromkeys(("actor_loss", "alpha_loss", "entropy"), tf.constant(np.nan))
        self.train_step_counter.assign_add(1)
        self._update_target()  # Polyak average: Q̄ ← τ Q + (1 − τ) Q̄
        return found

    def _train(self, experience: Any, weights: Any) -> LossInfo:
        """A gradient step on TF-Agents' own experience, for its `Learner`."""
        before, step, after = self._as_transition(experience)
        fields = (before.observation, step.action, after.reward, after.discount, after.observation)
        found = self.gradient_step(Transition(*fields))
        parts = [found[f"{name}_loss"] for name in ("critic", "actor", "alpha")]
        return LossInfo(tf.add_n(parts), sac_agent.SacLossInfo(*parts))

    def _sampler(self, number: int) -> losses.Sample:
        def sample(observation: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            squashed, _ = self._actor_network(observation, step_type=(), network_state=())
            normal, spec = squashed.input_distribution, self.action_spec
            noise = self.noise(number, tf.shape(observation)[0] * losses.replicas())
            mean, stddev, low, high = normal.loc, normal.stddev(), spec.minimum, spec.maximum
            return losses.sample_action(mean, stddev, noise, low, high)

        return sample

    def noise(self, number: int, rows: int | tf.Tensor) -> tf.Tensor:
        """Standard normal `[rows, act] float32` of the present gradient step for a global batch.

        In a replica, its rows `[rows / replicas, act]`. `number`: `CRITIC_NOISE` or `ACTOR_NOISE`.
        """
        counter = tf.cast(self.train_step_counter, tf.int64) * 2 + number
        seed = tf.stack([tf.constant(self._seed, tf.int64), counter])
        # Each replica draws all rows and keeps its own: that is faster than an exchange.
        drawn = tf.random.stateless_normal([rows, self.action_spec.shape[0]], seed)
        return replica_slice(drawn, losses.replicas())


def _critic(network: Any) -> losses.Critic:
    return lambda observation, action: network((observation, action), step_type=())[0]


def _descend(name: str, loss: tf.Tensor, tape: tf.GradientTape, trained: Trained) -> tf.Tensor:
    """One step of an optimizer down the gradient of a loss, which is returned if it is finite."""
    optimizer, variables = trained
    gradients = tape.gradient(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))  # sums over the replicas
    return tf.debugging.check_numerics(loss, name)


def create_agent(
    config: SACConfig, env: PyEnvironment, strategy: tf.distribute.Strategy
) -> SeededSacAgent:
    """Builds networks, optimizers and agent; rejects an observation scale of a wrong length."""
    observation_spec, action_spec, time_step_spec = spec_utils.get_tensor_specs(env)
    (size,) = observation_spec.shape
    if len(config.observation_scale) not in (0, size):
        allowed = f"{size} numbers for {config.env_name}, or empty"
        raise invalid("observation_scale", config.observation_scale, allowed)
    with strategy.scope():
        critic = ScaledCriticNetwork(
            (observation_spec, action_spec),
            observation_scale=config.observation_scale,
            joint_fc_layer_params=config.critic_joint_fc_layer_params,
            layer_norm=config.critic_layer_norm,
            kernel_initializer="glorot_uniform",
            last_kernel_initializer="glorot_uniform",
        )
        actor = ScaledActorNetwork(
            observation_spec,
            action_spec,
            observation_scale=config.observation_scale,
            fc_layer_params=config.actor_fc_layer_params,
        )
        agent = SeededSacAgent(
            time_step_spec,
            action_spec,
            actor_network=actor,
            critic_network=critic,
            actor_optimizer=_adam(config.actor_learning_rate, config),
            critic_optimizer=_adam(config.critic_learning_rate, config),
            alpha_optimizer=_adam(config.alpha_learning_rate, config),
            actor_update_period=config.actor_update_period,
            target_update_tau=config.target_update_tau,
            target_update_period=config.target_update_period,
            gamma=config.gamma,
            reward_scale_factor=config.reward_scale_factor,
            initial_log_alpha=config.initial_log_alpha,
            target_entropy=config.target_entropy,
            seed=config.seed,
            train_step_counter=train_utils.create_train_step(),
        )
        agent.initialize()
    return agent


def _adam(rate: float, config: SACConfig) -> tf.keras.optimizers.Optimizer:
    """Adam with the learning rate `rate / (1 + t / learning_rate_decay_steps)` in its step t."""
    if steps := config.learning_rate_decay_steps:
        # Unlike a linear decay it needs no last step, so a run may be continued.
        rate = tf.keras.optimizers.schedules.InverseTimeDecay(rate, steps, decay_rate=1.0)
    return tf.keras.optimizers.Adam(rate)


def trained_by(agent: SeededSacAgent) -> list[Trained]:
    """The optimizers of critics, actor and temperature, and what each of them changes."""
    one, two = agent._critic_network_1, agent._critic_network_2
    return [
        (agent._critic_optimizer, [*one.trainable_variables, *two.trainable_variables]),
        (agent._actor_optimizer, list(agent._actor_network.trainable_variables)),
        (agent._alpha_optimizer, [agent._log_alpha]),
    ]


def state_variables(agent: SeededSacAgent) -> list[tf.Variable]:
    """Everything that a gradient step changes: networks, targets, α, Adam's moments, the counter.

    The order is the same in every process. The moments exist once `make_update` was called.
    """
    optimizers = [optimizer for optimizer, _ in trained_by(agent)]
    return [*agent.variables, *(v for optimizer in optimizers for v in optimizer.variables())]
