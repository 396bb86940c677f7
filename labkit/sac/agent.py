"""The SAC agent: TF-Agents' own, with seeded noise, on labkit's networks."""

import threading

import numpy as np
import tensorflow as tf
from tf_agents.agents.sac import sac_agent
from tf_agents.train.utils import spec_utils, train_utils

from labkit.config import SACConfig
from labkit.parameters import invalid
from labkit.sac.networks import ScaledActorNetwork, ScaledCriticNetwork
from labkit.strategy import replica_slice


class _Draw(threading.local):
    """Which of a step's draws comes next, for each thread apart.

    A mirrored step is traced in one thread for each replica; they hand over to one another
    wherever they meet, and one number for all could change under a replica's feet.
    """

    number = 0


class SeededSacAgent(sac_agent.SacAgent):
    """`SacAgent` whose noise is a function of the seed and the gradient step alone.

    TF-Agents samples actions inside its losses from a stateful, unseeded generator. Here the
    noise of gradient step k is drawn by a counter-based generator (Salmon et al. 2011, as
    `tf.random.stateless_normal`) from (seed, k), so that a run repeats, resumes, and gives N
    replicas the slices of what one device would draw for the whole batch.
    """

    def __init__(self, *args, seed: int = 0, **kwargs):
        super().__init__(*args, **kwargs)
        self._seed = seed
        self._draw = _Draw()

    # Each update samples actions three times; numbering them keeps their noise apart.
    def critic_loss(self, *args, **kwargs):
        """Haarnoja et al. 2018b, equation 5, with two critics; noise 0."""
        self._draw.number = 0
        return super().critic_loss(*args, **kwargs)

    def actor_loss(self, *args, **kwargs):
        """Haarnoja et al. 2018b, equation 9; noise 1."""
        self._draw.number = 1
        return super().actor_loss(*args, **kwargs)

    def alpha_loss(self, *args, **kwargs):
        """Haarnoja et al. 2018b, equation 18, with log α in place of α; noise 2."""
        self._draw.number = 2
        return super().alpha_loss(*args, **kwargs)

    def _actions_and_log_probs(self, time_steps, training=False):
        squashed = self._train_policy.distribution(time_steps, policy_state=()).action
        normal = squashed.input_distribution
        mean, deviation = normal.loc, normal.stddev()  # [batch, act]
        noise = self._noise(tf.shape(mean))
        raw_action = mean + deviation * noise
        # log π(a|s) = log N(u; μ, σ) − Σ log(1 − tanh² u), equation 26, in a stable form.
        log_normal = -0.5 * tf.square(noise) - tf.math.log(deviation) - 0.5 * np.log(2 * np.pi)
        log_slope = 2.0 * (np.log(2.0) - raw_action - tf.nn.softplus(-2.0 * raw_action))
        half_range = (self.action_spec.maximum - self.action_spec.minimum) / 2.0
        middle = (self.action_spec.maximum + self.action_spec.minimum) / 2.0
        log_pi = tf.reduce_sum(log_normal - log_slope - np.log(half_range), axis=-1)
        return middle + half_range * tf.tanh(raw_action), log_pi

    def _apply_gradients(self, gradients, variables, optimizer):
        # TF-Agents lists the critics' variables as a set has them, by address in memory: every
        # process has its own order, and several hosts would add unlike gradients to one another.
        order = {id(variable): place for place, variable in enumerate(self.trainable_variables)}
        pairs = sorted(zip(gradients, variables, strict=True), key=lambda pair: order[id(pair[1])])
        super()._apply_gradients(*zip(*pairs, strict=True), optimizer)

    def _noise(self, shape):
        """Standard normal `[batch, act] float32`: this replica's rows of the global batch's."""
        replicas = tf.distribute.get_replica_context().num_replicas_in_sync
        counter = tf.cast(self.train_step_counter, tf.int64) * 3 + self._draw.number
        seed = tf.stack([tf.constant(self._seed, tf.int64), counter])
        # Each replica draws all rows and keeps its own: a few thousand numbers cost less than
        # one exchange between devices.
        return replica_slice(
            tf.random.stateless_normal([shape[0] * replicas, shape[1]], seed), replicas
        )


def create_agent(config: SACConfig, env, strategy) -> SeededSacAgent:
    """Builds networks, optimizers and agent under the strategy's scope and initialises them.

    Notebook 03 builds the same by hand, one cell a part.
    """
    observation_spec, action_spec, time_step_spec = spec_utils.get_tensor_specs(env)
    check_scale(config, observation_spec.shape[0])
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


def check_scale(config: SACConfig, observation_size: int) -> None:
    """Refuses an observation scale of the wrong length.

    Raises:
        ParameterError: names both lengths.
    """
    if len(config.observation_scale) not in (0, observation_size):
        raise invalid(
            "observation_scale",
            config.observation_scale,
            f"{observation_size} numbers for {config.env_name}, or none",
        )


def hyperparameters(config: SACConfig) -> dict:
    """The keyword arguments of `SacAgent` that come from the configuration."""
    adam = tf.keras.optimizers.Adam
    return {
        "actor_optimizer": adam(learning_rate=config.actor_learning_rate),
        "critic_optimizer": adam(learning_rate=config.critic_learning_rate),
        "alpha_optimizer": adam(learning_rate=config.alpha_learning_rate),
        "target_update_tau": config.target_update_tau,
        "target_update_period": config.target_update_period,
        "td_errors_loss_fn": tf.math.squared_difference,
        "gamma": config.gamma,
        "reward_scale_factor": config.reward_scale_factor,
        "initial_log_alpha": config.initial_log_alpha,
        "target_entropy": config.target_entropy,
    }


def state_variables(agent: SeededSacAgent) -> list[tf.Variable]:
    """Everything a gradient step changes: networks, targets, α, Adam's moments, the counter.

    In the same order in every process: TF-Agents hands its critics' variables to the optimizer
    as a set, so that the optimizer's own list is in no order at all. The moments exist once the
    update is compiled.
    """
    critics = (agent._critic_network_1, agent._critic_network_2)
    trained = [
        (agent._critic_optimizer, [v for net in critics for v in net.trainable_variables]),
        (agent._actor_optimizer, agent._actor_network.trainable_variables),
        (agent._alpha_optimizer, [agent._log_alpha]),
    ]
    moments = [
        optimizer.get_slot(variable, slot)
        for optimizer, variables in trained
        for variable in variables
        for slot in optimizer.get_slot_names()
    ]
    return [*agent.variables, *(optimizer.iterations for optimizer, _ in trained), *moments]
