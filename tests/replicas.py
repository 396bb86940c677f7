"""Runs under several replicas, in a process of its own: `python replicas.py WHAT OUT`.

Logical devices can be made only before TensorFlow starts, hence not in the process of the tests.
What is measured goes to files beside OUT; test_replicas.py judges it.
"""

import sys
from pathlib import Path

import numpy as np
from conftest import SMALL, minitaur_rows

import labkit
from labkit import runtime
from labkit.environments.make import make_environment
from labkit.sac.update import make_update
from labkit.strategy import make_strategy, replica_slice, several_replicas
from labkit.training.run import open_run

BATCH, STEPS = 256, 10
CONFIG = labkit.SACConfig(
    **{**SMALL, "actor_fc_layer_params": (64, 64), "critic_joint_fc_layer_params": (64, 64)}
    | {"batch_size": BATCH, "seed": 3, "target_update_tau": 0.1}
)
NETWORKS = {
    "critic 1": "_critic_network_1",
    "critic 2": "_critic_network_2",
    "actor": "_actor_network",
    "target 1": "_target_critic_network_1",
    "target 2": "_target_critic_network_2",
}


def batches(seed: int = 0) -> list[np.ndarray]:
    """Ten global batches `[256, 66]`."""
    return [minitaur_rows(BATCH, seed + step) for step in range(STEPS)]


def make_agent(strategy, momentum: float, period: int):
    """An agent that learns with SGD, the same in every process and under every strategy."""
    import attrs
    import tensorflow as tf

    from labkit.sac import agent

    env = make_environment("MinitaurBulletEnv-v0", seed=0)
    runtime.seed_everything(0)
    config = attrs.evolve(CONFIG, target_update_period=period, actor_update_period=period)
    made = agent.create_agent(config, env, strategy)
    # The same numbers whatever generator the strategy initialises its copies with.
    generator = np.random.default_rng(5)
    for variable in made.variables:
        if variable.dtype == tf.float32 and variable.shape.rank:
            scale = 0.5 / np.sqrt(max(variable.shape[0], 8))
            variable.assign(scale * generator.normal(size=variable.shape))
    with strategy.scope():
        # Ten steps move weights by percents; ten times as much, and normalised critics diverge.
        rates = {"_critic_optimizer": 0.05, "_actor_optimizer": 0.05, "_alpha_optimizer": 1e-3}
        for name, rate in rates.items():
            setattr(made, name, tf.keras.optimizers.legacy.SGD(rate, momentum))
    return made


def gradients(agent) -> dict[str, np.ndarray]:
    """What the optimizers were given: their momentum after the one step from zero, over −rate."""
    found = {}
    for name, of in {
        "critic": [*agent._critic_network_1.variables, *agent._critic_network_2.variables],
        "actor": agent._actor_network.variables,
        "alpha": [agent._log_alpha],
    }.items():
        optimizer = getattr(agent, f"_{name}_optimizer")
        slots = [optimizer.get_slot(variable, "momentum").numpy().ravel() for variable in of]
        found[f"gradient of {name}"] = -np.concatenate(slots) / optimizer.learning_rate.numpy()
        # Also as the optimizer lists them, which must be an order of their own making.
        found[f"order of {name}"] = np.concatenate(
            [variable.numpy().ravel() for variable in optimizer.variables()[1:]]
        )
    return found


def weights(agent) -> dict[str, np.ndarray]:
    """Each network as one flat vector, and log α."""
    found = {
        name: np.concatenate([v.numpy().ravel() for v in getattr(agent, attribute).variables])
        for name, attribute in NETWORKS.items()
    }
    return {**found, "log alpha": agent._log_alpha.numpy().reshape(1)}


def learn_on(strategy, share=slice(None)) -> dict[str, np.ndarray]:
    """Gradients of one step, weights after longer periods, weights and losses of ten steps."""
    from labkit.replay.transitions import Layout

    agent = make_agent(strategy, momentum=0.9, period=2)
    update = make_update(agent, Layout(28, 8), strategy)
    update(batches()[0][share])
    found = gradients(agent)
    for rows in batches()[1:3]:
        update(rows[share])
    found |= {f"{name}, period 2": value for name, value in weights(agent).items()}

    agent = make_agent(strategy, momentum=0.0, period=1)
    found |= {f"{name} at first": value for name, value in weights(agent).items()}
    update = make_update(agent, Layout(28, 8), strategy)
    losses = [update(rows[share])[0].numpy() for rows in batches()]
    copies = [strategy.experimental_local_results(v) for v in agent.variables]
    apart = sum(np.any(one.numpy() != all_[0].numpy()) for all_ in copies for one in all_)
    steps = agent.train_step_counter.numpy()
    return found | weights(agent) | {"losses": losses, "steps": steps, "copies apart": apart}


