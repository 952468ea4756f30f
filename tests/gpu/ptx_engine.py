"""The smallest engine there is: one kernel, in PTX, which the driver itself compiles for whatever GPU it finds. It
needs no framework, so it shows what the graph layer costs alone: y = x * 3 + 1 over float32[N, columns]."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from cuda.bindings import driver

from tickpath.engines import Array, EngineSpec, TensorSpec

PTX: Final = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry affine(.param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .b64 %rd<6>;
    .reg .f32 %f<4>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    ld.param.u32 %r4, [n];
    setp.ge.u32 %p, %r1, %r4;
    @%p ret;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd4, %rd1, %rd3;
    add.u64 %rd5, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4];
    mul.rn.f32 %f2, %f1, 0f40400000;
    add.rn.f32 %f3, %f2, 0f3F800000;
    st.global.f32 [%rd5], %f3;
    ret;
}
\0"""
THREADS: Final = 128


def checked(results: tuple[Any, ...]) -> Any:
    """The value of a call of the driver."""
    assert results[0] == driver.CUresult.CUDA_SUCCESS, results[0]
    return results[1] if len(results) > 1 else None


class PtxContext:
    """The kernel with its arguments."""

    def __init__(self, function: Any, elements: int) -> None:
        self._function = function
        self._elements = elements

    def bind(self, addresses: Sequence[int]) -> None:
        x, y = addresses
        pointers, elements = np.array([x, y], np.uint64), np.array([self._elements], np.uint32)
        self._values = (pointers, elements)  # the driver copies from here at each launch
        first = pointers.ctypes.data
        self._arguments = np.array([first, first + 8, elements.ctypes.data], np.uint64)

    def enqueue(self, stream: int) -> bool:
        blocks = -(-self._elements // THREADS)
        (result,) = driver.cuLaunchKernel(
            self._function, blocks, 1, 1, THREADS, 1, 1, 0, stream, self._arguments.ctypes.data, 0
        )
        return bool(result == driver.CUresult.CUDA_SUCCESS)

    def close(self) -> None: ...


class PtxEngine:
    """The model. It holds the first device's primary context, as runtimes do."""

    def __init__(self, columns: int = 64) -> None:
        x, y = (TensorSpec(name, np.dtype(np.float32), (1, columns), 0) for name in "xy")
        self.spec = EngineSpec((x,), (y,), "ptx", "float32", "0" * 64)
        self._columns = columns
        checked(driver.cuInit(0))
        self._device = checked(driver.cuDeviceGet(0))
        checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(self._device))))
        self._module = checked(driver.cuModuleLoadData(PTX))
        self._function = checked(driver.cuModuleGetFunction(self._module, b"affine"))

    def context(self, rows: int) -> PtxContext:
        return PtxContext(self._function, rows * self._columns)

    def sample(self, rows: int) -> list[Array]:
        return [np.full((rows, self._columns), 0.5, np.float32)]

    def close(self) -> None:
        checked(driver.cuModuleUnload(self._module))
        checked(driver.cuDevicePrimaryCtxRelease(self._device))


def ptx_expected(arrays: Sequence[Array]) -> list[bytes]:
    """The same arithmetic, rounded the same way after each step."""
    (x,) = arrays
    return [(x.astype(np.float32) * np.float32(3) + np.float32(1)).tobytes()]
