"""The device: the one way to the driver, through which every call is checked.

Rules
- One failed call is one exception. A sticky failure latches: from then on every call raises it, without asking the
  driver, so that nothing is computed on a device of which nothing is known.
- What is given back is always given back, lost device or not (`release`).
- A context is current in a thread, and a model is loaded on one and served by another: `use_here` comes before the
  other calls.
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from cuda.bindings import driver

from tickpath.engines import EngineFailedError
from tickpath.graphs.cuda.errors import CudaError, CudaLostError, error_of

# The bindings give each code as the one member of its enumeration, so `is` will do.
SUCCESS: Final = driver.CUresult.CUDA_SUCCESS
NOT_READY: Final = driver.CUresult.CUDA_ERROR_NOT_READY

_Attribute: Final = driver.CUdevice_attribute
DEVICE_NAME_BYTES_MAX: Final = 256  # the longest name is under 64; the driver cuts what does not fit


class Device:
    """The first device that this process may see (CUDA_VISIBLE_DEVICES chooses it), with its primary context retained:
    the one that the runtimes use too. Raises EngineFailedError where there is none."""

    def __init__(self) -> None:
        self._lost: CudaLostError | None = None
        self._here = threading.local()
        _check_driver()
        self.call(driver.cuInit, 0)
        self._handle = self.call(driver.cuDeviceGet, 0)
        self.name: str = self.call(driver.cuDeviceGetName, DEVICE_NAME_BYTES_MAX, self._handle).split(b"\0")[0].decode()
        self.compute_capability = (
            self._attribute(_Attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            self._attribute(_Attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        )
        version = self.call(driver.cuDriverGetVersion)
        self.cuda_version = (version // 1000, version % 1000 // 10)
        """The newest CUDA that the driver knows."""
        with ExitStack() as stack:
            self._context = self.call(driver.cuDevicePrimaryCtxRetain, self._handle)
            stack.callback(self.release, driver.cuDevicePrimaryCtxRelease, self._handle)
            self.use_here()
            # The numerically smallest is the most urgent.
            _, self.priority_highest = self.call(driver.cuCtxGetStreamPriorityRange)
            self._owned = stack.pop_all()

    @property
    def lost(self) -> bool:
        """Whether a sticky failure has ended the use of the device."""
        return self._lost is not None

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """What a function of the driver returns beside its result code: nothing, one value, or several. Raises
        CudaError; CudaLostError now and for ever after a sticky failure."""
        if self._lost is not None:
            raise self._lost.with_traceback(None)  # which would grow with every use
        results = function(*arguments)
        if results[0] is not SUCCESS:
            raise self.failed(results[0], function)
        if len(results) > 2:
            return results[1:]
        return results[1] if len(results) == 2 else None

    def failed(self, result: Any, function: Callable[..., Any]) -> Exception:
        """The exception for a result that is not success, latched if it is sticky."""
        error = error_of(result, function.__name__)
        if isinstance(error, CudaLostError):
            self._lost = error
        return error

    def give_up(self, error: CudaError) -> CudaLostError:
        """Latch a failure that is not sticky, but after which nobody knows what still runs on the device."""
        self._lost = CudaLostError(error.name, error.code, error.call)
        return self._lost

    def release(self, function: Callable[..., Any], *arguments: object) -> None:
        """Give something back to the driver, on a lost device too, where its complaints say nothing new. Raises
        CudaError."""
        (result,) = function(*arguments)
        if result is not SUCCESS and self._lost is None:
            raise self.failed(result, function)

    def use_here(self) -> None:
        """Let the calling thread use the device; after its first time this costs a look-up."""
        if not hasattr(self._here, "is_current"):
            self.call(driver.cuCtxSetCurrent, self._context)
            self._here.is_current = True

    def close(self) -> None:
        """Let go of the primary context; with its last holder it ends. Once."""
        self._owned.close()

    def _attribute(self, attribute: Any) -> int:
        value: int = self.call(driver.cuDeviceGetAttribute, attribute, self._handle)
        return value


def _check_driver() -> None:
    """The bindings open the driver's library at the first call, whatever it is."""
    try:
        driver.cuDriverGetVersion()
    except RuntimeError as error:
        text = " ".join(str(error).split())
        raise EngineFailedError(f"no CUDA driver on this machine: install NVIDIA's, or use the CPU ({text})") from None
