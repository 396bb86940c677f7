"""Plays the policy of a run and records it: `labkit watch`."""

from pathlib import Path
from typing import TYPE_CHECKING

from labkit.environments.make import make_environment
from labkit.errors import ParameterError
from labkit.parameters import invalid
from labkit.plotting import video
from labkit.runtime import quiet
from labkit.sac.actor import Actor
from labkit.sac.rollout import load_actor
from labkit.training.records import describe
from labkit.training.run import check_links, differences, read_config, read_content

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment


def load(folder: Path) -> tuple["PyEnvironment", Actor]:
    """The environment of a run, and its deterministic policy.

    Raises:
        ParameterError: one is missing or damaged, or the environment is not the registered one.
    """
    check_links(folder)
    config, record = read_config(folder), read_content(folder).get("environment") or {}
    policy = load_actor(folder / "policy", config.observation_scale)
    with quiet():
        env = make_environment(config.env_name, None, record.get("max_episode_steps"))
    if differing := differences(folder, describe(env)):
        what = f"its environment came from make_env, or is another one here ({differing})"
        raise ParameterError(f"{folder} cannot be played: {what}")
    return env, policy


def record(folder: Path, seed: int, out: Path | None, max_steps: int = 1000) -> None:
    """Records an episode of at most `max_steps` env steps, and prints its return.

    `out` is a new MP4 file; None is runs/watch.mp4, which is replaced.

    Raises:
        ParameterError: `out` exists or is no MP4; see also `load`.
        RunError, StorageError: see `video.record_episode`.
    """
    if out is not None and (out.suffix != ".mp4" or out.exists()):
        raise invalid("--out", str(out), "a new file whose name ends in .mp4")
    target = out or Path("runs/watch.mp4")
    one = video.record_episode(*load(folder), target, seed=seed, max_steps=max_steps)
    print(f"return {one.return_:+.2f}, {one.steps} steps: {target}")
