"""Records what the parts of labkit receive, in every process of a wiring run.

Python imports `sitecustomize` when it starts, from any folder of PYTHONPATH: so the same records
come from the local executor, from Ray's processes and from a notebook's kernel. A record is one
line of JSON in `$LABKIT_SPY/<pid>.jsonl`.
"""

import functools
import importlib.abc
import importlib.machinery
import json
import os
import sys


def record(part, **values):
    """Appends one record."""
    with open(os.path.join(os.environ["LABKIT_SPY"], f"{os.getpid()}.jsonl"), "a") as file:
        file.write(json.dumps({"part": part, **values}, default=float) + "\n")


def after(owner, name, describe):
    """Calls `describe(result, *arguments)` after each call of a function or method."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*arguments, **named):
        result = original(*arguments, **named)
        describe(result, *arguments, **named)
        return result

    setattr(owner, name, wrapped)


def _agent(_, agent, *args, **kwargs):
    nets = {
        "actor": agent._actor_network,
        "critic 1": agent._critic_network_1,
        "critic 2": agent._critic_network_2,
        "target 1": agent._target_critic_network_1,
        "target 2": agent._target_critic_network_2,
    }
    optimizers = (agent._critic_optimizer, agent._actor_optimizer, agent._alpha_optimizer)
    record(
        "agent",
        seed=agent._seed,
        gamma=agent._gamma,
        tau=agent._target_update_tau,
        period=agent._target_update_period,
        actor_period=agent.actor_update_period,
        reward_scale=agent._reward_scale_factor,
        log_alpha=agent._log_alpha.numpy(),
        target_entropy=agent._target_entropy,
        learning_rates=[one.learning_rate.initial_learning_rate for one in optimizers],
        decay_steps=[one.learning_rate.decay_steps for one in optimizers],
        scales={name: net._scale.tolist() for name, net in nets.items()},
        kernels={
            name: [list(v.shape) for v in net.variables if len(v.shape) == 2]
            for name, net in nets.items()
        },
        normalised={
            name: sum(type(one).__name__ == "NormalisedDense" for one in net._joint_layers)
            for name, net in nets.items()
            if name != "actor"
        },
    )


def _in_agent(module):
    after(module.SeededSacAgent, "__init__", _agent)


def _in_n_step(module):
    def describe(_, writer, *args, **kwargs):
        record("windows", n_step=writer._n_step, gamma=writer._gamma)

    after(module.NStepWriter, "__init__", describe)


def _in_policies(module):
    def policy(_, made, agent, seed=None):
        record("policy", seed=seed, repeat=made.action_repeat)

    def weights(_, made, flat):
        random = getattr(made, "_random", None)
        record("weights", explores=random is not None, total=float(flat.sum()))

    after(module.ActorPolicy, "set_weights", weights)
    after(module.ActorPolicy, "__init__", policy)
    make = module.random_policy

    def random_policy(action_spec, seed, repeat=1):
        record("random policy", seed=seed, repeat=repeat)
        draw = make(action_spec, seed)

        def act(observation):
            record("random action", seed=seed)
            return draw(observation)

        return module.RepeatedPolicy(act, repeat)

    module.random_policy = random_policy


def _in_make(module):
    def describe(_, name, seed=None, max_episode_steps=None, bootstrap_time_limits=True, timeout=0):
        more = {"bootstrap": bootstrap_time_limits, "timeout": timeout}
        record("environment", name=str(name), seed=seed, **more)

    after(module, "make_environment", describe)


def _in_strategy(module):
    def describe(strategy, name, batch_size):
        record("strategy", replicas=strategy.num_replicas_in_sync)

    after(module, "make_strategy", describe)


def _in_runtime(module):
    after(module, "seed_everything", lambda _, seed: record("global seed", seed=seed))


def _in_update(module):
    def describe(_, agent, layout, strategy, reflection=None):
        record("update", reflected_action=list(reflection.action_signs) if reflection else [])

    after(module, "make_update", describe)


def _in_learner(module):
    def steps(_, learner, count):
        record("call", steps=count)

    after(module.Learner, "gradient_steps", steps)


def _in_logger(module):
    def logged(_, logger, step, *args):
        logger.spied_step = step

    def saved(_, logger):
        record("policy saved", step=getattr(logger, "spied_step", 0))

    def faster(logger):
        logger.spied_calls = getattr(logger, "spied_calls", 0) + 1
        return clock(logger) + 0.3 * logger.spied_calls  # seconds

    # Checkpoints by time come in a run of one second, too, and none would with the default.
    clock, module.RunLogger.seconds = module.RunLogger.seconds, faster
    after(module.RunLogger, "log", logged)
    after(module.RunLogger, "save_policy", saved)


def _in_checkpoint(module):
    after(module, "save", lambda _, folder, step, *args: record("checkpoint", step=step))


def _in_evaluation(module):
    def describe(_, env, policy, episodes, seed, *args, **kwargs):
        record("evaluation", episodes=episodes, seed=seed, deterministic=policy._random is None)

    after(module, "evaluate", describe)


def _in_uniform(module):
    def describe(_, table, batch_size):
        record("batches", size=batch_size)

    def made(_, table, layout, capacity, recent=0):
        record("table", name="transitions", capacity=capacity)
        if recent:
            record("table", name="recent transitions", capacity=recent)

    after(module.UniformReplay, "__init__", made)
    after(module.UniformReplay, "dataset", describe)


def _in_reverb(module):
    def dataset(_, address, batch_size, timeout, recent=0):
        record("batches", size=batch_size)
        record("recent", count=recent)

    def table(_, layout, capacity, limiter=None, name="transitions"):
        ratio = None if limiter is None else limiter._samples_per_insert
        first = None if limiter is None else limiter._min_size_to_sample
        limits = {"samples_per_insert": ratio, "min_size": first}
        record("table", name=name, capacity=capacity, **limits)

    def write(_, writer, transition):
        record("row", row=module.pack(transition).tolist())

    after(module.TransitionWriter, "write", write)
    after(module, "open_dataset", dataset)
    after(module, "packed_table", table)


HOOKS = {
    "labkit.environments.make": _in_make,
    "labkit.replay.n_step": _in_n_step,
    "labkit.replay.reverb_replay": _in_reverb,
    "labkit.replay.uniform_replay": _in_uniform,
    "labkit.runtime": _in_runtime,
    "labkit.sac.agent": _in_agent,
    "labkit.sac.rollout": _in_evaluation,
    "labkit.sac.actor": _in_policies,
    "labkit.sac.update": _in_update,
    "labkit.strategy": _in_strategy,
    "labkit.training.checkpoint": _in_checkpoint,
    "labkit.training.learner": _in_learner,
    "labkit.training.logger": _in_logger,
}


class Finder(importlib.abc.MetaPathFinder):
    """Runs a module's hook after the module, before anybody imports a name from it."""

    def find_spec(self, name, path, target=None):
        """The ordinary spec of a module, with its hook."""
        if name not in HOOKS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def execute_and_hook(module):
            execute(module)
            HOOKS[name](module)

        spec.loader.exec_module = execute_and_hook
        return spec


if os.environ.get("LABKIT_SPY"):
    sys.meta_path.insert(0, Finder())
