"""Every field of `SACConfig` reaches its part, in each way to train.

Each executor trains once with all fields off their defaults, in this process: `labkit.train`, the
cells of notebook 03, and the actors of the Ray executor, which here are called without Ray. What
the parts received is recorded; `REACHED` reads the value of each field from it.
"""

import contextlib
import inspect
import itertools
import operator
import sys
import threading
from types import SimpleNamespace

import books
import numpy as np
import pytest
import ray
from small import OFF_DEFAULT

import labkit
from labkit.config import SACConfig
from labkit.distributed import workers
from labkit.distributed.cluster import ParameterServer
from labkit.distributed.learner_actor import LearnerActor
from labkit.distributed.replay_actor import ReplayActor
from labkit.environments.make import make_environment
from labkit.plotting import rendering, video
from labkit.replay import reverb_replay, server, transitions, uniform_replay
from labkit.replay.transitions import layout_of
from labkit.sac import actor, agent, rollout, update
from labkit.strategy import make_strategy
from labkit.training import checkpoint, components, learner, local

# Reverb is the only table that other processes can write to.
ON_RAY = {**OFF_DEFAULT, "replay": "reverb"}
RECORDED = [  # functions, and classes: their constructor
    *(components.seed_everything, make_environment, rollout.random_policy),
    rollout.begin_evaluation,
    *(agent.SeededSacAgent, actor.ActorPolicy, transitions.NStepWriter, learner.Learner),
    *(uniform_replay.UniformReplay, reverb_replay.ReverbReplay, reverb_replay.TransitionWriter),
    *(reverb_replay.open_dataset, reverb_replay.packed_table, update.make_update, checkpoint.save),
]
METHODS = [  # (class, name)
    (uniform_replay.UniformReplay, "dataset"),
    (learner.Learner, "gradient_steps"),
    (learner.Learner, "_save_policy"),
    (actor.ActorPolicy, "set_weights"),
    (LearnerActor, "_wait_for_batches"),
    (workers.RolloutWorker, "_store"),
]


class Record(dict):
    """Calls by the name of what was called: its arguments, and gradient steps so far as `at`."""

    def __init__(self, patch):
        super().__init__()
        for found in RECORDED:
            if inspect.isclass(found):
                self._wrap(patch, found.__name__, found, "__init__")
            else:
                for module in [m for n, m in sys.modules.items() if n.startswith("labkit")]:
                    if getattr(module, found.__name__, None) is found:
                        self._wrap(patch, found.__name__, module, found.__name__, found)
        for owner, name in METHODS:
            self._wrap(patch, name, owner, name)

    def _wrap(self, patch, key, owner, name, function=None):
        function = function or getattr(owner, name)
        signature, calls = inspect.signature(function), self.setdefault(key, [])

        def wrapped(*args, **kwargs):
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            made = bound.arguments.get("self")
            calls.append(SimpleNamespace(**bound.arguments, at=getattr(made, "step", None)))
            return function(*args, **kwargs)

        patch.setattr(owner, name, wrapped)


class Handle:
    """Stands for Ray's handle of an actor: a call is made here, at once."""

    def __init__(self, made):
        self._made = made

    def __getattr__(self, name):
        return SimpleNamespace(remote=getattr(self._made, name))


def train_local(config, path, patch):
    local.train(config, run=labkit.open_run(path, config))


def train_in_notebook(config, path, patch):
    patch.chdir(path.parent)
    # The copy shortens episodes and films by other defaults; these come back afterwards.
    for function in (make_environment, rendering.frame, video.record_episode):
        patch.setattr(function, "__defaults__", function.__defaults__)
    kept = dict(video.record_episode.__kwdefaults__)
    patch.setattr(video.record_episode, "__kwdefaults__", kept)
    injected = "\n".join(f"{name} = {value!r}" for name, value in OFF_DEFAULT.items())
    namespace = {"In": [""], "display": lambda *_, **__: None}  # IPython's own
    copy = books.write_copy("03", path.parent, books.derivation())
    for cell in books.nbformat.read(copy, as_version=4).cells:
        if cell.cell_type == "code" and cell.id != "colab":
            sources = [cell.source]
            if "parameters" in cell.metadata.get("tags", []):
                sources.append(f"# Parameters\n{injected}\nrun_dir = 'run'\n")
            for source in sources:
                namespace["In"].append(source)
                exec(source, namespace)


