"""What a run's environment is, kept beside its results: a resumed run has to have the same one."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.environments.seeding import environment_name, seeded_env
from labkit.errors import ParameterError, storage
from labkit.parameters import invalid
from labkit.training import checkpoint
from labkit.training.files import write_atomically
from labkit.training.run_directory import Run, read_metrics

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

FILE = "environment.json"


def describe(env: "PyEnvironment") -> dict[str, Any]:
    """Name, spaces and time limit of an environment, for JSON.

    The name is the registered id, or the class of an environment that is not registered.
    """
    checked = seeded_env(env).env
    action = checked.action_space
    return {
        "name": environment_name(env),
        "observation shape": list(checked.observation_space.shape),
        "action shape": list(action.shape),
        "action bounds": [action.low.ravel().tolist(), action.high.ravel().tolist()],
        "max_episode_steps": checked.max_episode_steps,
    }


def read_record(folder: Path) -> dict[str, Any]:
    """What `describe` found when the run in `folder` began; empty if the run has no record.

    Raises:
        ParameterError: the record is damaged.
    """
    file = folder / FILE
    if not file.is_file():  # a run of labkit 0.1, or a tracked one
        return {}
    try:
        return dict(json.loads(file.read_text(errors="replace")))
    except (ValueError, TypeError):
        raise ParameterError(f"{file} is damaged: it is not the JSON that labkit writes") from None


def differences(record: dict[str, Any], found: dict[str, Any]) -> str:
    """What differs between a run's record and an environment; empty if nothing does."""
    return "; ".join(
        f"{name}: {record.get(name)} there and {value} here"
        for name, value in found.items()
        if record.get(name) != value
    )


def check_same_environment(run: Run, env: "PyEnvironment") -> None:
    """Writes what the environment is when a run begins, and compares it when the run resumes.

    A run that was stopped in its warm-up begins again, maybe with another environment.

    Raises:
        ParameterError: it differs, or the record is damaged.
        StorageError: the record cannot be written.
    """
    file, found = run.path / FILE, describe(env)
    with storage(file):
        begun = checkpoint.latest(run.path / "checkpoints") is not None
        # Only without a checkpoint: beside one, a lost `metrics.csv` is created again later.
        begun = begun or len(read_metrics(run.path, repaired=True)) > 0
        if not (begun and file.exists()):
            run.check_lock()
            write_atomically(file, json.dumps(found, indent=2) + "\n", durable=True)
            return
        theirs = read_record(run.path)
    if differing := differences(theirs, found):
        allowed = f"a run of the same environment ({differing})"
        raise invalid("run_dir", str(run.path), allowed)
