"""Writes the policy of a run into a folder for the Hugging Face Hub: `labkit export`.

README.md     the model card; see `training/model_card`
policy/       the SavedModel, as the run saved it
policy.onnx   the same policy as ONNX; see `sac/onnx_policy`
policy.npz    the same policy as arrays, and policy.py, which loads them with NumPy alone
config.json, metrics.csv    of the run; replay.mp4, its video, if it has one
SHA256SUMS    the digest of every file but the card, as `sha256sum --check` reads it
"""

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np

from labkit.errors import ParameterError, RunError, storage
from labkit.parameters import check_no_wildcards, grouped, invalid
from labkit.replay import npz
from labkit.sac import numpy_policy, onnx_policy, saved_policy
from labkit.training import metrics, model_card

VIDEO = "replay.mp4"  # the name of the video that the Hub shows beside the card
VIDEOS = ("videos/after.mp4", "after.mp4", VIDEO)  # of a run; a tracked run; an exported run
KEPT = ("format", "config", "versions", "commit", "cpu", "earlier")  # of config.json
UNHASHED = ("README.md", "SHA256SUMS")  # a card is edited on the Hub


def export(run_dir: Path, out: Path | None) -> None:
    """Writes `out`, by default `exports/<the run's name>`, and prints what is in it.

    Raises:
        ParameterError, RunError, StorageError: see `write`.
    """
    target = out or Path("exports") / run_dir.resolve().name
    distance = write(run_dir, target)
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file()) / 1e6
    print(f"exported: {target} ({size:.1f} MB)")
    print(
        f"SavedModel, ONNX and NumPy give the same actions on {grouped(saved_policy.CHECKED)} "
        f"observations: the largest difference is {distance:.1e} of half the action's range"
    )
    print(f"read its card, {target / 'README.md'}; then: hf upload <you>/<name> {target}")


def write(run_dir: Path, target: Path) -> float:
    """Writes the folder, complete or not at all; returns what `check_equal` returned.

    Raises:
        ParameterError: the run is damaged, or has no policy or one that arrays cannot express;
            `target` is not empty; onnx is missing.
        RunError: the forms of the policy differ, which would be a bug of labkit.
        StorageError: `target` cannot be written.
    """
    onnx_policy.check_installed()
    check_target(target)
    facts = model_card.read_facts(run_dir)
    if target.resolve().is_relative_to(run_dir.resolve()):
        raise invalid("--out", str(target), f"a folder outside of {run_dir}")
    policy = saved_policy.load(run_dir / "policy")
    arrays = saved_policy.arrays(policy, facts.config.observation_scale)
    with storage(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            shutil.copytree(run_dir / "policy", draft / "policy")
            has_video = _copy_records(run_dir, draft)
            npz.write(draft / "policy.npz", arrays)
            shutil.copyfile(numpy_policy.__file__, draft / "policy.py")
            metadata = {"environment": facts.config.env_name, "commit": facts.commit or ""}
            model = onnx_policy.build(arrays, metadata)
            (draft / "policy.onnx").write_bytes(model)
            write_digests(draft)
            distance = check_equal(policy, draft, arrays)
            sizes = policy.observation_size, len(policy.low)
            card = model_card.write(facts, *sizes, distance, has_video=has_video)
            (draft / "README.md").write_text(card)
            draft.chmod(0o755)  # mkdtemp's is for the user alone
            draft.rename(target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return distance


def check_target(target: Path) -> None:
    """Rejects a folder that holds anything, the working directory, and a path with wildcards.

    Raises:
        ParameterError: says which, and names what the folder holds.
    """
    check_no_wildcards("--out", target)
    if target.resolve() == Path.cwd():
        raise invalid("--out", str(target), "another folder than the working directory")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise invalid("--out", str(target), "a new or empty folder, not a file or a link")
    if target.is_dir() and (found := sorted(entry.name for entry in target.iterdir())):
        some = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        raise invalid("--out", str(target), f"a new or empty folder; it holds {some}")


def _copy_records(run_dir: Path, draft: Path) -> bool:
    """Copies configuration, metrics, environment and video; returns whether there is a video."""
    content = json.loads((run_dir / "config.json").read_text())
    kept = {name: content[name] for name in KEPT if name in content}
    (draft / "config.json").write_text(json.dumps(kept, indent=2) + "\n")
    for name in (metrics.FILE,):
        if (run_dir / name).is_file():
            shutil.copyfile(run_dir / name, draft / name)
    video = next((run_dir / name for name in VIDEOS if (run_dir / name).is_file()), None)
    if video:
        shutil.copyfile(video, draft / VIDEO)
    return video is not None


def write_digests(folder: Path) -> None:
    """Writes `SHA256SUMS`, one line a file, as `sha256sum --check` reads it."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    names = [file.relative_to(folder).as_posix() for file in files]
    lines = [
        f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n"
        for name in names
        if name not in UNHASHED
    ]
    (folder / "SHA256SUMS").write_text("".join(lines))


def check_equal(
    policy: saved_policy.SavedPolicy, folder: Path, arrays: dict[str, np.ndarray]
) -> float:
    """Compares the actions of the written forms with the run's policy on 1 000 observations.

    Returns:
        The largest difference, as a share of half an action's range.

    Raises:
        ParameterError: the weights do not give the policy's actions: it is not what labkit saves.
        RunError: another form does not give them, although the weights do.
    """
    observations = saved_policy.sample_observations(arrays["observation_scale"])
    model = (folder / "policy.onnx").read_bytes()
    found = {
        "policy.npz": numpy_policy.Policy(folder)(observations),
        "policy.onnx": onnx_policy.actions(model, observations),
        # A run that is still being trained may have replaced its policy since it was loaded.
        "policy/": saved_policy.load(folder / "policy").actions(observations),
    }
    wanted = policy.actions(observations)
    largest = 0.0
    for name, actions in found.items():
        distance = saved_policy.difference(actions, wanted, arrays["action_half_range"])
        if not distance <= saved_policy.TOLERANCE:  # also if it is NaN
            what = f"{name} differs from {policy.folder} by {distance:.2g} of half a range"
            if name == "policy.npz":
                raise ParameterError(f"{policy.folder} cannot be exported: {what}")
            raise RunError(f"{what}; export the run again if it was still training")
        largest = max(largest, distance)
    return largest