def train_as_on_ray(config, path, patch):
    """The actors that the driver makes, in threads."""
    patch.setattr(ray, "get", lambda ref: ref)
    patch.setattr(ray, "wait", lambda refs, timeout=None: (refs, []))
    labkit.open_run(path, config).write_config()
    env = make_environment(config.env_name)
    address = f"localhost:{server.free_port()}"
    context = workers.RunContext(config, None, [], path / "checkpoints", address)
    parameters, replay = ParameterServer(), ReplayActor(context, layout_of(env))
    trained = LearnerActor(context)
    make_strategy(config.strategy, config.batch_size)  # before the worker uses TensorFlow
    replay.open("")

    store = workers.RolloutWorker._store

    def store_until_trained(worker, transition):
        if trained.status()["step"] == config.num_iterations:
            sys.exit()  # ends the worker
        store(worker, transition)

    patch.setattr(workers.RolloutWorker, "_store", store_until_trained)

    def collect():
        with contextlib.suppress(SystemExit):
            workers.RolloutWorker(context, 0, 1).run(Handle(parameters))

    worker = threading.Thread(target=collect)
    worker.start()
    trained.train(*map(Handle, (replay, parameters, workers.Evaluator(context))))
    # The worker may wait for a sample that nobody takes any more; Ray would end its process.
    patch.setattr(reverb_replay, "SAMPLE_TIMEOUT_SECONDS", 0)
    worker.join()


EXECUTORS = {"local": train_local, "notebook": train_in_notebook, "ray": train_as_on_ray}


@pytest.fixture(scope="module", params=EXECUTORS)
def seen(request, tmp_path_factory):
    """The record of one training, with its executor and its metrics."""
    path = tmp_path_factory.mktemp(request.param) / "run"
    on_ray = request.param == "ray"
    config = SACConfig(**(ON_RAY if on_ray else OFF_DEFAULT))
    with pytest.MonkeyPatch.context() as patch:
        record = Record(patch)
        # Checkpoints by time come in a run of one second, too, and none would with the default.
        ticks = itertools.count()
        patch.setattr(learner.Learner, "seconds", lambda _: 0.3 * next(ticks))
        EXECUTORS[request.param](config, path, patch)
    record.config, record.on_ray = config, on_ray
    table = labkit.open_run(path, config).metrics()
    record.logged = table[table.critic_loss.notna()]
    record.evaluated = table[table.eval_return.notna()]
    return record


# --- field → what reached its part, as the set of values


def of(called, name):
    return lambda seen: set(map(operator.attrgetter(name), seen[called]))


def agents(attribute):
    return lambda seen: {attribute(call.self) for call in seen["SeededSacAgent"]}


def schedules(attribute):
    """Of the learning rates of critics, actor and temperature."""
    names = ("_critic_optimizer", "_actor_optimizer", "_alpha_optimizer")
    return lambda seen: {
        tuple(
            round(float(getattr(getattr(call.self, n).learning_rate, attribute)), 7) for n in names
        )
        for call in seen["SeededSacAgent"]
    }


def networks(agent):
    """The actor and three critics."""
    names = ("actor_network", "critic_network_1", "critic_network_2", "target_critic_network_1")
    return [getattr(agent, f"_{name}") for name in names]


def critics(attribute):
    return agents(lambda agent: tuple({attribute(network) for network in networks(agent)[1:]}))


def kernels(network):
    return tuple(tuple(v.shape) for v in network.variables if len(v.shape) == 2)


def tables(name):
    return lambda seen: {
        getattr(call, name) for call in seen["UniformReplay"] + seen["ReverbReplay"]
    }


def between(rows):
    """The intervals of gradient steps between the rows of a table."""
    return lambda seen: set(np.diff(getattr(seen, rows).gradient_step.astype(int)))


def checkpoints(seen):
    return {call.step for call in seen["save"]}


def limiter(seen):
    """Samples per insert of the Ray executor's table."""
    (made,) = [call.limiter for call in seen["packed_table"] if call.limiter]
    return made._samples_per_insert


