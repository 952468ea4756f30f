"""An .onnx file taken apart into a small one and its weights, for whoever must load it beside others.

onnxruntime parses a file with the GIL held, and reads weights from a file of their own without it. Measured with a
model of 120 MB on onnxruntime 1.32: another thread stood still for 54 to 63 ms, and for 1 to 5 ms with weights apart.
"""

import hashlib
from pathlib import Path
from typing import IO, Final

import onnx
from onnx import external_data_helper

from tickpath.engines.onnx_file import read_bytes

# Parsing this much takes about half a millisecond, no more than a load takes anyway.
WHOLE_BYTES_MAX: Final = 1024 * 1024
# Shapes, axes and the like stay in the file, where they can be looked at without another one.
WEIGHT_BYTES_MIN: Final = 1024

# A page of the largest kind in use.
ALIGNMENT_BYTES: Final = 65536

WEIGHTS_FILE: Final = "weights"


def unpack(path: Path, sha256: str, folder: Path) -> Path | None:
    """Write the model of this digest into `folder`, its weights apart. None where that is no use, since it is small
    or another. Raises ModelRefusedError where the file is gone, OSError where there is no room."""
    content = read_bytes(path)
    # Another digest: some weights lie apart already, or the file has changed; whoever loads it tells which.
    if len(content) <= WHOLE_BYTES_MAX or hashlib.sha256(content).hexdigest() != sha256:
        return None
    model = onnx.load_model_from_string(content)
    with (folder / WEIGHTS_FILE).open("wb") as weights:
        for tensor in model.graph.initializer:
            # What has its bytes as they are; subgraphs' own tensors are few and small.
            if tensor.data_location != onnx.TensorProto.EXTERNAL and len(tensor.raw_data) >= WEIGHT_BYTES_MIN:
                _move(tensor, weights)
    taken_apart = folder / path.name
    taken_apart.write_bytes(model.SerializeToString())
    return taken_apart


def _move(tensor: onnx.TensorProto, weights: IO[bytes]) -> None:
    """A tensor's bytes go to the end of the weights, where the runtime may map them."""
    weights.write(bytes(-weights.tell() % ALIGNMENT_BYTES))
    external_data_helper.set_external_data(tensor, WEIGHTS_FILE, weights.tell(), len(tensor.raw_data))
    weights.write(tensor.raw_data)
    tensor.ClearField("raw_data")
