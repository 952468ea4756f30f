"""Batch axes found by running, on models that are plain functions."""

from collections.abc import Callable

import numpy as np
import pytest

from tickpath.engines import Array, ModelRefusedError, TensorSpec, probing
from tickpath.engines.probing import Probe, ProbeFailedError, find_outputs

F4 = np.dtype(np.float32)
ROWS = (TensorSpec("x", F4, (1, 3), 0),)


def outputs_of(
    function: Callable[..., Array],
    inputs: tuple[TensorSpec, ...] = ROWS,
    rows_fixed: int | None = None,
    precision: str = "float32",
) -> str:
    def run(arrays: object) -> list[Array]:
        assert isinstance(arrays, list)
        assert all(array.size for array in arrays), "a model never runs on nothing"
        return [np.asarray(function(*arrays))]

    (output,) = find_outputs(Probe(run, inputs, ("y",), rows_fixed, precision, {}))
    return output.describe()


def test_rows_along_another_axis() -> None:
    assert outputs_of(lambda x: np.stack([x, x]).astype(F4)) == "float32[2,N,3]"


def test_several_places_per_row() -> None:
    assert outputs_of(lambda x: x.reshape(-1)) == "float32[3N]"


def test_kernels_that_round_differently_are_one_model() -> None:
    assert outputs_of(lambda x: x * np.float32(1 + 1e-6 * len(x))) == "float32[N,3]"


def test_no_batch_axis() -> None:
    assert outputs_of(lambda x: x.sum(axis=1), (TensorSpec("x", F4, (2, 3)),)) == "float32[2]"


@pytest.mark.parametrize("shape", [(1, 2**30 + 1), (2**40, 2**40)])
def test_an_input_that_no_request_can_bring_is_not_tried(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelRefusedError, match=r"input 'x', float32.* is larger than any request can be.*--shape"):
        outputs_of(lambda x: x, (TensorSpec("x", F4, shape, 0 if shape[0] == 1 else None),))


def test_inputs_for_which_there_is_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> Array:
        raise MemoryError

    monkeypatch.setattr(probing, "fill", none)
    with pytest.raises(ModelRefusedError, match="no memory for its inputs"):
        outputs_of(lambda x: x)


DEPENDENT: dict[str, Callable[[Array], Array]] = {
    "mean": lambda x: x - x.mean(axis=0, keepdims=True),
    "forward recurrence": lambda x: np.cumsum(x, axis=0),
    "backward recurrence": lambda x: np.cumsum(x[::-1], axis=0)[::-1],
    "reversed": lambda x: x[::-1],
    "largest": lambda x: x / np.abs(x).max(),
    "one quantization scale": lambda x: np.round(x / np.abs(x).max() * 127) * np.abs(x).max() / 127,
    "rows interleaved": lambda x: x.reshape(-1)[np.arange(x.size).reshape(3, -1).T.reshape(-1)].reshape(x.shape),
}


@pytest.mark.parametrize("rows_fixed", [None, 4])
@pytest.mark.parametrize("name", DEPENDENT)
def test_rows_that_depend_on_each_other(name: str, rows_fixed: int | None) -> None:
    with pytest.raises(ModelRefusedError, match="fix that dimension, such as --shape x=1,3"):
        outputs_of(DEPENDENT[name], rows_fixed=rows_fixed)


def test_rows_that_depend_on_their_number() -> None:
    with pytest.raises(ModelRefusedError, match="in output 'y' a row's answer depends on the other rows"):
        outputs_of(lambda x: x + len(x))


def test_an_output_without_rows() -> None:
    with pytest.raises(ModelRefusedError, match=r"'y' has shape \(3,\) for one row and \(3,\) for three"):
        outputs_of(lambda x: x.sum(axis=0))


def test_a_fixed_batch() -> None:
    assert outputs_of(lambda x: np.stack([x, x]), rows_fixed=4) == "float32[2,N,3]"
    assert outputs_of(lambda x: np.repeat(x, 2, axis=0), rows_fixed=4) == "float32[2N,3]"
    assert outputs_of(lambda x: x * 2, rows_fixed=1) == "float32[N,3]"


def test_a_single_integer_that_has_to_be_right() -> None:
    def model(x: Array, rate: Array) -> Array:
        if rate != 16000:
            raise ProbeFailedError("unsupported rate")
        return x

    assert outputs_of(model, (*ROWS, TensorSpec("rate", np.dtype(np.int64), ()))) == "float32[N,3]"


def test_integers_are_small() -> None:
    table = np.arange(3, dtype=F4)
    assert outputs_of(lambda ids: table[ids], (TensorSpec("ids", np.dtype(np.int64), (1, 2), 0),)) == "float32[N,2]"


def test_a_model_that_never_runs() -> None:
    def model(x: Array) -> Array:
        raise ProbeFailedError("bad width")

    with pytest.raises(ModelRefusedError, match=r"not run on inputs x float32\[3, 3\] \(bad width\).*--shape x=1,3"):
        outputs_of(model)
    with pytest.raises(ModelRefusedError, match=r"not run on inputs x float32\[1, 3\] \(bad width\).*--shape"):
        outputs_of(model, (TensorSpec("x", F4, (1, 3)),))


def test_a_model_that_runs_on_one_batch_size_only() -> None:
    def model(x: Array) -> Array:
        if len(x) != 3:
            raise ProbeFailedError("initial state has 3 rows")
        return x

    with pytest.raises(ModelRefusedError, match=r"does not run on 2 rows \(initial state has 3 rows\)"):
        outputs_of(model)


@pytest.mark.parametrize("inputs", [(TensorSpec("x", F4, (1, 3)),), ROWS])
def test_a_shape_that_depends_on_data(inputs: tuple[TensorSpec, ...]) -> None:
    with pytest.raises(ModelRefusedError, match="shape of output 'y' depends on the data"):
        outputs_of(lambda x: x[np.any(x != 0, axis=1)], inputs)


def test_half_precision_may_differ_more() -> None:
    def coarse(x: Array) -> Array:
        return np.asarray(x.astype(F4) * np.float32(1 + 1e-3 * len(x)))

    assert outputs_of(coarse, precision="float16") == "float32[N,3]"
    with pytest.raises(ModelRefusedError):
        outputs_of(coarse)
