"""A model's tensors as a client hears of them, in the terms the engines have."""

import numpy as np

from tickpath.client import describe_tensor
from tickpath.engines import TensorSpec
from tickpath.wire import ModelInfo, TensorInfo


def spec_of(tensor: TensorInfo) -> TensorSpec:
    """The same tensor as a TensorSpec, for its shapes and bytes at any number of rows. Whether it is optional stays
    with the TensorInfo."""
    batch_axis = None if tensor.batch_axis < 0 else tensor.batch_axis
    return TensorSpec(tensor.name, np.dtype(tensor.dtype), tuple(tensor.shape), batch_axis)


def describe(tensor: TensorInfo) -> str:
    """For people: `x float32[N,120,3]`, with a question mark where it may be left out."""
    return f"{tensor.name}{'?' if tensor.optional else ''} {describe_tensor(tensor)}"


def plain_model(model: ModelInfo) -> dict[str, object]:
    """For programs: what `--json` says of a model."""
    return {
        "name": model.name,
        "version": model.version,
        "inputs": [_plain_tensor(tensor) for tensor in model.inputs],
        "outputs": [_plain_tensor(tensor) for tensor in model.outputs],
        "buckets": model.buckets,
        "feeds": model.feeds,
    }


def _plain_tensor(tensor: TensorInfo) -> dict[str, object]:
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "batch_axis": None if tensor.batch_axis < 0 else tensor.batch_axis,
        "optional": tensor.optional,
    }
