"""Two logical devices, prepared before TensorFlow starts, and a small agent."""

import pytest
import tensorflow as tf

from labkit import runtime
from labkit.environments.make import make_environment
from labkit.strategy import make_strategy

make_strategy("cpu", 32)  # divides the CPU, which is possible only now
ONE_DEVICE = tf.distribute.get_strategy()


@pytest.fixture(scope="session")
def minitaur():
    return make_environment("MinitaurBulletEnv-v0", seed=0)


@pytest.fixture
def make_agent(small_config, minitaur):
    """`make_agent(gamma=0.9)`: a new agent of the Minitaur, equal for equal arguments."""
    from labkit.sac.agent import create_agent

    def make(strategy=ONE_DEVICE, env=minitaur, **changes):
        config = small_config(**changes)
        runtime.seed_everything(config.seed)
        return create_agent(config, env, strategy)

    return make
