"""What is captured and replayed: buckets, slots, the windows of feeds, and the pinned memory slots stand on."""

from tickpath.graphs.buckets import DEFAULT_BUCKETS, BucketError, bucket_index_by_rows, resolve_buckets
from tickpath.graphs.device import DeviceGraph, DeviceOptions, on_device
from tickpath.graphs.pinned import PinnedArena
from tickpath.graphs.slot import Slot
from tickpath.graphs.values import Bounds, OutputRules
from tickpath.graphs.window import Window

__all__ = [
    "DEFAULT_BUCKETS",
    "Bounds",
    "BucketError",
    "DeviceGraph",
    "DeviceOptions",
    "OutputRules",
    "PinnedArena",
    "Slot",
    "Window",
    "bucket_index_by_rows",
    "on_device",
    "resolve_buckets",
]
