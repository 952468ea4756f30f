"""Model repositories on disk, made where a test needs them."""

from pathlib import Path

import numpy as np
import onnx
from onnx import helper
from tests.onnx_models import constant, model, value


def add_version(repository: Path, name: str, version: str, content: bytes | onnx.ModelProto | Path) -> Path:
    """A version's folder with its model in it: these bytes, this model, or a copy of this file."""
    folder = repository / name / version
    folder.mkdir(parents=True)
    if isinstance(content, onnx.ModelProto):
        content = content.SerializeToString()
    (folder / "model.onnx").write_bytes(content.read_bytes() if isinstance(content, Path) else content)
    return folder


def scale(factor: float) -> onnx.ModelProto:
    """`y = factor * x`, three numbers a row."""
    node = helper.make_node("Mul", ["x", "factor"], ["y"])
    sides = ([value("x", np.float32, ["N", 3])], [value("y", np.float32, ["N", 3])])
    return model([node], *sides, [constant("factor", factor)])


def renamed(factor: float) -> onnx.ModelProto:
    """The same with another name of its input: no promise that was made of the old one holds."""
    proto = scale(factor)
    proto.graph.input[0].name = proto.graph.node[0].input[0] = "renamed"
    return proto


def slow_scale(factor: float, steps: int) -> onnx.ModelProto:
    """What `scale` answers, after a recurrence of this many steps that comes to nothing."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Mul", ["x", "factor"], ["scaled"]),
        helper.make_node("ReduceSum", ["x", "one"], ["sum"]),
        helper.make_node("Mul", ["sum", "ones"], ["repeated"]),
        helper.make_node("Transpose", ["repeated"], ["turned"], perm=[1, 0]),
        helper.make_node("Unsqueeze", ["turned", "two"], ["sequence"]),
        helper.make_node("GRU", ["sequence", "W", "R"], ["", "state"], hidden_size=8),
        helper.make_node("Squeeze", ["state", "zero"], ["features"]),
        helper.make_node("ReduceSum", ["features", "one"], ["total"]),
        helper.make_node("Mul", ["total", "nothing"], ["naught"]),
        helper.make_node("Add", ["scaled", "naught"], ["y"]),
    ]
    constants = [
        constant("factor", factor),
        constant("nothing", 0),
        constant("ones", np.ones((1, steps))),
        constant("W", random.standard_normal((1, 24, 1))),
        constant("R", random.standard_normal((1, 24, 8))),
        constant("zero", [0], np.int64),
        constant("one", [1], np.int64),
        constant("two", [2], np.int64),
    ]
    return model(nodes, [value("x", np.float32, ["N", 3])], [value("y", np.float32, ["N", 3])], constants)


def killer() -> onnx.ModelProto:
    """A valid model that ends its process: the runtime calls `std::terminate` on an empty batch of a recurrent
    operator."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Slice", ["x", "zero", "zero", "one"], ["nothing"]),
        helper.make_node("GRU", ["nothing", "W", "R"], ["", "state"], hidden_size=5),
        helper.make_node("ReduceSum", ["state"], ["y"], keepdims=0),
    ]
    constants = [
        constant("W", random.standard_normal((1, 15, 3))),
        constant("R", random.standard_normal((1, 15, 5))),
        constant("zero", [0], np.int64),
        constant("one", [1], np.int64),
    ]
    return model(nodes, [value("x", np.float32, [4, 2, 3])], [value("y", np.float32, [])], constants)
