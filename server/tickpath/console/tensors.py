"""A model and its tensors, as a client hears of them: for people and for programs."""

from tickpath.wire import ModelInfo, TensorInfo


def describe(tensor: TensorInfo) -> str:
    """For people: `x float32[N,120,3]`, with a question mark where it may be left out."""
    return f"{tensor.name}{'?' if tensor.optional else ''} {tensor.describe()}"


def plain_model(model: ModelInfo) -> dict[str, object]:
    """For programs: what `--json` says of a model."""
    return {
        "name": model.name,
        "version": model.version,
        "inputs": [plain_tensor(tensor) for tensor in model.inputs],
        "outputs": [plain_tensor(tensor) for tensor in model.outputs],
        "buckets": model.buckets,
        "feeds": model.feeds,
    }


def plain_tensor(tensor: TensorInfo) -> dict[str, object]:
    """For programs: one input or output."""
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "batch_axis": None if tensor.batch_axis < 0 else tensor.batch_axis,
        "optional": tensor.optional,
    }
