"""What the core serves in the protocol's words: plain values, the same for JSON and for gRPC."""

from typing import Any, Final

from tickpath.door.tensors import datatype_name
from tickpath.door.upstream import Listing
from tickpath.wire import ModelInfo, TensorInfo

# By the names under which Triton documents each.
EXTENSIONS: Final = (
    "binary_tensor_data",
    "model_repository",
    "statistics",
    "model_configuration",
    "schedule_policy",
    "sequence",
    "sequence(string_id)",
)
PLATFORM: Final = "tickpath"


def server(version: str) -> dict[str, Any]:
    """ServerMetadataResponse."""
    return {"name": PLATFORM, "version": version, "extensions": EXTENSIONS}


def metadata(model: ModelInfo, versions: list[str]) -> dict[str, Any]:
    """ModelMetadataResponse. A size that depends on the number of rows is -1."""
    return {
        "name": model.name,
        "versions": versions,
        "platform": PLATFORM,
        "inputs": [_tensor(tensor) for tensor in model.inputs],
        "outputs": [_tensor(tensor) for tensor in model.outputs],
    }


def config(model: ModelInfo) -> dict[str, Any]:
    """ModelConfig, as much of it as tools read: with `max_batch_size`, sizes leave the first axis out."""
    rows_max = model.buckets[-1] if _batches_first(model) else 0
    return {
        "name": model.name,
        "platform": PLATFORM,
        "backend": PLATFORM,
        "max_batch_size": rows_max,
        "input": [{**_configured(tensor, rows_max), "optional": tensor.optional} for tensor in model.inputs],
        "output": [_configured(tensor, rows_max) for tensor in model.outputs],
    }


def index(listing: Listing) -> list[dict[str, Any]]:
    """RepositoryIndexResponse's models: what is loaded."""
    return [
        {"name": name, "version": version, "state": "READY", "reason": ""} for name, version in sorted(listing.versions)
    ]


def _tensor(tensor: TensorInfo) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": datatype_name(tensor.dtype), "shape": _sizes(tensor)}


def _configured(tensor: TensorInfo, rows_max: int) -> dict[str, Any]:
    dims = _sizes(tensor)[1:] if rows_max else _sizes(tensor)
    return {"name": tensor.name, "data_type": f"TYPE_{datatype_name(tensor.dtype)}", "dims": dims}


def _sizes(tensor: TensorInfo) -> list[int]:
    return [-1 if axis == tensor.batch_axis else size for axis, size in enumerate(tensor.shape)]


def _batches_first(model: ModelInfo) -> bool:
    """Whether a batch is what the configuration means by it: one place of the first axis a row, in every tensor."""
    return all(tensor.batch_axis == 0 and tensor.shape[0] == 1 for tensor in (*model.inputs, *model.outputs))
