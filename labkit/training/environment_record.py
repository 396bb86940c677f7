"""What a run's environment is, kept beside its results: a resumed run has to have the same one."""

import json
from typing import TYPE_CHECKING, Any

from labkit.environments.seeding import environment_name, seeded_env
from labkit.errors import ParameterError, storage
from labkit.parameters import invalid
from labkit.training.files import write_atomically
from labkit.training.run_directory import Run

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


def check_same_environment(run: Run, env: "PyEnvironment") -> None:
    """Writes what the environment is when a run begins, and compares it when the run resumes.

    Raises:
        ParameterError: it differs, or the record is damaged.
        StorageError: the record cannot be written.
    """
    file, found = run.path / FILE, describe(env)
    with storage(file):
        if not file.exists():
            run.check_lock()
            write_atomically(file, json.dumps(found, indent=2) + "\n")
            return
        text = file.read_text(errors="replace")
    try:
        theirs = dict(json.loads(text))
    except (ValueError, TypeError):
        raise ParameterError(f"{file} is damaged: it is not the JSON that labkit writes") from None
    differing = [
        f"{name}: {theirs.get(name)} there and {value} here"
        for name, value in found.items()
        if theirs.get(name) != value
    ]
    if differing:
        allowed = f"a run of the same environment ({'; '.join(differing)})"
        raise invalid("run_dir", str(run.path), allowed)