def whole_batches(strategy) -> dict[str, np.ndarray]:
    """The gradients where each replica is given another whole batch, as by TF-Agents' Learner."""
    import tensorflow as tf

    from labkit.replay.transitions import Layout, unpack

    agent = make_agent(strategy, momentum=0.9, period=1)
    given = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(batches()[context.replica_id_in_sync_group])
    )

    @tf.function(autograph=False)
    def step(rows):
        strategy.run(lambda own: agent.train(unpack(own, Layout(28, 8))), (rows,))

    step(given)
    return gradients(agent)


def loss_with_hand_overs(strategy) -> np.ndarray:
    """The loss of one batch where the threads of the replicas hand over before each draw."""
    import tensorflow as tf

    from labkit.replay.transitions import Layout, unpack

    agent = make_agent(strategy, momentum=0.0, period=1)
    draw = agent._noise

    def hand_over_first(shape):
        tf.distribute.get_replica_context().merge_call(lambda strategy: None)
        return draw(shape)

    agent._noise = hand_over_first
    rows, replicas = tf.constant(batches()[0]), strategy.num_replicas_in_sync

    @tf.function(autograph=False)
    def loss():
        def of_share():
            own = replica_slice(rows, replicas)
            return tf.stack(agent.loss(unpack(own, Layout(28, 8))).extra)

        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(of_share), axis=None)

    return loss().numpy()


def mirrored(out: Path) -> None:
    """The strategies that OUT names, the largest first, on the same batches as the others."""
    for name in out.name.split(","):
        strategy = make_strategy(name, BATCH)
        found = learn_on(strategy)
        found["loss with hand-overs"] = loss_with_hand_overs(strategy)
        np.savez(out.with_name(name), **found)
        if name == "mirrored:2":
            np.savez(out.with_name("whole batches"), **whole_batches(strategy))


def train(out: Path) -> None:
    """A run of `labkit.train` under two replicas, and what was in its agent at the end."""
    import tensorflow as tf

    from labkit.sac import agent
    from labkit.sac.actor import ActorPolicy
    from labkit.training import components

    config = labkit.SACConfig(**{**SMALL, "strategy": "mirrored:2", "num_iterations": 40})
    made = components.build(config)
    components.warm_up(config, made)
    labkit.train(config, open_run(out, config), made)
    tf.train.Checkpoint(agent=made.agent).write(str(out / "tensorflow"))
    found = {f"{i:04d}": v.numpy() for i, v in enumerate(agent.state_variables(made.agent))}
    greedy = ActorPolicy(made.agent)
    observations = np.random.default_rng(0).normal(size=(16, 28)).astype(np.float32)
    actions = [greedy(observation) for observation in observations]
    # One step more, which shows whether whoever restores this goes on as here.
    update = make_update(made.agent, made.layout, made.strategy)
    losses, weights = update(minitaur_rows(config.batch_size))
    np.savez(
        out / "agent",
        **found,
        observations=observations,
        actions=actions,
        next_losses=losses,
        next_weights=weights,
        replicas=made.strategy.num_replicas_in_sync,
    )
    made.close()


def sum_on(strategy) -> float:
    """1 from each replica, summed over them."""
    import tensorflow as tf

    ones = tf.function(lambda: strategy.run(lambda: tf.constant(1.0)))()
    return float(strategy.reduce(tf.distribute.ReduceOp.SUM, ones, axis=None))


def too_late(out: Path) -> None:
    """Asks for other devices when TensorFlow runs with two already."""
    import tensorflow as tf

    make_strategy("auto", BATCH)
    tf.constant(1) + 1
    for name in ("mirrored:2", "mirrored:1"):
        assert sum_on(make_strategy(name, BATCH)) == int(name[-1])
    assert sum_on(several_replicas(make_strategy("auto", BATCH))) == 2
    try:
        make_strategy("mirrored:4", BATCH)
    except labkit.ParameterError as error:
        print(error)


def one_device(out: Path) -> None:
    """Asks for several replicas when TensorFlow runs with one device."""
    import tensorflow as tf

    tf.constant(1) + 1
    for ask in (several_replicas, lambda strategy: make_strategy("mirrored:2", BATCH)):
        try:
            ask(make_strategy("auto", BATCH))
        except labkit.ParameterError as error:
            print(error)


if __name__ == "__main__":
    what = {"mirrored": mirrored, "train": train, "too_late": too_late, "one_device": one_device}
    what[sys.argv[1]](Path(sys.argv[2]))
