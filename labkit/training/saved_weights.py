"""The policy of a run in NumPy, from the weights that the run saved: no SavedModel is executed."""

import hashlib
import re
from pathlib import Path

import numpy as np

from labkit.environments.make import MINITAUR
from labkit.errors import ParameterError
from labkit.parameters import check_no_wildcards, invalid
from labkit.runtime import quiet
from labkit.sac.tempered_policy import TemperedPolicy
from labkit.training.run_directory import read_config

VARIABLES = Path("policy/variables/variables")  # of the SavedModel, without the suffix
SIZES = 28, 16  # of the Minitaur: observation; mean and log standard deviation of eight actions
DATA = VARIABLES.with_suffix(".data-00000-of-00001")


def load_policy(folder: Path) -> TemperedPolicy:
    """The deterministic policy of a run of the Minitaur, from its configuration and variables.

    Raises:
        ParameterError: a file is missing or damaged, or the run has another environment.
    """
    config = read_config(folder)
    if config.env_name != MINITAUR:
        raise invalid("policy", str(folder), f"a run of {MINITAUR}, not of {config.env_name}")
    weights, scale = read(folder), config.observation_scale
    sizes = len(weights[0]), len(weights[-1])
    if sizes != SIZES:
        what = f"maps {sizes[0]} numbers to {sizes[1]}, not {SIZES[0]} to {SIZES[1]}"
        raise ParameterError(f"{folder} has a policy of another robot: it {what}")
    return TemperedPolicy(weights, scale)


def read(folder: Path) -> list[np.ndarray]:
    """Kernels and biases of the actor in turn, float32.

    Raises:
        ParameterError: the variables are missing or damaged, or the path has wildcards.
    """
    check_no_wildcards("policy", folder)
    with quiet():
        import tensorflow as tf
    try:
        reader = tf.train.load_checkpoint(str(folder / VARIABLES))
        names = [n for n in reader.get_variable_to_shape_map() if n.startswith("model_variables/")]
        # By number: as text, the tenth would come before the second.
        names.sort(key=lambda name: int(re.findall(r"\d+", name)[0]))
        found = [reader.get_tensor(name) for name in names]
    except (tf.errors.OpError, ValueError, IndexError):
        found = []
    if len(found) < 2:
        raise ParameterError(f"{folder} has no saved policy, or a damaged one ({VARIABLES})")
    return found


def fingerprint(folder: Path) -> str:
    """Twelve hexadecimal digits that name the weights: the first of the SHA-256 of their file.

    Raises:
        ParameterError: the file is missing.
    """
    try:
        return hashlib.sha256((folder / DATA).read_bytes()).hexdigest()[:12]
    except OSError:
        raise ParameterError(f"{folder} has no saved policy ({DATA})") from None
