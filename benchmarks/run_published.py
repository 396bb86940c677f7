"""The loop of the TF-Agents tutorial "SAC minitaur with the Actor-Learner API", as published.

The components, the settings and their order are the tutorial's. It evaluates every 10 000 and saves
a policy every 5 000 iterations; neither falls into the timed iterations, which favours this
baseline.
"""

import argparse
import os
import tempfile
from collections.abc import Callable

os.environ["TF_NUM_INTRAOP_THREADS"] = "0"  # TensorFlow's own choice, not labkit's

import labkit  # first: it sets what TensorFlow reads when it loads

# isort: split
import reverb
import tensorflow as tf
from tf_agents.agents.ddpg import critic_network
from tf_agents.agents.sac import sac_agent, tanh_normal_projection_network
from tf_agents.environments import py_environment, suite_pybullet
from tf_agents.networks import actor_distribution_network
from tf_agents.policies import py_tf_eager_policy, random_py_policy
from tf_agents.replay_buffers import reverb_replay_buffer, reverb_utils
from tf_agents.train import actor, learner, triggers
from tf_agents.train.utils import spec_utils, strategy_utils, train_utils

from benchmarks.stopwatch import Stopwatch, worker

TABLE = "uniform_table"


def main(options: argparse.Namespace) -> dict[str, float]:
    """Times the loop."""
    stopwatch = Stopwatch(options.warmup, options.iterations)
    with tempfile.TemporaryDirectory() as folder:
        with labkit.quiet():
            collect_actor, agent_learner, close = build(folder, options.initial)
        done = 0
        while not stopwatch.tick(done):
            collect_actor.run()
            agent_learner.run(iterations=1)
            done = int(agent_learner.train_step_numpy)
        result = stopwatch.result()
        close()
    return result


def build(
    folder: str, initial_collect_steps: int
) -> tuple[actor.Actor, learner.Learner, Callable[[], None]]:
    """Makes the collect actor and the learner, and fills the table.

    Args:
        folder: where summaries and policies are written.
        initial_collect_steps: env steps with random actions (initial collection).

    Returns:
        The collect actor, the learner, and a function that closes the replay buffer.
    """
    collect_env = suite_pybullet.load("MinitaurBulletEnv-v0")
    # The tutorial runs on GPUs; for a machine without one it prescribes use_gpu=False.
    strategy = strategy_utils.get_strategy(tpu=False, use_gpu=False)
    agent, train_step = make_agent(collect_env, strategy)
    server, replay, observer = make_replay(agent)
    dataset = replay.as_dataset(sample_batch_size=256, num_steps=2).prefetch(50)
    actor.Actor(
        collect_env,
        random_py_policy.RandomPyPolicy(collect_env.time_step_spec(), collect_env.action_spec()),
        train_step,
        steps_per_run=initial_collect_steps,
        observers=[observer],
    ).run()
    collect_actor = actor.Actor(
        collect_env,
        py_tf_eager_policy.PyTFEagerPolicy(agent.collect_policy, use_tf_function=True),
        train_step,
        steps_per_run=1,
        metrics=actor.collect_metrics(10),
        summary_dir=f"{folder}/{learner.TRAIN_DIR}",
        observers=[observer, actor.py_metrics.EnvironmentSteps()],
    )
    agent_learner = learner.Learner(
        folder,
        train_step,
        agent,
        lambda: dataset,
        triggers=[
            triggers.PolicySavedModelTrigger(f"{folder}/policies", agent, train_step, 5000),
            triggers.StepPerSecondLogTrigger(train_step, interval=1000),
        ],
        strategy=strategy,
    )

    def close() -> None:
        observer.close()
        server.stop()

    return collect_actor, agent_learner, close


def make_agent(
    env: py_environment.PyEnvironment, strategy: tf.distribute.Strategy
) -> tuple[sac_agent.SacAgent, tf.Variable]:
    """Makes the tutorial's networks and agent under the strategy's scope, and the step counter."""
    observation_spec, action_spec, time_step_spec = spec_utils.get_tensor_specs(env)
    with strategy.scope():
        critic_net = critic_network.CriticNetwork(
            (observation_spec, action_spec),
            observation_fc_layer_params=None,
            action_fc_layer_params=None,
            joint_fc_layer_params=(256, 256),
            kernel_initializer="glorot_uniform",
            last_kernel_initializer="glorot_uniform",
        )
        actor_net = actor_distribution_network.ActorDistributionNetwork(
            observation_spec,
            action_spec,
            fc_layer_params=(256, 256),
            continuous_projection_net=tanh_normal_projection_network.TanhNormalProjectionNetwork,
        )
        train_step = train_utils.create_train_step()
        agent = sac_agent.SacAgent(
            time_step_spec,
            action_spec,
            actor_network=actor_net,
            critic_network=critic_net,
            actor_optimizer=tf.keras.optimizers.Adam(learning_rate=3e-4),
            critic_optimizer=tf.keras.optimizers.Adam(learning_rate=3e-4),
            alpha_optimizer=tf.keras.optimizers.Adam(learning_rate=3e-4),
            target_update_tau=0.005,
            target_update_period=1,
            td_errors_loss_fn=tf.math.squared_difference,
            gamma=0.99,
            reward_scale_factor=1.0,
            train_step_counter=train_step,
        )
        agent.initialize()
    return agent, train_step


def make_replay(
    agent: sac_agent.SacAgent,
) -> tuple[
    reverb.Server,
    reverb_replay_buffer.ReverbReplayBuffer,
    reverb_utils.ReverbAddTrajectoryObserver,
]:
    """Makes a table of 10 000 windows of two steps, its replay buffer, and the observer."""
    table = reverb.Table(
        TABLE,
        max_size=10_000,
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        rate_limiter=reverb.rate_limiters.MinSize(1),
    )
    server = reverb.Server([table])
    replay = reverb_replay_buffer.ReverbReplayBuffer(
        agent.collect_data_spec, sequence_length=2, table_name=TABLE, local_server=server
    )
    observer = reverb_utils.ReverbAddTrajectoryObserver(
        replay.py_client, TABLE, sequence_length=2, stride_length=1
    )
    return server, replay, observer


if __name__ == "__main__":
    worker(main)
