"""Tiny ONNX models, made where a test needs them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

Dims = Sequence[int | str | None] | None


def value(name: str, dtype: npt.DTypeLike, dims: Dims) -> onnx.ValueInfoProto:
    """An input or output: a size, a symbolic name or None for each dimension; None in their place for no rank."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dims)


def constant(name: str, array: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array, dtype), name)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "test", list(inputs), list(outputs), list(constants))
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])


def one_node(operator: str, dtype: npt.DTypeLike, dims: Dims, out: npt.DTypeLike | None = None) -> onnx.ModelProto:
    """`y = operator(x)`, element by element."""
    node = helper.make_node(operator, ["x"], ["y"])
    return model([node], [value("x", dtype, dims)], [value("y", out or dtype, dims)])


def gru(hidden: int = 5, features: int = 3, steps: int = 4) -> onnx.ModelProto:
    """A GRU whose batch axis differs from input to input: data [N,steps,features], state [1,N,hidden]."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Transpose", ["data"], ["steps_first"], perm=[1, 0, 2]),
        helper.make_node("GRU", ["steps_first", "W", "R", "", "", "state"], ["all", "state_out"], hidden_size=hidden),
        helper.make_node("Squeeze", ["all", "one"], ["squeezed"]),
        helper.make_node("Transpose", ["squeezed"], ["predictions"], perm=[1, 0, 2]),
    ]
    return model(
        nodes,
        [value("data", np.float32, ["batch", steps, features]), value("state", np.float32, [1, "batch", hidden])],
        [
            value("predictions", np.float32, ["batch", steps, hidden]),
            value("state_out", np.float32, [1, "batch", hidden]),
        ],
        [
            constant("W", random.standard_normal((1, 3 * hidden, features))),
            constant("R", random.standard_normal((1, 3 * hidden, hidden))),
            constant("one", [1], np.int64),
        ],
    )


def picky(factor: float = 1.0) -> onnx.ModelProto:
    """`factor` times the square of a whole number below 64; at a larger one the runtime itself fails."""
    nodes = [
        helper.make_node("Cast", ["x"], ["index"], to=onnx.TensorProto.INT64),
        helper.make_node("Gather", ["squares", "index"], ["y"]),
    ]
    squares = constant("squares", factor * np.arange(64) ** 2)
    return model(nodes, [value("x", np.float32, ["N", 1])], [value("y", np.float32, ["N", 1])], [squares])


def tree() -> onnx.ModelProto:
    """A decision tree as sklearn's forests are exported: 1 at 0.5 or less, 2 above. A NaN goes one of the ways."""
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_values=[0.5, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        target_treeids=[0, 0],
        target_nodeids=[1, 2],
        target_ids=[0, 0],
        target_weights=[1.0, 2.0],
    )
    proto = model([node], [value("x", np.float32, ["N", 2])], [value("y", np.float32, ["N", 1])])
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return proto


def save(proto: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


def slow(steps: int) -> onnx.ModelProto:
    """One float in, eight out, after a recurrence of this many steps: long to compute, and small to send."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Mul", ["x", "ones"], ["repeated"]),
        helper.make_node("Transpose", ["repeated"], ["turned"], perm=[1, 0]),
        helper.make_node("Unsqueeze", ["turned", "two"], ["sequence"]),
        helper.make_node("GRU", ["sequence", "W", "R"], ["", "state"], hidden_size=8),
        helper.make_node("Squeeze", ["state", "zero"], ["y"]),
    ]
    constants = [
        constant("ones", np.ones((1, steps))),
        constant("W", random.standard_normal((1, 24, 1))),
        constant("R", random.standard_normal((1, 24, 8))),
        constant("two", [2], np.int64),
        constant("zero", [0], np.int64),
    ]
    return model(nodes, [value("x", np.float32, ["N", 1])], [value("y", np.float32, ["N", 8])], constants)


def wide(width: int) -> onnx.ModelProto:
    """One float in, this many out: small to ask, and large to answer."""
    node = helper.make_node("Mul", ["x", "ones"], ["y"])
    outputs = [value("y", np.float32, ["N", width])]
    return model([node], [value("x", np.float32, ["N", 1])], outputs, [constant("ones", np.ones((1, width)))])
