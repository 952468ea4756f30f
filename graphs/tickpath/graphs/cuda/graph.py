"""What one slot does on the device: launch, and know when the answer is there.

Rules
- One thread, and one launch at a time: a slot's buffers belong to the device from `launch` until `done` says True or
  `wait` returns.
- The event is recorded behind the launch and not within the graph: there it would still tell of the launch before.
- Whatever goes wrong, the stream is idle before the exception leaves, so that the buffers are the slot's again. Where
  that can't be known, the device is given up.

The bindings let go of the interpreter's lock for each call, so a thread that waits here, spinning or blocked, holds up
no other thread.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from cuda.bindings import driver

from tickpath.engines import EngineFailedError
from tickpath.graphs.cuda.device import NOT_READY, SUCCESS, Device
from tickpath.graphs.cuda.errors import CudaError
from tickpath.graphs.device import Wait


class CudaGraph:
    """A model on one slot's buffers. `submit` puts one run onto `stream`, as one captured graph or piece by piece.

    `event` marks the end of a run; with `wait` "block" it was made for a waiter that sleeps. `held`: what the device
    knows by address alone, so that it lives as long as the graph.
    """

    def __init__(
        self, device: Device, stream: Any, event: Any, submit: Callable[[], object], wait: Wait, held: object
    ) -> None:
        self._device = device
        self._stream = stream
        self._event = event
        self._submit: Callable[[], object] | None = submit
        self._block = wait == "block"
        self._held = held
        self._owned = ExitStack()
        self._in_flight = False

    def own(self, stack: ExitStack) -> None:
        """From here on `close` gives back what is on the stack."""
        self._owned = stack

    def launch(self) -> None:
        """Start a run on what the input buffers hold. Raises EngineFailedError, DeviceLostError."""
        assert not self._in_flight, "a slot is launched again before its answer was there"
        submit = self._submit
        if submit is None:
            raise EngineFailedError("the engine is closed")
        self._in_flight = True
        try:
            self._device.use_here()
            submit()
            self._device.call(driver.cuEventRecord, self._event, self._stream)
        except BaseException:
            self._settle()
            raise

    def done(self) -> bool:
        """Whether the answer of the last launch is in the output buffers; does not wait. Raises as `launch`."""
        if not self._in_flight:
            return True
        (result,) = driver.cuEventQuery(self._event)
        if result is NOT_READY:
            return False
        if result is not SUCCESS:
            self._fail(result, driver.cuEventQuery)
        self._in_flight = False
        return True

    def wait(self) -> None:
        """Wait for the answer of the last launch. Raises as `launch`."""
        if self._block and self._in_flight:
            (result,) = driver.cuEventSynchronize(self._event)
            if result is not SUCCESS:
                self._fail(result, driver.cuEventSynchronize)
            self._in_flight = False
            return
        while not self.done():
            pass

    def replay(self) -> None:
        """Run the model once: launch and wait. Raises EngineFailedError, DeviceLostError."""
        self.launch()
        self.wait()

    def close(self) -> None:
        """Give back what the graph stands on, once what is in flight has ended; it can't be launched any more. A second
        time does nothing. Raises CudaError, after all the rest has gone, where something could not be given back."""
        if not (self._submit is None or self._device.lost):
            self._owned.callback(self._device.use_here)  # the first to unwind: this may be another thread
        self._submit = None
        self._in_flight = False
        self._owned.close()
        self._held = None

    def _fail(self, result: Any, function: Callable[..., Any]) -> None:
        error = self._device.failed(result, function)
        self._settle()
        raise error

    def _settle(self) -> None:
        """After a failure: wait until nothing of this slot can be in flight any more. Raises DeviceLostError."""
        self._in_flight = False
        try:
            self._device.call(driver.cuStreamSynchronize, self._stream)
        except CudaError as error:
            raise self._device.give_up(error) from error
