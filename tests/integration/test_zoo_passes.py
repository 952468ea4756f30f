"""Passes over the reference models: unrolled to rounding, and in low precision near enough."""

from pathlib import Path
from typing import Final

import pytest
from tests.onnx_models import save
from tests.passes_parity import unrolled_beside

from tickpath.engines import zoo
from tickpath.engines.onnxruntime import load_onnx
from tickpath.engines.passes import (
    TOLERANCES,
    Precision,
    loops,
    measure_parity,
    refuse,
    rehearse,
    to_precision,
    unroll,
)

LOW: Final[tuple[Precision, ...]] = ("fp16", "bf16")

# Its weights are 112 MB and a row takes a third of a second: see test_the_largest.
LARGEST: Final = "lstm_c"


@pytest.mark.parametrize("name", [name for name in zoo.names() if name != LARGEST])
def test_unrolled_and_in_low_precision(name: str, tmp_path: Path) -> None:
    path = save(zoo.build(name), tmp_path)
    unrolled = unrolled_beside(path, {}, tmp_path)
    assert loops(unrolled) == ()
    if name == "lstm_b":  # as lstm_a, and rehearsed ten times as slow
        return
    for precision in LOW:
        to_precision(unrolled, precision)
        candidate = load_onnx(save(rehearse(unrolled, precision), tmp_path, f"{precision}.onnx"))
        refuse(measure_parity(load_onnx(path), candidate, [4]), TOLERANCES[precision])


def test_the_largest() -> None:
    proto = zoo.build(LARGEST)
    unrolled = unroll(proto)
    assert loops(unrolled) == ()
    assert unrolled.ByteSize() < 1.01 * proto.ByteSize(), "its weights are there once"
