"""A policy as an ONNX model, built node by node from its weights.

Converters from TensorFlow fail on the operations of TensorFlow Probability in the SavedModel. onnx
is an optional dependency: pip install '.[export]'.
"""

import importlib.util
from collections.abc import Mapping

import numpy as np

from labkit.errors import ParameterError

# Those of ONNX 1.10, of 2021, so that old runtimes read the file, too.
OPSET = 15
IR_VERSION = 8
INSTALL = "pip install '.[export]' in labkit's folder"


def check_installed() -> None:
    """Rejects a machine without onnx.

    Raises:
        ParameterError: says what to install.
    """
    if importlib.util.find_spec("onnx") is None:
        raise ParameterError(f"onnx, which writes policy.onnx, is not installed here: {INSTALL}")


def build(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> bytes:
    """The model as bytes: `observation [batch, obs]` to `action [batch, act]`, both float32.

    Args:
        arrays: as `saved_policy.arrays` returns them; they become the model's initialisers.
        metadata: text that the file carries, such as the environment's id.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def node(operation: str, *inputs: str) -> str:
        name = f"{operation.lower()}_{len(nodes)}"
        nodes.append(helper.make_node(operation, inputs, [name], name=name))
        return name

    nodes: list[onnx.NodeProto] = []
    hidden = node("Div", "observation", "observation_scale")
    last = sum(name.startswith("kernel_") for name in arrays) - 1
    for number in range(last + 1):
        hidden = node("Add", node("MatMul", hidden, f"kernel_{number}"), f"bias_{number}")
        hidden = node("Tanh" if number == last else "Relu", hidden)
    scaled = node("Mul", hidden, "action_half_range")
    nodes.append(helper.make_node("Add", [scaled, "action_middle"], ["action"], name="action"))

    def vector(name: str, like: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", len(arrays[like])])

    graph = helper.make_graph(
        nodes,
        "deterministic_policy",
        [vector("observation", "observation_scale")],
        [vector("action", "action_middle")],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    model.producer_name = "labkit"
    helper.set_model_props(model, dict(metadata))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


def actions(model: bytes, observations: np.ndarray) -> np.ndarray:
    """Actions `[batch, act] float32` for observations `[batch, obs]`, by onnx's own evaluator.

    It is slow and needs no runtime: for the check of a new file.
    """
    import onnx
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(onnx.load_from_string(model))
    (found,) = evaluator.run(None, {"observation": observations})
    return np.asarray(found)
