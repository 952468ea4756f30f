"""What a model answers when onnxruntime is asked directly, for tests to compare with bit by bit."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from tickpath.engines import Array, EngineSpec


def reference_session(path: Path) -> onnxruntime.InferenceSession:
    """A plain session of one thread, as the server's: more cut an LSTM's batch up and round otherwise."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run_reference(session: onnxruntime.InferenceSession, spec: EngineSpec, arrays: Sequence[Array]) -> list[Array]:
    """The model's outputs for whole batches in the order of `spec`."""
    feeds = {tensor.name: array for tensor, array in zip(spec.inputs, arrays, strict=True)}
    return [np.asarray(output) for output in session.run([tensor.name for tensor in spec.outputs], feeds)]


def assert_same_bits(ours: Sequence[Array], theirs: Sequence[Array]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()
