"""Reads an .onnx file whole and says what is wrong with it, before any runtime sees it.

The file is read once: what is hashed, looked at and given to the runtime are the same bytes, whatever happens to it
meanwhile. Weights in files of their own are hashed here and opened again by the runtime, so those must not change while
the model loads: write new ones beside the old, under another name.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import onnx
from google.protobuf.message import DecodeError

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.model_file import START_BYTES, check_start, what_it_is

# A protobuf message can't be longer; larger models keep their weights in files beside the model.
FILE_BYTES_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """A file that parsed. `content` are its bytes; `sha256` covers them and then its external weight files, in the
    order of their names, so that for a model in one file it is what `sha256sum` prints."""

    path: Path
    content: bytes
    model: onnx.ModelProto
    sha256: str


def read_onnx(path: Path) -> OnnxFile:
    """The file, parsed, with its external weights found beside it. Raises ModelRefusedError."""
    content = read_bytes(path)
    model = _parse(content)
    _check_graph(model)
    weights = _external_files(path.parent, model)
    return OnnxFile(path, content, model, _sha256(content, weights))


def read_whole(path: Path) -> bytes:
    """The bytes of a model file. Raises ModelRefusedError."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ModelRefusedError("over 2 GB, which ONNX can't hold in one file: save its weights as external data")
        content = path.read_bytes()
    except FileNotFoundError:
        raise ModelRefusedError("no such file") from None
    except OSError as error:
        raise ModelRefusedError(f"can't be read: {error.strerror}") from None
    if not content:
        raise ModelRefusedError("the file is empty: copy the model again")
    return content


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Every node, those of subgraphs (If, Loop, Scan) too."""
    for node in graph.node:
        yield node
        for subgraph in subgraphs(node):
            yield from nodes(subgraph)


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that a node holds in its attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def constants(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Every tensor that the model brings along: initializers and attributes, those of subgraphs too."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for subgraph in subgraphs(node):
            yield from constants(subgraph)


def read_bytes(path: Path) -> bytes:
    """The whole file, which may be ONNX as far as its start tells. Raises ModelRefusedError."""
    content = read_whole(path)
    check_start(content, ".onnx")
    return content


def _parse(content: bytes) -> onnx.ModelProto:
    advice = "the file is truncated, or is not ONNX: copy or export it again"
    try:
        model = onnx.load_model_from_string(content)
    except DecodeError:
        raise ModelRefusedError(f"{len(content)} bytes that are no whole ONNX model; {advice}") from None
    # Protobuf takes many strings of bytes for a message without fields, and a file cut between two for a whole one.
    if not model.ir_version or not model.HasField("graph"):
        raise ModelRefusedError(f"{len(content)} bytes that hold no ONNX graph; {advice}")
    if not model.opset_import:
        raise ModelRefusedError(f"the model imports no operator set; {advice}")
    return model


def _check_graph(model: onnx.ModelProto) -> None:
    if not model.graph.output:
        raise ModelRefusedError("the graph has no output: export it again with its outputs named")
    for kind, values in (("inputs", model.graph.input), ("outputs", model.graph.output)):
        names = [value.name for value in values]
        for name in names:
            if names.count(name) > 1:
                raise ModelRefusedError(
                    f"two {kind} are named {name!r}: a name must be unique; rename one and export it again"
                )


def _external_files(folder: Path, model: onnx.ModelProto) -> list[Path]:
    """The weight files beside the model: each inside its folder, each there, each long enough."""
    locations = set()
    for tensor in constants(model.graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            location = entries.get("location", "")
            _check_location(folder, location, tensor.name)
            _check_length(folder / location, entries, tensor.name)
            locations.add(location)
    return [folder / location for location in sorted(locations)]


def _check_location(folder: Path, location: str, tensor_name: str) -> None:
    relative = PurePosixPath(location)
    # A link that leads out of the folder is no better than a path that does.
    inside = (folder / relative).resolve().is_relative_to(folder.resolve())
    if relative.is_absolute() or ".." in relative.parts or not inside:
        raise ModelRefusedError(
            f"the weights of {tensor_name!r} are to be read from {location!r}, outside the model's folder: "
            "put the file beside the model and save the model with that name"
        )
    if not (folder / relative).is_file():
        raise ModelRefusedError(
            f"the weights of {tensor_name!r} are in {location!r}, which is not beside the model: "
            f"copy it to {folder / relative}"
        )


def _check_length(path: Path, entries: Mapping[str, str], tensor_name: str) -> None:
    """A runtime may map what is not there, and die of it."""
    end, size = int(entries.get("offset", "0")) + int(entries.get("length", "0")), path.stat().st_size
    if end <= size:
        return
    with path.open("rb") as file:
        what = what_it_is(file.read(START_BYTES), ".onnx")
    raise ModelRefusedError(
        f"the weights of {tensor_name!r} end at byte {end} of {path.name!r}, which has {size}: "
        + (f"it is {what}" if what else "the file is truncated, copy it again")
    )


def _sha256(content: bytes, weights: list[Path]) -> str:
    digest = hashlib.sha256(content)
    for weight in weights:
        with weight.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
