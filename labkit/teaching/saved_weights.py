"""The policy of a run in NumPy, from the weights that the run saved: no SavedModel is executed."""

import hashlib
from pathlib import Path

from labkit.environments.make import MINITAUR
from labkit.errors import ParameterError
from labkit.parameters import invalid
from labkit.sac.actor import Actor
from labkit.sac.saved_policy import load_actor
from labkit.training.run import read_config

VARIABLES = Path("policy/variables/variables")  # of the SavedModel, without the suffix
DATA = VARIABLES.with_suffix(".data-00000-of-00001")


def load_policy(folder: Path) -> Actor:
    """The deterministic policy of a run of the Minitaur, from its configuration and variables.

    Raises:
        ParameterError: a file is missing or damaged, or the run has another environment.
    """
    config = read_config(folder)
    if config.env_name != MINITAUR:
        raise invalid("policy", str(folder), f"a run of {MINITAUR}, not of {config.env_name}")
    return load_actor(folder / "policy", config.observation_scale)


def fingerprint(folder: Path) -> str:
    """Twelve hexadecimal digits that name the weights: the first of the SHA-256 of their file.

    Raises:
        ParameterError: the file is missing.
    """
    try:
        return hashlib.sha256((folder / DATA).read_bytes()).hexdigest()[:12]
    except OSError:
        raise ParameterError(f"{folder} has no saved policy ({DATA})") from None
