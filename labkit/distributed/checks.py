"""What `train_on_ray` rejects before it starts Ray: what no process could use."""

from typing import TYPE_CHECKING

from labkit.config import SACConfig
from labkit.environments.make import check_specs, make_environment
from labkit.errors import first_line
from labkit.parameters import invalid
from labkit.training.components import MakeEnv, check_tuned, environment_source
from labkit.training.run import Run

if TYPE_CHECKING:  # for annotations
    from tf_agents.environments.py_environment import PyEnvironment


def check_picklable(make_env: MakeEnv | None) -> None:
    """Rejects what Ray cannot send to its processes."""
    from ray import cloudpickle

    try:
        cloudpickle.dumps(make_env)
    except Exception as error:  # of any kind: a user's object may define how it is pickled
        allowed = (
            f"a class or a function that Ray can pickle for its processes ({first_line(error)})"
        )
        raise invalid("make_env", make_env, allowed) from None


def checked_environment(
    config: SACConfig, make_env: MakeEnv | None, max_episode_steps: int | None, run: Run | None
) -> "PyEnvironment":
    """Makes the environment once here, so that a mistake is named before any work."""
    source, limit = environment_source(config, make_env), config.environment_timeout
    env = make_environment(source, config.seed, max_episode_steps, timeout=limit)
    check_specs(env)
    check_tuned(config, env)
    return env
