"""TD3 (Fujimoto et al. 2018, arXiv 1802.09477) from labkit's parts: `python examples/td3.py`.

The environment, collection, replay, run directory and evaluation are those of SAC. What is here is
the algorithm: a deterministic actor, whose target is smoothed with clipped noise (equation 14),
two critics, of which the target takes the lower (equation 10), and a delayed actor (section 5.2).
"""

import copy
import time

import labkit  # before TensorFlow: it sets what that reads

# isort: split
import numpy as np
import tensorflow as tf

from labkit.replay.reverb_replay import ReverbReplay
from labkit.replay.transitions import Layout, layout_of, split
from labkit.runtime import seed_everything
from labkit.sac.rollout import Collector, random_policy

EXPLORATION, SMOOTHING, CLIP = 0.1, 0.2, 0.5  # standard deviations and bound, of half the range
ACTOR_PERIOD = 2  # gradient steps of the critics for each of the actor


def mlp(inputs: int, outputs: int, last: str | None = None) -> tf.keras.Model:
    """Two hidden layers of 256 units."""
    hidden = [tf.keras.layers.Dense(256, "relu") for _ in range(2)]
    layers = [tf.keras.Input([inputs]), *hidden, tf.keras.layers.Dense(outputs, last)]
    return tf.keras.Sequential(layers)


class TD3:
    """Networks, their targets, optimizers, and one gradient step."""

    def __init__(self, layout: Layout, low: np.ndarray, high: np.ndarray, config: labkit.SACConfig):
        self.layout, self.config = layout, config
        self.middle, self.half_range = (high + low) / 2, (high - low) / 2
        self.actor = mlp(layout.observation, layout.action, "tanh")
        self.critics = [mlp(layout.observation + layout.action, 1) for _ in range(2)]
        self.networks = [self.actor, *self.critics]
        self.targets = [tf.keras.models.clone_model(network) for network in self.networks]
        for network, target in zip(self.networks, self.targets, strict=True):
            target.set_weights(network.get_weights())
        self.critic_optimizer = tf.keras.optimizers.Adam(1e-3)
        self.actor_optimizer = tf.keras.optimizers.Adam(1e-3)
        # Now, because a compiled function may create variables only when it is first called.
        critic_variables = [v for q in self.critics for v in q.trainable_variables]
        self.critic_optimizer.build(critic_variables)
        self.actor_optimizer.build(self.actor.trainable_variables)
        self.noise = np.random.default_rng(config.seed)

    @tf.function(autograph=False)
    def update(self, rows: tf.Tensor, train_actor: bool) -> dict[str, tf.Tensor]:
        """One gradient step on rows `[batch, width] float32`; returns the losses."""
        s, a, r, d, s_next = split(rows, self.layout)
        a = (a - self.middle) / self.half_range  # the networks' actions are within ±1
        noise = tf.clip_by_value(SMOOTHING * tf.random.normal(tf.shape(a)), -CLIP, CLIP)
        a_next = tf.clip_by_value(self.targets[0](s_next) + noise, -1.0, 1.0)  # [batch, act]
        q_next = tf.minimum(*(q(tf.concat([s_next, a_next], 1))[:, 0] for q in self.targets[1:]))
        y = r + self.config.gamma * d * q_next  # [batch]
        with tf.GradientTape() as tape:
            inputs = tf.concat([s, a], 1)
            errors = [q(inputs)[:, 0] - y for q in self.critics]
            losses = {"critic_loss": tf.reduce_mean(tf.add_n([tf.square(e) for e in errors]))}
        variables = [v for q in self.critics for v in q.trainable_variables]
        gradients = tape.gradient(losses["critic_loss"], variables)
        self.critic_optimizer.apply_gradients(zip(gradients, variables, strict=True))
        if train_actor:
            with tf.GradientTape() as tape:
                value = self.critics[0](tf.concat([s, self.actor(s)], 1))
                losses["actor_loss"] = -tf.reduce_mean(value)
            gradients = tape.gradient(losses["actor_loss"], self.actor.trainable_variables)
            pairs = zip(gradients, self.actor.trainable_variables, strict=True)
            self.actor_optimizer.apply_gradients(pairs)
            for network, target in zip(self.networks, self.targets, strict=True):
                for source, slow in zip(network.variables, target.variables, strict=True):
                    slow.assign_add(self.config.target_update_tau * (source - slow))
        return losses

    def __call__(self, observation: np.ndarray, explore: bool = False) -> np.ndarray:
        """The action `[act] float32` for an observation `[obs]`."""
        action = self.actor(observation[None])[0].numpy()
        if explore:
            action += EXPLORATION * self.noise.standard_normal(action.shape)
        return (self.middle + self.half_range * np.clip(action, -1, 1)).astype(np.float32)


def train(config: labkit.SACConfig, run_dir: str = "") -> labkit.Run:
    """Trains TD3 and leaves metrics and evaluations in a run directory.

    Only the fields of `config` that do not belong to SAC are used.
    """
    run = labkit.open_run(run_dir, config)
    seed_everything(config.seed)
    env = labkit.make_environment(config.env_name, seed=config.seed)
    eval_env = labkit.make_environment(config.env_name, seed=config.seed + 1)
    layout, spec = layout_of(env), env.action_spec()
    low, high = (np.broadcast_to(bound, spec.shape) for bound in (spec.minimum, spec.maximum))
    td3, replay = TD3(layout, low, high, config), ReverbReplay(layout, 100_000)
    collector = Collector(env, random_policy(spec, config.seed), replay.write)
    collector.run(config.initial_collect_steps)
    collector.policy = lambda observation: td3(observation, explore=True)
    batches, begin = iter(replay.dataset(config.batch_size)), time.monotonic()
    latest: dict[str, float] = {}
    for step in range(1, config.num_iterations + 1):
        collector.run(1)
        rows, _ = next(batches)
        losses = td3.update(rows, step % ACTOR_PERIOD == 0)
        latest |= {name: float(loss) for name, loss in losses.items()}
        counters = {
            "env_step": collector.env_steps,
            "gradient_step": step,
            "wall_seconds": time.monotonic() - begin,
        }
        if step % config.log_interval == 0:
            run.log(**counters, **latest, collect_return=collector.mean_return())
        if step % config.eval_interval == 0 or step == config.num_iterations:
            final = step == config.num_iterations
            episodes = config.num_eval_episodes if final else config.interim_eval_episodes
            result = labkit.evaluate(eval_env, copy.copy(td3), episodes, config.seed + 2)
            run.log_evaluation(result, **counters)
            print(f"step {step}: {result}")
    replay.close()
    return run


if __name__ == "__main__":
    train(
        labkit.SACConfig(
            env_name="Pendulum-v1",
            num_iterations=6_000,
            initial_collect_steps=1_000,
            eval_interval=2_000,
            num_eval_episodes=10,
        )
    )
