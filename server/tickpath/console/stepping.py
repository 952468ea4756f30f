"""From a window's model to a step model on disk, compared with what it was made of."""

import os
import tempfile
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from tickpath.console.errors import ConsoleError
from tickpath.engines import Array, Engine, ModelRefusedError
from tickpath.engines.onnx_model import read_model
from tickpath.engines.onnx_spec import Shape
from tickpath.engines.onnxruntime import load_onnx
from tickpath.engines.passes import Streamed, settle, stream

# Windows of seeded noise that the step model must answer as its source does: a state that leaks shows in the second.
WINDOWS: Final = 4
# Relative to the largest answer. The sums are the same; a runtime may add one of them up in another order.
TOLERANCE: Final = 1e-5


def run(source: Path, out: Path, shapes: dict[str, object], axis: int) -> str:
    """Make and check the step model. Returns what to say of it. Raises ModelRefusedError, ConsoleError."""
    sizes = msgspec.convert(shapes, dict[str, Shape])
    try:
        read = read_model(source, sizes)
        streamed = stream(settle(read.file.model, read.inputs.tensors), axis)
    except ModelRefusedError as error:
        raise ModelRefusedError(f"{source}: {error}") from None
    reference = load_onnx(source, sizes)
    try:
        with tempfile.TemporaryDirectory(prefix=".tickpath-streaming-", dir=out.parent) as folder:
            made = Path(folder) / out.name
            made.write_bytes(streamed.model.SerializeToString())
            off = _largest_error(reference, load_onnx(made), streamed, axis)
            if not off <= TOLERANCE:
                raise ModelRefusedError(
                    f"{source}: its step model answers otherwise, by {off:.2g} of the largest answer: serve its "
                    "window as it is"
                )
            os.replace(made, out)
    except OSError as error:
        raise ConsoleError(f"{out}: {error.strerror}") from None
    same = "bit for bit" if off == 0 else f"to {off:.2g} of the largest answer"
    return (
        f"{out}: one step of {streamed.window}, {len(streamed.states)} states; over {WINDOWS} windows of noise it "
        f"answers as {source.name} does, {same}"
    )


def _largest_error(reference: Engine, stepped: Engine, streamed: Streamed, axis: int) -> float:
    """Over some windows, the largest difference of an answer as a share of the largest answer."""
    random = np.random.default_rng(0)
    whole, step = _Bound(reference), _Bound(stepped)
    largest, error = 0.0, 0.0
    for _ in range(WINDOWS):
        for array in whole.inputs.values():
            array[...] = random.standard_normal(array.shape)
        whole.replay()
        for taken, _given in streamed.states:
            step.inputs[taken][...] = 0
        for place in range(streamed.window):
            for name, array in whole.inputs.items():
                step.inputs[name][...] = np.take(array, [place], axis)
            step.replay()
            for taken, given in streamed.states:
                step.inputs[taken][...] = step.outputs[given]
        for name, expected in whole.outputs.items():
            right, came = (array.astype(np.float64) for array in (expected, step.outputs[name]))
            largest = max(largest, float(np.abs(right).max(initial=0)))
            error = max(error, float(np.abs(came - right).max(initial=0)))
    return error / largest if error else 0.0


class _Bound:
    """An engine, captured for one row."""

    def __init__(self, engine: Engine) -> None:
        spec = engine.spec
        self.inputs: dict[str, Array] = {t.name: np.zeros(t.shape_at(1), t.dtype) for t in spec.inputs}
        self.outputs: dict[str, Array] = {t.name: np.zeros(t.shape_at(1), t.dtype) for t in spec.outputs}
        self.replay = engine.capture(list(self.inputs.values()), list(self.outputs.values())).replay
