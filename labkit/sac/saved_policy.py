"""Reads the weights of a policy that a run saved; nothing of the SavedModel is executed."""

from pathlib import Path

import numpy as np

from labkit.errors import ParameterError, first_line
from labkit.parameters import check_no_wildcards
from labkit.runtime import quiet
from labkit.sac.actor import Actor


def load_actor(folder: Path, observation_scale: tuple[float, ...]) -> Actor:
    """The deterministic policy in `folder`, the `policy/` of a run with this observation scale.

    Raises:
        ParameterError: a file is missing or damaged.
    """
    check_no_wildcards("policy", folder)
    with quiet():
        import tensorflow as tf
        from tf_agents.specs import tensor_spec

        try:
            reader = tf.train.load_checkpoint(str(folder / "variables/variables"))
            shapes = reader.get_variable_to_shape_map()
            names = [name for name in shapes if name.startswith("model_variables/")]
            names.sort(key=lambda name: (len(name), name))  # the tenth is not before the second
            specs = tensor_spec.from_pbtxt_file(str(folder / "policy_specs.pbtxt"))
            action = specs["collect_data_spec"].action
            low, high = (np.full(action.shape, b) for b in (action.minimum, action.maximum))
            return Actor([reader.get_tensor(n) for n in names], low, high, observation_scale)
        except Exception as error:  # TensorFlow has many types for a damaged file
            reason = f"is missing or damaged ({first_line(error)})"
            raise ParameterError(f"the saved policy in {folder} {reason}") from None