STEPS = OFF_DEFAULT["num_iterations"]
REACHED = {  # field: (what was recorded, what must be; None is the value of the field)
    "env_name": (of("make_environment", "name"), {"Pendulum-v1"}),
    "num_iterations": (lambda seen: {int(seen.evaluated.gradient_step.max())}, {STEPS}),
    "seed": (of("seed_everything", "seed"), {7}),
    "strategy": (of("Learner", "strategy.num_replicas_in_sync"), {2}),
    "initial_collect_steps": (
        lambda seen: (
            {max(call.first for call in seen["_wait_for_batches"])}
            if seen.on_ray
            else {seen.evaluated.env_step.iloc[0]}
        ),
        {230},
    ),
    "collect_steps_per_iteration": (
        # On Ray 4 samples of each batch are counted, those of the table of all transitions.
        lambda seen: (
            {4 / limiter(seen)}
            if seen.on_ray
            else set((seen.logged.env_step - 230) / seen.logged.gradient_step)
        ),
        {2},
    ),
    "n_step": (of("NStepWriter", "n_step"), {3}),
    "bootstrap_time_limits": (of("make_environment", "bootstrap_time_limits"), {False, True}),
    "replay": (lambda seen: {bool(seen["ReverbReplay"]) == seen.on_ray}, {True}),
    "replay_buffer_capacity": (tables("capacity"), {150}),
    "recent_transitions": (tables("recent"), {40}),
    "symmetry_augmentation": (of("make_update", "reflection.action_signs"), {(-1,)}),
    "batch_size": (
        lambda seen: {call.batch_size for call in seen["open_dataset"] + seen["dataset"]},
        {8},  # the other half is reflections
    ),
    "steps_per_call": (lambda seen: {max(call.count for call in seen["gradient_steps"])}, {4}),
    "critic_learning_rate": (schedules("initial_learning_rate"), {(1e-3, 2e-3, 4e-3)}),
    "actor_learning_rate": (schedules("initial_learning_rate"), {(1e-3, 2e-3, 4e-3)}),
    "alpha_learning_rate": (schedules("initial_learning_rate"), {(1e-3, 2e-3, 4e-3)}),
    "learning_rate_decay_steps": (schedules("decay_steps"), {(50, 50, 50)}),
    "actor_update_period": (agents(lambda agent: agent.actor_update_period), {2}),
    "target_update_tau": (agents(lambda agent: agent._target_update_tau), {0.02}),
    "target_update_period": (agents(lambda agent: agent._target_update_period), {3}),
    "gamma": (
        lambda seen: of("NStepWriter", "gamma")(seen) | of("SeededSacAgent", "self._gamma")(seen),
        {0.9},
    ),
    "reward_scale_factor": (agents(lambda agent: agent._reward_scale_factor), {0.5}),
    "initial_log_alpha": (
        lambda seen: {call.kwargs["initial_log_alpha"] for call in seen["SeededSacAgent"]},
        {-2.0},
    ),
    "target_entropy": (agents(lambda agent: agent._target_entropy), {-1.5}),
    "observation_scale": (
        agents(lambda agent: {tuple(n._scale.tolist()) for n in networks(agent)} == {(1, 2, 4)}),
        {True},
    ),
    "actor_fc_layer_params": (
        agents(lambda agent: kernels(agent._actor_network)),
        {((3, 24), (24, 12), (12, 2))},
    ),
    "critic_joint_fc_layer_params": (critics(kernels), {(((4, 20), (20, 10), (10, 1)),)}),
    "critic_layer_norm": (
        critics(lambda net: sum(type(x).__name__ == "NormalisedDense" for x in net._joint_layers)),
        {(2,)},
    ),
    "log_interval": (between("logged"), {6}),
    "eval_interval": (between("evaluated"), {16}),
    "interim_eval_episodes": (
        lambda seen: {len(returns) for returns in seen.evaluated.eval_returns[:-1]},
        {2},
    ),
    "num_eval_episodes": (lambda seen: {len(seen.evaluated.eval_returns.iloc[-1])}, {3}),
    "policy_save_interval": (of("_save_policy", "at"), {12, 24, 36, 48}),
    "checkpoint_interval": (lambda seen: checkpoints(seen) & {20, 40}, {20, 40}),
    "checkpoint_seconds": (lambda seen: {bool(checkpoints(seen) - {20, 40, STEPS})}, {True}),
    "environment_timeout": (of("make_environment", "timeout"), {77}),
}


def test_every_field_reaches_its_part(seen):
    """A field of `SACConfig` without a row in `REACHED` fails here."""
    found = {name: REACHED[name][0](seen) for name in SACConfig.names()}
    expected = {name: wanted for name, (_, wanted) in REACHED.items()}
    assert found == expected


def test_every_field_is_off_its_default():
    fields, default = SACConfig(**OFF_DEFAULT), SACConfig(env_name="Pendulum-v1")
    same = [name for name in SACConfig.names() if getattr(fields, name) == getattr(default, name)]
    assert same == ["env_name"]
    assert SACConfig().env_name != fields.env_name


def test_random_streams_have_seeds_of_their_own(seen):
    noise = 7 + components.NOISE_SEED
    assert noise in {call.seed for call in seen["random_policy"]}
    assert {call.seed for call in seen["ActorPolicy"]} >= {noise, None}
    assert {call._seed for call in (c.self for c in seen["SeededSacAgent"])} == {7}
    collecting = {c.seed for c in seen["make_environment"] if not c.bootstrap_time_limits}
    assert collecting == {7 + components.COLLECT_SEED}


def test_a_rollout_worker_begins_with_random_actions(seen):
    stored = [call.transition for call in seen["_store"] if call.transition]
    assert bool(stored) == seen.on_ray
    for transition in stored[:1]:
        (made,) = seen["random_policy"]
        first = rollout.random_policy(made.action_spec, made.seed)(transition.observation)
        np.testing.assert_array_equal(transition.action, first)


def test_the_policy_that_collects_gets_newer_weights(seen):
    newer = {call.flat.sum() for call in seen["set_weights"] if call.self._temperature}
    assert len(newer) >= 3


def test_evaluations_are_deterministic_and_play_their_own_episodes(seen):
    played = seen["begin_evaluation"]
    assert {float(call.policy._temperature) for call in played} == {0.0}
    assert [call.episodes for call in played] == [2] * (STEPS // 16) + [3]
    interim, final = {call.seed for call in played[:-1]}, played[-1].seed
    assert interim == {7 + components.EVAL_SEED}
    assert final not in interim
