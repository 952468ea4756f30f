"""An inference's messages in gRPC: tensors raw behind the message, or as numbers within it. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from tickpath.client import BadShapeError
from tickpath.door.inference import Answer
from tickpath.door.proto.open_inference_pb2 import InferTensorContents, ModelInferRequest, ModelInferResponse
from tickpath.door.question import Question, read_wishes, refuse_unknown_ways
from tickpath.door.tensors import Array, datatype_name, from_bytes, from_numbers
from tickpath.wire import ModelInfo

# Where a tensor's numbers are, where they are not raw; half floats have no place but the raw one.
_CONTENTS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}


def read(request: ModelInferRequest, model: ModelInfo) -> Question:
    """What is asked of the model. Raises RefusedError."""
    for each in (*request.inputs, *request.outputs):
        refuse_unknown_ways(each.name, _plain(each.parameters))
    outputs = tuple(output.name for output in request.outputs)
    wishes = read_wishes(_plain(request.parameters))
    return Question(model, request.model_version, _arrays(request), outputs, wishes)


def write(request: ModelInferRequest, answer: Answer) -> ModelInferResponse:
    """The response, its tensors raw."""
    return ModelInferResponse(
        model_name=request.model_name,
        model_version=answer.version,
        id=request.id,
        outputs=[
            ModelInferResponse.InferOutputTensor(name=name, datatype=datatype_name(array.dtype.name), shape=array.shape)
            for name, array in answer.outputs.items()
        ],
        raw_output_contents=[array.tobytes() for array in answer.outputs.values()],
    )


def _arrays(request: ModelInferRequest) -> dict[str, Array]:
    inputs, raw = request.inputs, request.raw_input_contents
    if raw and len(raw) != len(inputs):
        raise BadShapeError(
            f"raw_input_contents: expected none, or one for each of the inputs ({len(inputs)}), got {len(raw)}"
        )
    arrays: dict[str, Array] = {}
    for place, each in enumerate(inputs):
        if each.name in arrays:
            raise BadShapeError(f"input {each.name[:80]!r} came twice")
        if raw:
            arrays[each.name] = from_bytes(each.name, each.datatype, each.shape, raw[place])
        else:
            numbers = _numbers(each.name, each.datatype, each.contents)
            arrays[each.name] = from_numbers(each.name, each.datatype, each.shape, numbers)
    return arrays


def _numbers(name: str, datatype: str, contents: InferTensorContents) -> list[Any]:
    """All numbers that are there, of the one kind that this datatype has."""
    expected = _CONTENTS.get(datatype, "raw_input_contents")
    for descriptor, numbers in contents.ListFields():
        if descriptor.name != expected:
            raise BadShapeError(
                f"input {name[:80]!r}: expected the numbers of {datatype} in {expected}, they are in {descriptor.name}"
            )
        return list(numbers)
    return []


def _plain(parameters: Mapping[str, Any]) -> dict[str, object]:
    plain: dict[str, object] = {}
    for name, value in parameters.items():
        kind = value.WhichOneof("parameter_choice")
        plain[name] = getattr(value, kind) if kind else 0
    return plain
