"""Experiments with several replicas, for notebook 03: equal agents, plain SGD, a time limit."""

import functools
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numpy as np
import tensorflow as tf

from labkit.errors import StalledError
from labkit.parameters import invalid
from labkit.runtime import in_background
from labkit.sac.agent import SeededSacAgent, create_agent
from labkit.strategy import LEAST_LOGICAL_DEVICES, mirrored

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

    from labkit.config import SACConfig

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def within(
    seconds: float,
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """A decorator that limits the time of each call.

    The replicas of a strategy wait for one another. If one of them is missing or fails, the others
    wait without end, and a notebook's stop button cannot reach them.

    Raises:
        StalledError: the function did not return within `seconds`. Its thread goes on waiting.
    """

    def limit(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @functools.wraps(function)
        def limited(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
            future = in_background(lambda: function(*args, **options))
            try:
                return future.result(timeout=seconds)
            except FutureTimeout:
                if future.done():
                    raise  # the function itself timed out
                what = f"{function.__name__} did not end within {seconds:g} seconds"
                raise StalledError(f"{what}: a replica waits for one that is missing") from None

        return limited

    return limit


def several_replicas(strategy: "tf.distribute.Strategy") -> "tf.distribute.Strategy":
    """A strategy with two or more replicas, for experiments: this one, if it has them.

    Otherwise it is a `MirroredStrategy` over two GPUs or, where there are fewer, over two logical
    CPU devices, which share the cores.

    Raises:
        ParameterError: TensorFlow has started with a single CPU device. A `MirroredStrategy` over
            devices that do not exist would wait for them without end.
    """
    if strategy.num_replicas_in_sync > 1:
        return strategy
    kind = "GPU" if len(tf.config.list_logical_devices("GPU")) > 1 else "CPU"
    existing = len(tf.config.list_logical_devices(kind))
    if existing < LEAST_LOGICAL_DEVICES:
        allowed = "at least 2 here: restart the kernel, and let labkit.strategy.make_strategy run"
        raise invalid("logical CPU devices", existing, f"{allowed} before TensorFlow's first step")
    return mirrored([f"/{kind.lower()}:{i}" for i in range(2)])


def copy_agent(
    agent: SeededSacAgent,
    config: "SACConfig",
    env: "PyEnvironment",
    strategy: tf.distribute.Strategy,
) -> SeededSacAgent:
    """An agent under `strategy` with the weights and the step of `agent`.

    Optimizers are new. `config` and `env` are those that `agent` was made with.
    """
    copy = create_agent(config, env, strategy)
    for target, source in zip(copy.variables, agent.variables, strict=True):
        target.assign(source.numpy())
    return copy


def use_sgd(agent: SeededSacAgent, strategy: tf.distribute.Strategy, rate: float) -> None:
    """Replaces the agent's optimizers by plain SGD.

    Adam's first step has the size of the learning rate, whatever the gradient's scale is. Under SGD
    a wrong scale shows in the weights.
    """
    with strategy.scope():
        for name in ("_critic_optimizer", "_actor_optimizer", "_alpha_optimizer"):
            setattr(agent, name, tf.keras.optimizers.legacy.SGD(rate))


def all_weights(agent: SeededSacAgent) -> np.ndarray:
    """All networks, targets and log α of an agent as one vector `[parameters] float32`."""
    values = [v.numpy() for v in agent.variables if v.dtype == tf.float32]
    return np.concatenate([np.ravel(value) for value in values])
