"""Host memory that stays where it is: page-aligned, present from the start, locked where the system allows."""

import ctypes
import mmap
from collections.abc import Sequence
from typing import Final

import numpy as np

from tickpath.engines import Array

# What TensorRT asks of addresses. A multiple of a cache line: no two tensors share one, and every vector load that the
# runtimes use is aligned.
TENSOR_ALIGNMENT_BYTES: Final = 256

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class PinnedArena:
    """One allocation for all tensors of a slot, so that a small model's buffers lie in one or two pages.

    `locked` is False where the memlock limit did not allow it (then the memory is present, but could be paged out).
    """

    def __init__(self, byte_counts: Sequence[int]) -> None:
        offsets = [0]
        for byte_count in byte_counts:
            offsets.append(_align(offsets[-1] + byte_count))
        # numpy, the runtime's bindings and our views all hold the mapping: it goes with the last of them.
        self._memory = mmap.mmap(
            -1, max(offsets[-1], mmap.PAGESIZE), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        )
        # A child process would share these pages until one of the two writes and gets others in their place, while a
        # device goes on with those it knows.
        self._memory.madvise(mmap.MADV_DONTFORK)
        self._bytes = np.frombuffer(self._memory, dtype=np.uint8)
        self._spans = [(start, start + size) for start, size in zip(offsets, byte_counts, strict=False)]
        self.locked = _libc.mlock(self._bytes.ctypes.data, len(self._memory)) == 0

    def array(self, index: int, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> Array:
        """Tensor `index` as an array over the arena's memory."""
        start, end = self._spans[index]
        return self._bytes[start:end].view(dtype).reshape(shape)

    def view(self, index: int) -> memoryview:
        """Tensor `index` as raw, writable bytes."""
        start, end = self._spans[index]
        return memoryview(self._memory)[start:end]


def _align(offset: int) -> int:
    return -(-offset // TENSOR_ALIGNMENT_BYTES) * TENSOR_ALIGNMENT_BYTES
