"""Reads an .onnx file whole and says what is wrong with it, before any runtime sees it.

The file is read once: what is hashed, looked at and given to the runtime are the same bytes, whatever happens to it
meanwhile. Weights in files of their own are hashed here and opened again by the runtime, so those must not change while
the model loads: write new ones beside the old, under another name.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import onnx
from google.protobuf.message import DecodeError

from tickpath.engines.engine import ModelRefusedError

# A protobuf message can't be longer; larger models keep their weights in files beside the model.
FILE_BYTES_MAX: Final = 2**31 - 1

# What people have by mistake in place of a model, by how it begins, and what to do about it.
IMPOSTORS: Final[tuple[tuple[bytes, str], ...]] = (
    (b"version https://git-lfs", "a Git LFS pointer, not the model itself: run `git lfs pull` where it came from"),
    (b"PK\x03\x04", "a zip archive: unpack it and name the .onnx file inside"),
    (b"\x1f\x8b", "gzip-compressed: decompress it first"),
    (b"<", "a web page (HTML or XML), not a model: download the raw file"),
    (b"\x80\x02", "a Python pickle (PyTorch?), not ONNX: export it with torch.onnx.export"),
    (b"\x89HDF", "an HDF5 file (Keras?), not ONNX: convert it with tf2onnx"),
    (b"{", "JSON, not ONNX"),
)


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
    content = _read(path)
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


def _read(path: Path) -> bytes:
    content = read_whole(path)
    for start, what in IMPOSTORS:
        if content[:64].lstrip().startswith(start):
            raise ModelRefusedError(f"this is {what}")
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
    """The weight files beside the model: each inside its folder, each there."""
    tensors = [tensor for tensor in constants(model.graph) if tensor.data_location == onnx.TensorProto.EXTERNAL]
    locations = {
        entry.value: tensor.name for tensor in tensors for entry in tensor.external_data if entry.key == "location"
    }
    for location, tensor_name in locations.items():
        relative = PurePosixPath(location)
        if relative.is_absolute() or ".." in relative.parts:
            raise ModelRefusedError(
                f"the weights of {tensor_name!r} are to be read from {location!r}, outside the model's folder: "
                "put the file beside the model and save the model with that name"
            )
        if not (folder / relative).is_file():
            raise ModelRefusedError(
                f"the weights of {tensor_name!r} are in {location!r}, which is not beside the model: "
                f"copy it to {folder / relative}"
            )
    return [folder / location for location in sorted(locations)]


def _sha256(content: bytes, weights: list[Path]) -> str:
    digest = hashlib.sha256(content)
    for weight in weights:
        with weight.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
