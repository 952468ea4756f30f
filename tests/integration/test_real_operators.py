"""ONNX's own operator cases through the engine: the answer that ONNX expects, or a refusal with its reason."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tests.inputs import inputs_root

from tickpath.engines import Array, Engine, ModelRefusedError
from tickpath.engines.onnxruntime import load_onnx

ROOT = inputs_root()
if ROOT is None:
    pytest.skip("no operator cases: set TICKPATH_INPUTS", allow_module_level=True)
CASES = sorted((ROOT / "onnx_node_tests").glob("*/model.onnx"))

# Why a case can't be served, by how its name begins.
REFUSED: Mapping[str, str] = {
    "bernoulli": "is random",
    "cast_BFLOAT16_to_FLOAT": "bfloat16",
    "constantofshape": "'ConstantOfShape'|size 0",
    "equal_string": "string",
    "identity_sequence": "sequence",
    "if_opt": "optional",
    "label_encoder": "string",
    "loop16_seq_none": "sequence",
    "nonzero": "'NonZero'",
    "optional_get_element": "optional|sequence",
    "optional_has_element_optional_input": "optional",
    "reduce_max_empty": "size 0",
    "reduce_sum_empty": "size 0",
    "reshape_negative_extended": "does not run",
    "sequence_insert": "sequence",
    "split_zero_size": "size 0",
    "string_": "string",
    "top_k": "'TopK'",
    "unique_sorted": "'Unique'",
}


def replayed(engine: Engine, arrays: Sequence[Array], rows: int) -> list[Array]:
    spec = engine.spec
    inputs = [np.array(array, order="C") for array in arrays]
    outputs = [np.full(tensor.shape_at(rows), 3, tensor.dtype) for tensor in spec.outputs]
    engine.capture(inputs, outputs).replay()
    return list(outputs)


def tensor_file(path: Path) -> Array:
    array: Array = numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))
    return array


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name)
def test_operator(path: Path, table: list[str]) -> None:
    name = path.parent.name.removeprefix("test_").removeprefix("ai_onnx_ml_")
    reasons = [reason for start, reason in REFUSED.items() if name.startswith(start)]
    try:
        engine = load_onnx(path)
    except ModelRefusedError as error:
        text = str(error).removeprefix(f"{path}: ")
        table.append(f"{path.parent.name}  refused  {text}")
        assert any(part in text for reason in reasons for part in reason.split("|")), text
        return
    table.append(f"{path.parent.name}  served  {engine.spec.describe()}")
    assert not reasons
    folder = path.parent / "test_data_set_0"
    arrays = [tensor_file(folder / f"input_{place}.pb") for place in range(len(engine.spec.inputs))]
    for place, output in enumerate(replayed(engine, arrays, 1)):
        expected = tensor_file(folder / f"output_{place}.pb")
        assert (output.dtype, output.shape) == (expected.dtype, expected.shape)
        assert np.allclose(output.astype(float), expected.astype(float), rtol=1e-3, atol=1e-7, equal_nan=True)
