"""An inference's body in REST: JSON, and behind it the raw bytes of the tensors that have them there. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tickpath.client import BadMessageError, BadShapeError
from tickpath.door.inference import Answer
from tickpath.door.question import Question, read_wishes, refuse_unknown_ways
from tickpath.door.tensors import Array, datatype_name, from_bytes, from_numbers, to_numbers
from tickpath.wire import ModelInfo

HEAD_BYTES: Final = "Inference-Header-Content-Length"
"""The header that says how many bytes of JSON come before the raw ones, both ways."""
# More than any body has bytes; Python reads no number of thousands.
DIGITS_MAX: Final = 20


class Input(msgspec.Struct):
    """One input: its numbers are in `data`, or raw behind the JSON."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, Any] = {}
    data: Any = None


class Output(msgspec.Struct):
    """One output that is asked for."""

    name: str
    parameters: dict[str, Any] = {}


class Body(msgspec.Struct):
    """The JSON of a request."""

    inputs: list[Input]
    id: str = ""
    parameters: dict[str, Any] = {}
    outputs: list[Output] = []

    @property
    def binary(self) -> dict[str, bool]:
        """Whether each output that is asked for is wanted raw."""
        return {output.name: bool(output.parameters.get("binary_data", self.all_binary)) for output in self.outputs}

    @property
    def all_binary(self) -> bool:
        """Whether outputs are wanted raw where they don't say."""
        return bool(self.parameters.get("binary_data_output", False))


def read(data: bytes, head_bytes: str | None, model: ModelInfo, version: str) -> tuple[Body, Question]:
    """The request that these bytes are; `head_bytes` is what the header of that name says. Raises RefusedError."""
    head_end = _head_end(data, head_bytes)
    body = _decode(data[:head_end])
    tensors: list[Input | Output] = [*body.inputs, *body.outputs]
    for each in tensors:
        refuse_unknown_ways(each.name, each.parameters)
    arrays = _arrays(body.inputs, memoryview(data)[head_end:])
    outputs = tuple(output.name for output in body.outputs)
    return body, Question(model, version, arrays, outputs, read_wishes(body.parameters))


def write(body: Body, model: str, answer: Answer) -> tuple[list[bytes | memoryview], int]:
    """The response's parts, JSON first, and how many bytes that has where raw ones follow, else 0."""
    binary, raw, told = body.binary, [], []
    for name, array in answer.outputs.items():
        tensor = {"name": name, "datatype": datatype_name(array.dtype.name), "shape": array.shape}
        if binary.get(name, body.all_binary):
            told.append({**tensor, "parameters": {"binary_data_size": array.nbytes}})
            raw.append(array.data.cast("B") if array.nbytes else b"")
        else:
            told.append({**tensor, "data": to_numbers(array)})
    head = {"model_name": model, "model_version": answer.version, **({"id": body.id} if body.id else {})}
    encoded = msgspec.json.encode({**head, "outputs": told})
    return [encoded, *raw], len(encoded) if raw else 0


def _head_end(data: bytes, head_bytes: str | None) -> int:
    if head_bytes is None:
        return len(data)
    is_number = head_bytes.isascii() and head_bytes.isdigit() and len(head_bytes) <= DIGITS_MAX
    if not (is_number and int(head_bytes) <= len(data)):
        raise BadMessageError(f"{HEAD_BYTES}: expected 0 to the body's {len(data)} bytes, got {head_bytes[:20]!r}")
    return int(head_bytes)


def _decode(head: bytes) -> Body:
    """Strict JSON the quick way; NaN, Infinity and 1e999, which only some writers allow themselves, the long way."""
    try:
        return msgspec.json.decode(head, type=Body)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return msgspec.convert(json.loads(head), Body)
    except (ValueError, RecursionError) as error:  # of JSON's own, of msgspec's, of numbers of 5,000 digits
        raise BadMessageError(f"not an inference request: {str(error)[:200] or 'nested too deep'}") from None


def _arrays(inputs: Sequence[Input], raw: memoryview) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    start = 0
    for each in inputs:
        if each.name in arrays:
            raise BadShapeError(f"input {each.name[:80]!r} came twice")
        if (size := _raw_bytes(each.name, each.parameters, len(raw) - start)) is None:
            arrays[each.name] = from_numbers(each.name, each.datatype, each.shape, each.data)
        else:
            arrays[each.name] = from_bytes(each.name, each.datatype, each.shape, raw[start : start + size])
            start += size
    if start != len(raw):
        raise BadShapeError(f"the inputs have {start} raw bytes by their binary_data_size, {len(raw)} came")
    return arrays


def _raw_bytes(name: str, parameters: Mapping[str, Any], left: int) -> int | None:
    size = parameters.get("binary_data_size")
    if size is None:
        return None
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= left:
        raise BadShapeError(f"input {name[:80]!r}: binary_data_size: expected 0 to the {left} bytes left, got {size!r}")
    return size
