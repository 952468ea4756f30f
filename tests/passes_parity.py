"""Whether a model still answers as its file does once it is unrolled."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import onnx
from tests.onnx_models import save

from tickpath.engines.onnx_spec import Shape
from tickpath.engines.onnxruntime import load_onnx
from tickpath.engines.passes import Tolerance, measure_parity, refuse, settle, unroll

# In float32 a model that was unrolled differs in the order of its sums alone. The largest seen is 4e-7.
ROUNDING: Final = Tolerance(max_rel=2e-6, flips_share=0.0)


def unrolled_beside(path: Path, shapes: Mapping[str, Shape], folder: Path) -> onnx.ModelProto:
    """The model of a file, unrolled, and compared with the file's own at every bucket."""
    reference = load_onnx(path, shapes)
    unrolled = unroll(settle(onnx.load(path), reference.spec.inputs))
    rows = reference.spec.rows_fixed
    buckets = [rows] if rows else [1, 4] if reference.spec.batched else [1]
    candidate = load_onnx(save(unrolled, folder, "unrolled.onnx"), shapes)
    refuse(measure_parity(reference, candidate, buckets), ROUNDING)
    return unrolled
