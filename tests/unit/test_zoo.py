"""The zoo: the same bytes each time, valid, alive, and one row never depends on another."""

import hashlib
from functools import cache

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest

from tickpath.engines import zoo

# What the models are, for ever: a change here changes every number that was ever measured with them.
SHA256_START = {
    "null": "9b45224dbcd7fb37",
    "mlp": "03a9b2333370518f",
    "gru": "e675e645e37a8bde",
    "deeplob": "824b732b8eee96db",
    "lstm_a": "c6f987eb5468cf31",
    "lstm_b": "b314f702f4a19efa",
    "lstm_c": "3c14785e3ffc483f",
}


@cache
def model_bytes(name: str) -> bytes:
    return bytes(zoo.build(name).SerializeToString())


def row_shape(name: str) -> tuple[int, ...]:
    sizes = onnx.load_from_string(model_bytes(name)).graph.input[0].type.tensor_type.shape.dim
    return tuple(size.dim_value for size in sizes[1:])


def inputs(name: str, rows: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(7).standard_normal((rows, *row_shape(name)), np.float32)


@cache
def session(name: str) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model_bytes(name), providers=["CPUExecutionProvider"])


def answers(name: str, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    (y,) = session(name).run(["y"], {"x": x})
    return np.asarray(y, np.float32)


@pytest.mark.parametrize("name", zoo.names())
def test_same_bytes_for_ever(name: str) -> None:
    digest = hashlib.sha256(model_bytes(name)).hexdigest()
    assert digest == hashlib.sha256(zoo.build(name).SerializeToString()).hexdigest()
    assert digest.startswith(SHA256_START[name])


@pytest.mark.parametrize("name", zoo.names())
def test_valid_with_a_symbolic_batch_axis(name: str) -> None:
    model = onnx.load_from_string(model_bytes(name))
    onnx.checker.check_model(model, full_check=True)
    for value in (model.graph.input[0], model.graph.output[0]):
        assert value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch"


@pytest.mark.parametrize("name", zoo.names())
def test_answers_are_finite_differ_and_are_not_saturated(name: str) -> None:
    y = answers(name, inputs(name, 8))
    assert np.isfinite(y).all()
    assert np.abs(y).max() < 10
    assert y.std(axis=0).min() > 1e-3


@pytest.mark.parametrize("rows", [1, 2, 8])
@pytest.mark.parametrize("name", zoo.names())
def test_rows_are_independent(name: str, rows: int) -> None:
    x = inputs(name, 8)
    apart = np.concatenate([answers(name, x[first : first + rows]) for first in range(0, 8, rows)])
    others = np.full_like(x, 3.0)
    others[0] = x[0]
    assert answers(name, others[:rows])[0] == pytest.approx(apart[0], rel=1e-4, abs=1e-6)
    assert apart == pytest.approx(answers(name, x), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", zoo.names())
def test_described_in_one_line(name: str) -> None:
    assert "\n" not in zoo.describe(name)


def test_unknown_name_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        zoo.build("resnet")
