"""The SAC agent of TF-Agents with seeded noise, on the networks of `networks`."""

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tf_agents.agents.sac import sac_agent
from tf_agents.environments.py_environment import PyEnvironment
from tf_agents.train.utils import spec_utils, train_utils
from tf_agents.trajectories.time_step import TimeStep

from labkit.config import SACConfig
from labkit.sac.networks import ScaledActorNetwork, ScaledCriticNetwork
from labkit.strategy import replica_slice

if TYPE_CHECKING:
    from tf_agents.trajectories import trajectory


class _Draw(threading.local):
    """The number of a step's next draw, separate for each thread.

    A mirrored step is traced in one thread per replica, and the threads switch at each exchange: a
    shared number could change in between.
    """

    number = 0


class SeededSacAgent(sac_agent.SacAgent):
    """`SacAgent` whose noise depends on the seed and the gradient step only.

    TF-Agents samples actions inside its losses from a stateful, unseeded generator. Here the
    noise of gradient step k comes from a counter-based generator (Salmon et al. 2011, as
    `tf.random.stateless_normal`) keyed by (seed, k). So a run can be repeated and resumed, and N
    replicas use the slices of what one device would draw for the whole batch.

    Actor and temperature take one gradient step for every `actor_update_period` of the critics
    (Fujimoto et al. 2018, section 5.2); see `update.make_update`, which calls `train` for such a
    step and `train_critics` for the others.
    """

    def __init__(
        self,
        *args: Any,
        seed: int = 0,
        actor_update_period: int = 1,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self._seed = seed
        self.actor_update_period = actor_update_period
        self._draw = _Draw()

    def train_critics(self, experience: "trajectory.Transition") -> tf.Tensor:
        """The critics' part of `train`: a gradient step of the critics, then the target update.

        Returns the critic loss, a scalar. TF-Agents has no such method.
        """
        before, step, after = self._as_transition(experience)
        critics = (self._critic_network_1, self._critic_network_2)
        variables = [v for network in critics for v in network.trainable_variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = self._critic_loss_weight * self.critic_loss(
                before,
                step.action,
                after,
                td_errors_loss_fn=self._td_errors_loss_fn,
                gamma=self._gamma,
                reward_scale_factor=self._reward_scale_factor,
                training=True,
            )
        tf.debugging.check_numerics(loss, "Critic loss is inf or nan.")
        self._apply_gradients(tape.gradient(loss, variables), variables, self._critic_optimizer)
        self.train_step_counter.assign_add(1)
        self._update_target()
        return loss

    # Each update samples actions three times; their numbers give each its own noise.
    def critic_loss(self, *args: Any, **kwargs: Any) -> tf.Tensor:
        """Haarnoja et al. 2018b, equation 5, with two critics; noise 0."""
        self._draw.number = 0
        return super().critic_loss(*args, **kwargs)

    def estimated_q(self, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """The lower estimate of both critics, in units of the scaled return.

        Args:
            observations: `[n, obs] float32`.
            actions: `[n, act] float32`.

        Returns:
            `[n] float32`.
        """
        inputs = (tf.constant(observations), tf.constant(actions))
        critics = (self._critic_network_1, self._critic_network_2)
        return np.minimum(*(critic(inputs, step_type=())[0].numpy() for critic in critics))

    def actor_loss(self, *args: Any, **kwargs: Any) -> tf.Tensor:
        """Haarnoja et al. 2018b, equation 9; noise 1."""
        self._draw.number = 1
        return super().actor_loss(*args, **kwargs)

    def alpha_loss(self, *args: Any, **kwargs: Any) -> tf.Tensor:
        """Haarnoja et al. 2018b, equation 18, with log α in place of α; noise 2."""
        self._draw.number = 2
        return super().alpha_loss(*args, **kwargs)

    def _actions_and_log_probs(
        self, time_steps: TimeStep, training: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        squashed = self._train_policy.distribution(time_steps, policy_state=()).action
        normal = squashed.input_distribution
        mean, stddev = normal.loc, normal.stddev()  # [batch, act]
        noise = self._noise(tf.shape(mean))
        raw_action = mean + stddev * noise
        # log π(a|s) = log N(u; μ, σ) − Σ log(1 − tanh² u), equation 26, in a stable form.
        log_normal = -0.5 * tf.square(noise) - tf.math.log(stddev) - 0.5 * np.log(2 * np.pi)
        log_slope = 2.0 * (np.log(2.0) - raw_action - tf.nn.softplus(-2.0 * raw_action))
        half_range = (self.action_spec.maximum - self.action_spec.minimum) / 2.0
        middle = (self.action_spec.maximum + self.action_spec.minimum) / 2.0
        log_pi = tf.reduce_sum(log_normal - log_slope - np.log(half_range), axis=-1)
        return middle + half_range * tf.tanh(raw_action), log_pi

    def noise(self, loss: int, rows: int) -> tf.Tensor:
        """The noise of the present gradient step, for a copy of a loss written by hand.

        Args:
            loss: 0 of the critics, 1 of the actor, 2 of the temperature.
            rows: the global batch.

        Returns:
            Standard normal `[rows, act] float32`; in a replica, its rows `[rows / replicas, act]`.
        """
        self._draw.number = loss
        replicas = tf.distribute.get_replica_context().num_replicas_in_sync
        return self._noise(tf.constant([rows // replicas, self.action_spec.shape[0]]))

    def _apply_gradients(
        self,
        gradients: list[tf.Tensor],
        variables: list[tf.Variable],
        optimizer: tf.keras.optimizers.Optimizer,
    ) -> None:
        # TF-Agents lists the critics' variables in the order of a set, by address in memory, which
        # differs between processes: Adam's moments would be created in another order.
        order = {id(variable): place for place, variable in enumerate(self.trainable_variables)}
        pairs = sorted(zip(gradients, variables, strict=True), key=lambda pair: order[id(pair[1])])
        super()._apply_gradients(*zip(*pairs, strict=True), optimizer)

    def _noise(self, shape: tf.Tensor) -> tf.Tensor:
        """Standard normal `[batch, act] float32`: this replica's rows of the global batch."""
        replicas = tf.distribute.get_replica_context().num_replicas_in_sync
        counter = tf.cast(self.train_step_counter, tf.int64) * 3 + self._draw.number
        seed = tf.stack([tf.constant(self._seed, tf.int64), counter])
        # Each replica draws all rows and keeps its own: a few thousand numbers take less time
        # than one exchange between devices.
        noise = tf.random.stateless_normal([shape[0] * replicas, shape[1]], seed)
        return replica_slice(noise, replicas)


def create_agent(
    config: SACConfig, env: PyEnvironment, strategy: tf.distribute.Strategy
) -> SeededSacAgent:
    """Builds networks, optimizers and agent under the strategy's scope and initialises them.

    Notebook 03 builds the same agent step by step.

    Raises:
        ParameterError: the observation scale has a wrong length.
    """
    observation_spec, action_spec, time_step_spec = spec_utils.get_tensor_specs(env)
    config.check_scale(observation_spec.shape[0])
    with strategy.scope():
        critic_net = ScaledCriticNetwork(
            (observation_spec, action_spec),
            observation_scale=config.observation_scale,
            joint_fc_layer_params=config.critic_joint_fc_layer_params,
            layer_norm=config.critic_layer_norm,
            kernel_initializer="glorot_uniform",
            last_kernel_initializer="glorot_uniform",
        )
        actor_net = ScaledActorNetwork(
            observation_spec,
            action_spec,
            observation_scale=config.observation_scale,
            fc_layer_params=config.actor_fc_layer_params,
        )
        agent = SeededSacAgent(
            time_step_spec,
            action_spec,
            actor_network=actor_net,
            critic_network=critic_net,
            seed=config.seed,
            train_step_counter=train_utils.create_train_step(),
            **hyperparameters(config),
        )
        agent.initialize()
    return agent


def hyperparameters(config: SACConfig) -> dict[str, Any]:
    """The keyword arguments of `SeededSacAgent` that come from the configuration."""
    return {
        "actor_optimizer": _adam(config.actor_learning_rate, config),
        "critic_optimizer": _adam(config.critic_learning_rate, config),
        "alpha_optimizer": _adam(config.alpha_learning_rate, config),
        "actor_update_period": config.actor_update_period,
        "target_update_tau": config.target_update_tau,
        "target_update_period": config.target_update_period,
        "td_errors_loss_fn": tf.math.squared_difference,
        "gamma": config.gamma,
        "reward_scale_factor": config.reward_scale_factor,
        "initial_log_alpha": config.initial_log_alpha,
        "target_entropy": config.target_entropy,
    }


def _adam(rate: float, config: SACConfig) -> tf.keras.optimizers.Optimizer:
    """Adam with the learning rate `rate / (1 + t / learning_rate_decay_steps)` in its step t.

    Unlike a linear decay it needs no last step, so a run may be continued.
    """
    if steps := config.learning_rate_decay_steps:
        decay = tf.keras.optimizers.schedules.InverseTimeDecay
        return tf.keras.optimizers.Adam(decay(rate, steps, decay_rate=1.0))
    return tf.keras.optimizers.Adam(rate)


def learned_variables(agent: SeededSacAgent) -> list[tf.Variable]:
    """What the optimizers change: the actor, both critics and log α, always in this order.

    The target critics are left out: they follow the critics, and `agent.initialize()` makes them
    equal to the critics.
    """
    networks = (agent._actor_network, agent._critic_network_1, agent._critic_network_2)
    return [*(v for network in networks for v in network.variables), agent._log_alpha]


def trained_by(
    agent: SeededSacAgent,
) -> list[tuple[tf.keras.optimizers.Optimizer, list[tf.Variable]]]:
    """The optimizers of critics, actor and temperature, and what each of them changes."""
    critics = (agent._critic_network_1, agent._critic_network_2)
    return [
        (agent._critic_optimizer, [v for net in critics for v in net.trainable_variables]),
        (agent._actor_optimizer, list(agent._actor_network.trainable_variables)),
        (agent._alpha_optimizer, [agent._log_alpha]),
    ]


def create_moments(agent: SeededSacAgent, strategy: tf.distribute.Strategy) -> None:
    """Creates Adam's moments, unless they exist.

    The first gradient step would create them otherwise, and TensorFlow compiles a function anew if
    it created variables.
    """
    with strategy.scope():
        for optimizer, variables in trained_by(agent):
            optimizer._create_all_weights(variables)  # no public method creates them


def state_variables(agent: SeededSacAgent) -> list[tf.Variable]:
    """Everything that a gradient step changes: networks, targets, α, Adam's moments, the counter.

    The order is the same in every process; that of the optimizers' own lists is not, because
    TF-Agents passes its critics' variables as a set. The moments exist once `make_update` was
    called.
    """
    trained = trained_by(agent)
    moments = [
        optimizer.get_slot(variable, slot)
        for optimizer, variables in trained
        for variable in variables
        for slot in optimizer.get_slot_names()
    ]
    return [*agent.variables, *(optimizer.iterations for optimizer, _ in trained), *moments]
