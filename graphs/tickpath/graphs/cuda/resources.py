"""What is made on a device, each thing owned by an ExitStack from the moment it exists: stacks unwind in reverse, all
the way, whatever fails."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from cuda.bindings import driver

from tickpath.graphs.cuda.device import Device

PAGE_BYTES: Final = 4096

# Beyond the thread's own capture nothing is watched: another thread may allocate or free meanwhile and harms nothing.
_CAPTURE_MODE: Final = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
# The default stream, and whoever uses it, neither waits for this one nor is waited for.
_STREAM_FLAGS: Final = int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
_PIN_FLAGS: Final = driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP


def make_stream(device: Device, stack: ExitStack) -> Any:
    """A CUstream of the highest priority that never waits for the default stream. It ends when what it runs has."""
    stream = device.call(driver.cuStreamCreateWithPriority, _STREAM_FLAGS, device.priority_highest)
    stack.callback(device.release, driver.cuStreamDestroy, stream)
    stack.callback(device.release, driver.cuStreamSynchronize, stream)
    return stream


def make_event(device: Device, stack: ExitStack, blocking_sync: bool) -> Any:
    """A CUevent without a time stamp, which would cost; `blocking_sync`: who waits for it sleeps."""
    flags = int(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
    if blocking_sync:
        flags |= int(driver.CUevent_flags.CU_EVENT_BLOCKING_SYNC)
    event = device.call(driver.cuEventCreate, flags)
    stack.callback(device.release, driver.cuEventDestroy, event)
    return event


def make_memory(device: Device, stack: ExitStack, byte_count: int) -> int:
    """The address of device memory, aligned to 256 bytes."""
    memory = device.call(driver.cuMemAlloc, byte_count)
    stack.callback(device.release, driver.cuMemFree, memory)
    return int(memory)


def pin(device: Device, stack: ExitStack, address: int, byte_count: int) -> int:
    """Let the device read and write whole pages of host memory, which stay where they are. Returns the address by which
    the device knows them."""
    device.call(driver.cuMemHostRegister, address, byte_count, _PIN_FLAGS)
    stack.callback(device.release, driver.cuMemHostUnregister, address)
    return int(device.call(driver.cuMemHostGetDevicePointer, address, 0))


def capture(device: Device, stream: Any, work: Callable[[], None], stack: ExitStack) -> Any:
    """The CUgraph of what `work` puts onto `stream`, none of which runs. Raises what `work` raises, and CudaError; the
    stream does not capture any more then."""
    device.call(driver.cuStreamBeginCapture, stream, _CAPTURE_MODE)
    try:
        work()
        graph = device.call(driver.cuStreamEndCapture, stream)
    except BaseException:
        _abandon_capture(device, stream)
        raise
    stack.callback(device.release, driver.cuGraphDestroy, graph)
    return graph


def _abandon_capture(device: Device, stream: Any) -> None:
    """End a capture whose graph nobody wants. That the driver calls it invalid is no news."""
    _, graph = driver.cuStreamEndCapture(stream)
    if graph is not None and int(graph):
        device.release(driver.cuGraphDestroy, graph)


def make_executable(device: Device, stack: ExitStack, graph: Any, stream: Any) -> Any:
    """A CUgraphExec of a graph, brought to the device, so that its first launch costs what every launch costs."""
    executable = device.call(driver.cuGraphInstantiate, graph, 0)
    stack.callback(device.release, driver.cuGraphExecDestroy, executable)
    device.call(driver.cuGraphUpload, executable, stream)
    return executable
