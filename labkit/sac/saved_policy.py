"""A policy that a run saved: the SavedModel in `policy/`, and its weights as arrays.

The SavedModel holds the deterministic policy: dense layers with ReLU, a last layer whose first half
is the mean (the other half the logarithm of the standard deviation), then
`middle + half_range * tanh(mean)`.
"""

import itertools
import re
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from labkit.errors import ParameterError, first_line
from labkit.parameters import check_no_wildcards
from labkit.runtime import quiet
from labkit.sac.actor import Actor

# Of an action, as a share of half its range. Arithmetic in another order differs by 1e-6; a layer
# or a scale that is wrong, by much more.
TOLERANCE = 1e-4
CHECKED = 1_000  # observations on which two forms of a policy are compared


@attrs.frozen
class SavedPolicy:
    """A loaded SavedModel with the range of its actions.

    Attributes:
        folder: where it was read.
        saved: TensorFlow's object.
        observation_size: numbers in an observation.
        low, high: bounds of each action `[act] float32`.
    """

    folder: Path
    saved: Any
    observation_size: int
    low: np.ndarray
    high: np.ndarray

    def actions(self, observations: np.ndarray) -> np.ndarray:
        """Returns actions `[batch, act] float32` for observations `[batch, obs] float32`."""
        from tf_agents.trajectories import time_step as ts

        steps = ts.restart(observations, batch_size=len(observations))
        return self.saved.action(steps).action.numpy()


def check_exists(folder: Path) -> None:
    """Rejects a run without a SavedModel in `folder`, its `policy/`; loads nothing.

    Raises:
        ParameterError: names the run and the file.
    """
    if not (folder / "saved_model.pb").is_file():
        raise ParameterError(f"{folder.parent} has no saved policy ({folder.name}/saved_model.pb)")


def load(folder: Path) -> SavedPolicy:
    """Loads the SavedModel in `folder`.

    Raises:
        ParameterError: it is missing or damaged, its path has wildcards, or its observation or
            action is not one vector.
    """
    check_exists(folder)
    check_no_wildcards("policy", folder)
    with quiet():
        import tensorflow as tf
        from tf_agents.specs import tensor_spec

        try:
            saved = tf.saved_model.load(str(folder))
            specs = tensor_spec.from_pbtxt_file(str(folder / "policy_specs.pbtxt"))
            spec = specs["collect_data_spec"]
            observation, action = spec.observation, spec.action
        except Exception as error:  # TensorFlow has many types for a damaged file
            raise ParameterError(f"{folder} is damaged ({first_line(error)})") from None
    shapes: list[tuple[int, ...]] = [
        tuple(getattr(one, "shape", ())) for one in (observation, action)
    ]
    if [len(shape) for shape in shapes] != [1, 1] or not hasattr(action, "minimum"):
        what = "its observation and its action must each be one vector, the action with bounds"
        raise ParameterError(f"{folder} is no policy of labkit's SAC: {what}")
    size = int(shapes[1][0])
    low, high = (np.full(size, bound, np.float32) for bound in (action.minimum, action.maximum))
    return SavedPolicy(folder, saved, int(shapes[0][0]), low, high)


