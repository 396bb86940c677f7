"""Plays the policy of a run and records two episodes: `labkit watch`."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import imageio_ffmpeg

import labkit
from labkit.environments.make import check_name, make_environment
from labkit.errors import ParameterError, StorageError, first_line, storage
from labkit.parameters import invalid
from labkit.plotting import video
from labkit.sac import saved_policy
from labkit.sac.rollout import Policy
from labkit.training.run import (
    TRACKED_POLICY,
    describe,
    differences,
    read_config,
    read_content,
    write_atomically,
)

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

JOIN_SECONDS = 60  # copying two short clips takes less than one
CHECKOUT = Path(__file__).resolve().parents[2]  # where labkit is installed from its checkout


def tracked_policy() -> Path:
    """The folder of the tracked policy: below the working directory, or in the checkout.

    Raises:
        ParameterError: neither has one.
    """
    for root in (Path.cwd(), CHECKOUT):
        if (root / TRACKED_POLICY / "after.mp4").is_file():
            return root / TRACKED_POLICY
    missing = f"no {TRACKED_POLICY / 'after.mp4'} here (only a checkout has it)"
    raise ParameterError(f"{missing}; name a run directory, such as `labkit watch runs/0001`")


def check_out(out: Path | None) -> None:
    """Rejects an invalid file name for the clip, an existing file, and a folder of others.

    Raises:
        ParameterError: says what is allowed.
    """
    if out is None:
        return
    if out.suffix != ".mp4" or out.exists() or out.is_symlink():
        allowed = "a new file whose name ends in .mp4; labkit overwrites no other clip than its own"
        raise invalid("--out", str(out), allowed)
    folder = next(parent for parent in out.absolute().parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise invalid("--out", str(out), f"a file in a folder that can be written, not {folder}")


def record(folder: Path, seed: int, out: Path) -> None:
    """Records two episodes and prints the return and length of each.

    Raises:
        ParameterError, RunError, StorageError: see `film`.
    """
    for recording in film(folder, seed, out):
        print(f"return {recording.return_:+.2f}, {recording.steps} steps")
    print(f"recorded: {out}")


def load(folder: Path) -> tuple["PyEnvironment", Policy]:
    """The environment of a run's `config.json`, and its policy, the SavedModel in `policy/`.

    Raises:
        ParameterError: one of them is missing or damaged, or the run's environment is not the
            registered one.
    """
    config = read_config(folder)
    saved_policy.check_exists(folder / "policy")
    try:
        check_name(config.env_name)
    except ParameterError as error:
        what = (
            f"its environment {config.env_name!r} came from make_env, or is missing here: {error}"
        )
        raise ParameterError(f"{folder} cannot be played: {what}") from None
    policy = saved_policy.load(folder / "policy")
    record = read_content(folder).get("environment") or {}
    with labkit.quiet():
        env = make_environment(config.env_name, max_episode_steps=record.get("max_episode_steps"))
    if differing := differences(folder, describe(env)):
        what = f"its environment is not {config.env_name!r} as registered here ({differing})"
        raise ParameterError(f"{folder} cannot be played: {what}")
    sizes = env.observation_spec().shape, env.action_spec().shape
    if sizes != ((policy.observation_size,), policy.low.shape):
        what = f"its policy maps {policy.observation_size} numbers to {policy.low.size} actions"
        raise ParameterError(f"{folder} cannot be played: {what}, unlike {config.env_name}")
    return env, lambda one: policy.actions(one[None])[0]


def film(folder: Path, seed: int, out: Path, max_steps: int = 1000) -> list[video.Recording]:
    """Records two deterministic episodes, each of at most `max_steps` env steps, in one MP4.

    The first episode has the seed `seed`, the second one the next.

    Raises:
        ParameterError: see `load` and `video.record_episode`; or the environment cannot be drawn.
        RunError: MuJoCo cannot draw on this machine; or see `collector.play`.
        StorageError: `out` or a temporary file cannot be written.
    """
    env, act = load(folder)
    with tempfile.TemporaryDirectory() as drafts:
        parts = [
            video.record_episode(
                env,
                act,
                Path(drafts) / f"{number}.mp4",
                seed=seed + number,
                max_steps=max_steps,
            )
            for number in range(2)
        ]
        join([part.path for part in parts], out)
    return parts


def join(parts: list[Path], out: Path) -> None:
    """Concatenates MP4 files of one size and codec without encoding them again.

    Raises:
        StorageError: `out` cannot be written.
    """
    listing = parts[0].with_suffix(".txt")
    listing.write_text("".join(f"file {part.name}\n" for part in parts))
    draft = parts[0].with_name("joined.mp4")
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-f", "concat", "-i", str(listing)]
    command += ["-c", "copy", "-movflags", "+faststart", str(draft)]
    with storage(out):
        try:
            subprocess.run(command, check=True, timeout=JOIN_SECONDS)
        except subprocess.SubprocessError as error:
            raise StorageError(f"{out} cannot be written: {first_line(error)}") from None
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, draft.read_bytes())
