"""Passes over ONNX graphs, before a device's runtime is given them. Models go in and come out as they are in memory;
nothing is read, written or run, but for what `measure_parity` asks of two engines."""

from tickpath.engines.passes.checks import int64_constants_that_clamp, loops, shapes_that_depend_on_data
from tickpath.engines.passes.parity import TOLERANCES, OutputParity, Parity, Tolerance, measure_parity, refuse
from tickpath.engines.passes.precision import Precision, rehearse, stays_float32, to_precision
from tickpath.engines.passes.shapes import settle
from tickpath.engines.passes.straighten import straighten
from tickpath.engines.passes.streaming import Streamed, stream
from tickpath.engines.passes.unroll import unroll

__all__ = [
    "TOLERANCES",
    "OutputParity",
    "Parity",
    "Precision",
    "Streamed",
    "Tolerance",
    "int64_constants_that_clamp",
    "loops",
    "measure_parity",
    "refuse",
    "rehearse",
    "settle",
    "shapes_that_depend_on_data",
    "stays_float32",
    "straighten",
    "stream",
    "to_precision",
    "unroll",
]
