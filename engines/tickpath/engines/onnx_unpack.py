"""An .onnx file taken apart into a small one and its weights, for whoever must load it beside others.

onnxruntime parses a file with the GIL held, and reads weights from a file of their own without it. Measured with a
model of 120 MB on onnxruntime 1.32: another thread stood still for 54 to 63 ms, and for 1 to 5 ms with weights apart.
"""

import hashlib
from pathlib import Path
from typing import Final

import onnx

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.onnx_file import read_bytes

# Parsing this much takes about half a millisecond, no more than a load takes anyway.
WHOLE_BYTES_MAX: Final = 1024 * 1024
# Shapes, axes and the like stay in the file, where they can be looked at without another one.
WEIGHT_BYTES_MIN: Final = 1024

WEIGHTS_FILE: Final = "weights"


def unpack(path: Path, sha256: str, folder: Path) -> Path | None:
    """Write the model of this digest into `folder`, its weights apart. None where it is small, or has its weights apart
    already. Raises ModelRefusedError where the file has changed, OSError where there is no room."""
    content = read_bytes(path)
    if len(content) <= WHOLE_BYTES_MAX:
        return None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ModelRefusedError(f"{path}: it changed while it was loaded")
    model = onnx.load_model_from_string(content)
    taken_apart = folder / path.name
    onnx.save_model(
        model,
        taken_apart,
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=WEIGHTS_FILE,
        size_threshold=WEIGHT_BYTES_MIN,
    )
    return taken_apart
