"""SAC with prioritised replay (Schaul et al. 2016, arXiv 1511.05952) from labkit's parts.

    python examples/prioritized_replay.py

Reverb draws a transition with a probability proportional to pᵅ, where p is the size of its last TD
error. The critics' loss corrects for this with importance weights (N P(i))^−β. The rest, from the
agent to the run directory, is labkit's SAC.
"""

import time

import labkit  # before TensorFlow: it sets what that reads

# isort: split
import numpy as np
import reverb
import tensorflow as tf

from labkit.replay.reverb_replay import TABLE, TransitionWriter, open_dataset
from labkit.replay.server import start_server
from labkit.replay.transitions import layout_of, split
from labkit.runtime import seed_everything
from labkit.sac.actor import ActorPolicy
from labkit.sac.agent import create_agent
from labkit.sac.rollout import Collector, random_policy
from labkit.sac.update import flat_weights

ALPHA, BETA = 0.6, 0.4  # exponents of the priorities and of the importance weights
CAPACITY, TIMEOUT = 100_000, 60  # transitions; seconds
SMALLEST = 1e-3  # priority, so that every transition may be drawn


def prioritised_server(width: int) -> reverb.Server:
    """A Reverb server whose table draws by priority, and removes the oldest first."""
    return start_server(
        [
            reverb.Table(
                TABLE,
                sampler=reverb.selectors.Prioritized(ALPHA),
                remover=reverb.selectors.Fifo(),
                max_size=CAPACITY,
                rate_limiter=reverb.rate_limiters.MinSize(1),
                signature={"row": tf.TensorSpec([width], tf.float32)},
            )
        ]
    )


def make_step(agent, layout):
    """Compiles a gradient step on rows `[batch, width]`, weighted by `weights [batch]`.

    It returns the metrics, and the larger TD error of both critics `[batch] float32`.
    """

    @tf.function(autograph=False)
    def step(rows, weights):
        found = []

        def weighted(errors):  # the critics' loss, each row times its weight
            found.append(tf.reduce_max(tf.abs(errors), axis=0))
            squares = tf.add_n([tf.square(error) for error in errors])
            return 0.5 * tf.reduce_mean(weights * squares)

        metrics = agent.gradient_step(split(rows, layout), critic_loss=weighted)
        return metrics, found[0]

    return step


def train(config: labkit.SACConfig, run_dir: str = "") -> labkit.Run:
    """Trains SAC with prioritised replay; metrics and evaluations are in a run directory."""
    run = labkit.open_run(run_dir, config)
    seed_everything(config.seed)
    env = labkit.make_environment(config.env_name, seed=config.seed)
    eval_env = labkit.make_environment(config.env_name, seed=config.seed + 1)
    layout = layout_of(env)
    agent = create_agent(config, env, tf.distribute.get_strategy())
    server = prioritised_server(layout.width)
    address = f"localhost:{server.port}"
    client, writer = reverb.Client(address), TransitionWriter(address)
    collector = Collector(env, random_policy(env.action_spec(), config.seed), writer.write)
    collector.run(config.initial_collect_steps)
    writer.flush()
    policy = collector.policy = ActorPolicy(agent, config.seed)
    step = make_step(agent, layout)
    with labkit.quiet():  # Reverb's sampler logs its first connection
        batches, begin = iter(open_dataset(address, config.batch_size, TIMEOUT)), time.monotonic()
    largest = SMALLEST  # TD error so far: new transitions have the priority 1, the highest
    for number in range(1, config.num_iterations + 1):
        collector.run(1)
        rows, info = next(batches)
        held = min(collector.env_steps, CAPACITY)
        weights = (held * info["probability"].numpy()) ** -BETA
        weights = (weights / weights.max()).astype(np.float32)
        metrics, errors = step(rows, weights)
        largest = max(largest, float(tf.reduce_max(errors)))
        priorities = np.maximum(errors / largest, SMALLEST)
        keys = info["key"].numpy().tolist()
        client.mutate_priorities(TABLE, dict(zip(keys, priorities.tolist(), strict=True)))
        policy.set_weights(flat_weights(agent).numpy())
        counters = {
            "env_step": collector.env_steps,
            "gradient_step": number,
            "wall_seconds": time.monotonic() - begin,
        }
        if number % config.log_interval == 0:
            scalars = {name: float(value) for name, value in metrics.items()}
            run.log(**counters, **scalars, largest_weight=float(1 / weights.min()))
        if number % config.eval_interval == 0 or number == config.num_iterations:
            final = number == config.num_iterations
            episodes = config.num_eval_episodes if final else config.interim_eval_episodes
            result = labkit.evaluate(eval_env, ActorPolicy(agent), episodes, config.seed + 2)
            run.log_evaluation(result, **counters)
            print(f"step {number}: {result}")
    writer.close()
    with labkit.quiet():
        server.stop()
    return run


if __name__ == "__main__":
    train(
        labkit.SACConfig(
            env_name="Pendulum-v1",
            num_iterations=6_000,
            initial_collect_steps=1_000,
            eval_interval=2_000,
            num_eval_episodes=10,
            critic_learning_rate=1e-3,
            actor_learning_rate=1e-3,
            alpha_learning_rate=1e-3,
        )
    )
