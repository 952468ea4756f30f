"""What a model answers when onnxruntime is asked directly, for tests to compare with bit by bit."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from tickpath.engines import Array, EngineSpec
from tickpath.wire import ModelInfo, TensorInfo


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


def assert_near(ours: Sequence[Array], theirs: Sequence[Array]) -> None:
    """The same to rounding: what another runtime answers, which adds up in another order."""
    for one, other in zip(ours, theirs, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=1e-5, atol=1e-6)


def run_in_bucket(
    session: onnxruntime.InferenceSession, model: ModelInfo, feeds: Mapping[str, Array], rows: int
) -> dict[str, Array]:
    """What a server of `model` must answer to a request of `rows` rows: its inputs, followed by rows of zeros up to the
    next bucket, are run, and its own rows are kept of what comes out."""
    bucket = min(size for size in model.buckets if size >= rows)
    batch = {
        tensor.name: _extended(feeds[tensor.name], tensor, bucket) for tensor in model.inputs if tensor.name in feeds
    }
    whole = session.run([tensor.name for tensor in model.outputs], batch)
    return {
        tensor.name: _own(np.asarray(output), tensor, rows, bucket)
        for tensor, output in zip(model.outputs, whole, strict=True)
    }


def _extended(array: Array, tensor: TensorInfo, rows: int) -> Array:
    batch = np.zeros(tensor.shape_at(rows), array.dtype)
    batch[tuple(slice(size) for size in array.shape)] = array
    return batch


def _own(output: Array, tensor: TensorInfo, rows: int, bucket: int) -> Array:
    assert output.shape == tensor.shape_at(bucket)
    return output[tuple(slice(size) for size in tensor.shape_at(rows))]
