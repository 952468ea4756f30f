"""A stand-in for a TensorRT engine on the simulated driver: the same calls, real arithmetic, answers to check.

It computes two layers, hidden = x @ w1 + b1 and y = hidden @ w2 + b2, through scratch memory that belongs to the
execution context: as with TensorRT, a context can be in one place at a time only.
"""

import numpy as np
from cuda.bindings import driver
from tests.sim.cuda.calls import FLOAT_BYTES, Floats, check, check_value
from tests.sim.cuda.simulator import AffineShape, Region, Simulator


def weights_of(inputs: int, outputs: int, hidden: int = 3, seed: int = 0) -> list[Floats]:
    """w1, b1, w2, b2: whole numbers, exact in float32."""
    random = np.random.default_rng(seed)
    shapes = ((inputs, hidden), (hidden,), (hidden, outputs), (outputs,))
    return [random.integers(-4, 5, shape).astype(np.float32) for shape in shapes]


class StandInEngine:
    """The weights, on the device. `x` (rows, inputs) and `y` (rows, outputs) are float32.

    The context must be current; the engine outlives its execution contexts.
    """

    def __init__(self, simulator: Simulator, inputs: int, outputs: int, hidden: int = 3, seed: int = 0) -> None:
        self.simulator = simulator
        self.inputs, self.hidden, self.outputs = inputs, hidden, outputs
        self.weights = weights_of(inputs, outputs, hidden, seed)
        self.addresses = [_upload(weight) for weight in self.weights]

    def create_execution_context(self, rows_max: int = 8) -> "StandInContext":
        """One execution context with scratch memory for that many rows."""
        return StandInContext(self, rows_max)

    def expected(self, x: Floats) -> Floats:
        """What `y` must be for this `x`: exactly, while `x` holds small whole numbers."""
        w1, b1, w2, b2 = self.weights
        return np.asarray((x @ w1 + b1) @ w2 + b2, np.float32)

    def close(self) -> None:
        """Give the weights back. Nothing may use them any more."""
        for address in self.addresses:
            check(driver.cuMemFree(address))


class StandInContext:
    """What a TensorRT IExecutionContext is to the code that captures it."""

    def __init__(self, engine: StandInEngine, rows_max: int) -> None:
        self._engine = engine
        self._addresses: dict[str, int] = {}
        self._rows = 0
        self._scratch_bytes = rows_max * engine.hidden * FLOAT_BYTES
        self._scratch = check_value(driver.cuMemAlloc(self._scratch_bytes))
        self.refuses = False  # as TensorRT does for its own reasons: then nothing is enqueued

    def set_tensor_address(self, name: str, address: int) -> bool:
        """Where `x` is read or `y` is written from the next enqueue on."""
        self._addresses[name] = address
        return name in ("x", "y")

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        """How many rows the next enqueue computes."""
        self._rows = shape[0]
        fits = shape[0] * self._engine.hidden * FLOAT_BYTES <= self._scratch_bytes
        return name == "x" and fits and shape[1:] == (self._engine.inputs,)

    def execute_async_v3(self, stream_handle: int) -> bool:
        """Enqueue both layers. False: nothing useful was enqueued, and there is no answer."""
        engine, rows = self._engine, self._rows
        if self.refuses or {"x", "y"} - self._addresses.keys():
            return False
        x = Region(self._addresses["x"], rows * engine.inputs * FLOAT_BYTES, 0)
        y = Region(self._addresses["y"], rows * engine.outputs * FLOAT_BYTES, 1)
        hidden_bytes = rows * engine.hidden * FLOAT_BYTES
        w1, b1, w2, b2 = self._weights()
        first = [x, w1, b1, Region(self._scratch, hidden_bytes, 1)]
        second = [Region(self._scratch, hidden_bytes, 0), w2, b2, y]
        affine = engine.simulator.affine
        return (
            affine(stream_handle, AffineShape(rows, engine.inputs, engine.hidden), first) == 0
            and affine(stream_handle, AffineShape(rows, engine.hidden, engine.outputs), second) == 0
        )

    def _weights(self) -> list[Region]:
        pairs = zip(self._engine.addresses, self._engine.weights, strict=True)
        return [Region(address, weight.nbytes, 0) for address, weight in pairs]

    def close(self) -> None:
        """Give the scratch memory back. Nothing may use it any more."""
        check(driver.cuMemFree(self._scratch))


def _upload(values: Floats) -> int:
    address = check_value(driver.cuMemAlloc(values.nbytes))
    check(driver.cuMemcpyHtoD(address, values.ctypes.data, values.nbytes))
    check(driver.cuCtxSynchronize())
    return address
