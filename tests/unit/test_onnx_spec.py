"""How open dimensions are settled, by rule and by declaration; and what can't be carried."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.onnx_models import Dims, constant, model, value

from tickpath.engines import ModelRefusedError
from tickpath.engines.onnx_file import OnnxFile
from tickpath.engines.onnx_spec import Inputs, Shape, declared, find_inputs, find_precision


def inputs_of(tensors: Mapping[str, Dims], **shapes: Shape) -> Inputs:
    proto = model([], [value(name, np.float32, dims) for name, dims in tensors.items()], [])
    return find_inputs(OnnxFile(Path("model.onnx"), b"", proto, ""), shapes)


def described(inputs: Inputs) -> str:
    text = " ".join(tensor.describe().removeprefix("float32") for tensor in inputs.tensors)
    return text if inputs.rows_fixed is None else f"{text} fixed {inputs.rows_fixed}"


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ({"x": ["batch", 120, 3]}, "[N,120,3]"),
        ({"x": [None, 4]}, "[N,4]"),
        ({"x": ["?", 4]}, "[N,4]"),
        ({"x": [4, "batch", 3]}, "[4,N,3]"),
        ({"x": [4, 4]}, "[4,4]"),
        ({"x": [], "y": ["b"]}, "[] [N]"),
        ({"x": ["b", 3], "state": [1, "b", 5]}, "[N,3] [1,N,5]"),
        ({"x": ["unk__1", 3], "y": ["unk__2", 5]}, "[N,3] [N,5]"),
        ({"x": [None, 3], "y": ["batch", 5], "z": [2]}, "[N,3] [N,5] [2]"),
    ],
)
def test_rules(tensors: Mapping[str, Dims], expected: str) -> None:
    assert described(inputs_of(tensors)) == expected


@pytest.mark.parametrize(
    ("tensors", "shapes", "expected"),
    [
        ({"x": ["b", "t", 3], "state": [1, "b", 5]}, {"x": ("N", 4, 3)}, "[N,4,3] [1,N,5]"),
        ({"x": ["b", "t", 3], "state": [1, "b", 5]}, {"x": (2, 4, 3)}, "[2,4,3] [1,2,5]"),
        ({"x": ["b", "t"], "y": ["b", "t"]}, {"x": ("N", 7)}, "[N,7] [N,7]"),
        ({"x": ["t", "b", 3]}, {"x": (6, "N", 3)}, "[6,N,3]"),
        ({"x": None}, {"x": ("N", 4)}, "[N,4]"),
        ({"x": [8, 100, 40]}, {"x": ("N", 100, 40)}, "[N,100,40] fixed 8"),
        ({"x": [8, 3], "y": [8, 5]}, {"x": ("N", 3), "y": ("N", 5)}, "[N,3] [N,5] fixed 8"),
        ({"x": [8, 3], "y": ["b", 5]}, {"x": ("N", 3)}, "[N,3] [N,5] fixed 8"),
        ({"x": [4]}, {"x": (4,)}, "[4]"),
    ],
)
def test_declarations(tensors: Mapping[str, Dims], shapes: Mapping[str, Shape], expected: str) -> None:
    assert described(inputs_of(tensors, **shapes)) == expected


@pytest.mark.parametrize(
    ("tensors", "shapes", "reason"),
    [
        ({"x": ["b", "t", 3]}, {}, r"'x' has open dimensions \[N,t,3\].*--shape x=N,SIZE,3"),
        ({"x": ["b", "t", 3], "s": [1, "b"]}, {}, r'{ x = "N,SIZE,3" }\), where N is the batch axis and SIZE a number'),
        ({"x": ["t", "t"]}, {}, r"--shape x=N,SIZE"),
        ({"x": [2, None, 128]}, {}, r"--shape x=2,N,128"),
        ({"x": ["b", None], "y": [2, "c"]}, {}, r"'x' has open .*; .*'y' has open .* --shape x=N,SIZE --shape y=2,N"),
        ({"x": None}, {}, r"no shape in the file.*--shape x=N,SIZE"),
        ({"x": [3]}, {"y": (3,)}, r"a shape is given for 'y'; the inputs it can be given for are x"),
        ({"x": ["b", 3]}, {"x": ("N", 4)}, r"the shape N,4 .* 'x' does not fit the model's input, which has \[b,3\]"),
        ({"x": ["b", "t"]}, {"x": ("N", 0)}, "the shape N,0 .* 'x': sizes are 1 or more"),
        ({"x": ["b", "t"]}, {"x": (-1, -8)}, "the shape -1,-8 .* 'x': sizes are 1 or more"),
        ({"x": ["b", 3]}, {"x": ("N",)}, r"the shape N .* 'x' has 1 sizes, the model's input has \[b,3\]"),
        ({"x": ["b", 3]}, {"x": ("N", "N")}, r"the batch axis twice"),
        ({"x": [8, 3], "y": [4, 3]}, {"x": ("N", 3), "y": ("N", 3)}, r"different sizes, 8 in 'x', 4 in 'y'"),
        ({"x": [0, 3]}, {}, r"'x' has a dimension of size 0"),
    ],
)
def test_refusals(tensors: Mapping[str, Dims], shapes: Mapping[str, Shape], reason: str) -> None:
    with pytest.raises(ModelRefusedError, match=reason):
        inputs_of(tensors, **shapes)


def test_minus_one_is_open() -> None:
    assert described(inputs_of({"x": [-1, 3]})) == "[N,3]"


FLOATS = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [1])


@pytest.mark.parametrize(
    ("type_proto", "reason"),
    [
        (helper.make_tensor_type_proto(onnx.TensorProto.STRING, [1]), "'v' has element type string.*integer inputs"),
        (helper.make_tensor_type_proto(onnx.TensorProto.BFLOAT16, [1]), "'v' has element type bfloat16.*Cast"),
        (helper.make_tensor_type_proto(onnx.TensorProto.COMPLEX64, [1]), "element type complex64"),
        (helper.make_tensor_type_proto(onnx.TensorProto.FLOAT8E4M3FN, [1]), "element type float8e4m3fn"),
        (helper.make_sequence_type_proto(FLOATS), "'v' is a sequence value.*'zipmap': False"),
        (helper.make_map_type_proto(onnx.TensorProto.INT64, FLOATS), "'v' is a map value.*'zipmap': False"),
        (helper.make_optional_type_proto(FLOATS), "'v' is an optional value"),
        (helper.make_sparse_tensor_type_proto(onnx.TensorProto.FLOAT, [1]), "'v' is a sparse tensor value"),
        (onnx.TypeProto(), "'v' is an untyped value"),
    ],
)
def test_values_that_cannot_be_carried(type_proto: onnx.TypeProto, reason: str) -> None:
    with pytest.raises(ModelRefusedError, match=reason):
        declared(helper.make_value_info("v", type_proto), "output")


def test_precision_is_that_of_most_weights() -> None:
    few, many, indices = constant("a", [1], "f4"), constant("b", [1, 2], "f2"), constant("c", [1, 2, 3], "i8")
    assert find_precision(model([], [], [], [few, many, indices]).graph, np.dtype("f4")) == "float16"
    assert find_precision(model([], [], [], [indices]).graph, np.dtype("f4")) == "float32"
