"""Plays the policy of a run and records two episodes: `labkit watch`."""

import itertools
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import imageio.v2 as imageio

from labkit.environments.make import make_environment
from labkit.errors import ParameterError
from labkit.parameters import invalid
from labkit.plotting import video
from labkit.runtime import quiet
from labkit.sac.actor import Actor
from labkit.sac.saved_policy import load_actor
from labkit.training.run import check_links, describe, differences, read_config, read_content

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
    try:
        with quiet():
            env = make_environment(config.env_name, None, record.get("max_episode_steps"))
        differing = differences(folder, describe(env))
    except ParameterError as error:
        differing = str(error)
    if differing:
        what = "its environment came from make_env, or is another one here"
        raise ParameterError(f"{folder} cannot be played: {what} ({differing})")
    return env, policy


def record(folder: Path, seed: int, out: Path | None, max_steps: int = 1000) -> None:
    """Records two episodes of at most `max_steps` env steps, and prints their returns.

    `seed` is that of the first episode; the second one has the next. `out` is a new MP4 file; None
    is runs/watch.mp4, which is replaced.

    Raises:
        ParameterError: `out` exists or is no MP4; see also `load`.
        RunError, StorageError: see `video.record_episode`.
    """
    if out is not None and (out.suffix != ".mp4" or os.path.lexists(out)):
        raise invalid("--out", str(out), "a new file whose name ends in .mp4")
    target = out or Path("runs/watch.mp4")
    env, policy = load(folder)
    with tempfile.TemporaryDirectory() as drafts:
        clips = [Path(drafts) / "first.mp4", Path(drafts) / "second.mp4"]
        for number, clip in enumerate(clips, start=seed):
            one = video.record_episode(env, policy, clip, seed=number, max_steps=max_steps)
            print(f"return {one.return_:+.2f}, {one.steps} steps")
        readers: list[Any] = [imageio.get_reader(clip) for clip in clips]
        video.write_mp4(target, itertools.chain(*readers), readers[0].get_meta_data()["fps"])
    print(f"recorded: {target}")