def arrays(policy: SavedPolicy, observation_scale: tuple[float, ...]) -> dict[str, np.ndarray]:
    """The policy as arrays float32, by the names that `numpy_policy.Policy` reads.

    Args:
        policy: a loaded SavedModel.
        observation_scale: the divisor of each observation, as in `SACConfig`; empty for 1.

    Returns:
        `observation_scale [obs]`; `kernel_0 [obs, units]`, `bias_0 [units]`, and so on up to the
        mean of the action; `action_middle` and `action_half_range` `[act]`.

    Raises:
        ParameterError: the weights are no such network.
    """
    size = len(policy.low)
    weights = [variable.numpy() for variable in getattr(policy.saved, "model_variables", ())]
    kernels, biases = weights[0::2], weights[1::2]
    inputs = [policy.observation_size, *(len(bias) for bias in biases[:-1])]
    outputs = [*inputs[1:], 2 * size]
    wanted = [shape for io in zip(inputs, outputs, strict=True) for shape in (io, io[1:])]
    scale = np.asarray(observation_scale or 1.0, np.float32)
    fits = scale.size in (1, policy.observation_size)
    if not weights or [one.shape for one in weights] != wanted or not fits:
        what = "its weights are not dense layers from observation to mean and standard deviation"
        raise ParameterError(f"{policy.folder} cannot be expressed without TensorFlow: {what}")
    layers = list(zip(kernels[:-1], biases[:-1], strict=True))
    layers.append((kernels[-1][:, :size], biases[-1][:size]))
    found = {"observation_scale": np.broadcast_to(scale, policy.observation_size)}
    for number, (kernel, bias) in enumerate(layers):
        found |= {f"kernel_{number}": kernel, f"bias_{number}": bias}
    found["action_middle"] = (policy.high + policy.low) / 2.0
    found["action_half_range"] = (policy.high - policy.low) / 2.0
    return {name: np.ascontiguousarray(array, np.float32) for name, array in found.items()}


def sample_observations(scale: np.ndarray) -> np.ndarray:
    """Observations `[1000, obs] float32` on which two forms of a policy are compared.

    Args:
        scale: the divisor of each observation `[obs]`. The numbers drawn here have a standard
            deviation of a third of it.
    """
    generator = np.random.default_rng(0)
    return (generator.standard_normal((CHECKED, len(scale))) * scale / 3).astype(np.float32)


def difference(one: np.ndarray, other: np.ndarray, half_range: np.ndarray) -> float:
    """The largest difference of two arrays of actions `[batch, act]`, as a share of half a range.

    NaN if an action is not a number.
    """
    return float(np.max(np.abs(one - other) / half_range))


VARIABLES = Path("variables/variables")  # of a SavedModel, without the suffix


def load_actor(folder: Path, observation_scale: tuple[float, ...]) -> Actor:
    """The deterministic policy in `folder`, the `policy/` of a run, in NumPy.

    Args:
        folder: the SavedModel.
        observation_scale: as in the run's configuration.

    Raises:
        ParameterError: a file is missing or damaged, or the weights are no actor of labkit.
    """
    check_no_wildcards("policy", folder)
    with quiet():
        import tensorflow as tf
        from tf_agents.specs import tensor_spec

        try:
            reader = tf.train.load_checkpoint(str(folder / VARIABLES))
            shapes = reader.get_variable_to_shape_map()
            names = [name for name in shapes if name.startswith("model_variables/")]
            # By number: as text, the tenth would come before the second.
            names.sort(key=lambda name: int(re.findall(r"\d+", name)[0]))
            weights = [reader.get_tensor(name) for name in names]
            specs = tensor_spec.from_pbtxt_file(str(folder / "policy_specs.pbtxt"))
            spec = specs["collect_data_spec"]
            observation, action = spec.observation.shape[0], spec.action.shape[0]
            low, high = (np.full(action, b) for b in (spec.action.minimum, spec.action.maximum))
        except Exception as error:  # TensorFlow has many types for a damaged file
            reason = f"is missing or damaged ({first_line(error)})"
            raise ParameterError(f"the saved policy in {folder} {reason}") from None
    sizes = [observation, *(len(bias) for bias in weights[1:-1:2]), 2 * action]
    layers = itertools.pairwise(sizes)
    wanted = [shape for inputs, units in layers for shape in ((inputs, units), (units,))]
    fits = len(observation_scale) in (0, observation)
    if not weights or [weight.shape for weight in weights] != wanted or not fits:
        what = "its weights are not dense layers from observation to mean and standard deviation"
        raise ParameterError(f"{folder} is no policy of labkit: {what}")
    return Actor(weights, low, high, observation_scale)
