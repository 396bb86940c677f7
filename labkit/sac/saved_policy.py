"""Reads the weights of a policy that a run saved; nothing of the SavedModel is executed.

The SavedModel holds the deterministic policy: dense layers with ReLU, a last layer whose first half
is the mean (the other half the logarithm of the standard deviation), then
`middle + half_range * tanh(mean)`.
"""

import itertools
import re
from pathlib import Path

import numpy as np

from labkit.errors import ParameterError, first_line
from labkit.parameters import check_no_wildcards
from labkit.runtime import quiet
from labkit.sac.actor import Actor

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
