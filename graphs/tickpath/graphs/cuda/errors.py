"""What the driver's error codes mean to us: this call failed, or the device is lost to this process."""

from typing import Any, Final

from cuda.bindings import driver

from tickpath.engines import DeviceLostError, EngineFailedError

# After one of these the context answers every call with the same code until the process ends; of the last two nothing
# is known, so nothing may be trusted either.
STICKY: Final = frozenset(
    {
        driver.CUresult.CUDA_ERROR_DEINITIALIZED,
        driver.CUresult.CUDA_ERROR_ECC_UNCORRECTABLE,
        driver.CUresult.CUDA_ERROR_NVLINK_UNCORRECTABLE,
        driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS,
        driver.CUresult.CUDA_ERROR_LAUNCH_TIMEOUT,
        driver.CUresult.CUDA_ERROR_CONTEXT_IS_DESTROYED,
        driver.CUresult.CUDA_ERROR_ASSERT,
        driver.CUresult.CUDA_ERROR_HARDWARE_STACK_ERROR,
        driver.CUresult.CUDA_ERROR_ILLEGAL_INSTRUCTION,
        driver.CUresult.CUDA_ERROR_MISALIGNED_ADDRESS,
        driver.CUresult.CUDA_ERROR_INVALID_ADDRESS_SPACE,
        driver.CUresult.CUDA_ERROR_INVALID_PC,
        driver.CUresult.CUDA_ERROR_LAUNCH_FAILED,
        driver.CUresult.CUDA_ERROR_EXTERNAL_DEVICE,
        driver.CUresult.CUDA_ERROR_CONTAINED,
        driver.CUresult.CUDA_ERROR_TENSOR_MEMORY_LEAK,
        driver.CUresult.CUDA_ERROR_UNKNOWN,
    }
)


class CudaError(EngineFailedError):
    """A call of the driver failed. The device can be used further."""

    def __init__(self, name: str, code: int, call: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.name = name
        self.code = code
        self.call = call


class CudaLostError(DeviceLostError):
    """A call of the driver told that the device is lost to this process."""

    def __init__(self, name: str, code: int, call: str) -> None:
        super().__init__(f"{call}: {name} ({code}): this process can't use the device any more, start it again")
        self.name = name
        self.code = code
        self.call = call


def error_of(result: Any, call: str) -> CudaError | CudaLostError:
    """The exception for a CUresult that is not success."""
    kind = CudaLostError if result in STICKY else CudaError
    # A driver that is newer than the bindings may have codes that they give as plain numbers.
    return kind(getattr(result, "name", "CUDA_ERROR_NEWER_THAN_THE_BINDINGS"), int(result), call)
