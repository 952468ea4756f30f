"""Real models with recurrent operators and loops, unrolled: they answer as their files do, or are refused with the
reason."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import onnx
import pytest
from tests.inputs import inputs_root
from tests.passes_parity import unrolled_beside
from tests.real_models import REFUSED, SHAPES, name_of

from tickpath.engines import ModelRefusedError
from tickpath.engines.onnx_file import nodes
from tickpath.engines.onnxruntime import load_onnx
from tickpath.engines.passes import loops, settle, unroll
from tickpath.engines.passes.recurrence import RECURRENT

ROOT = inputs_root()
if ROOT is None:
    pytest.skip("no real models: set TICKPATH_INPUTS", allow_module_level=True)
MODELS_ROOT = ROOT / "models"

# Their sequences' lengths are known for a fixed batch only, or not at all.
OPEN: Final = frozenset(f"silero_vad/silero_vad{kind}.onnx" for kind in ("", "_16k_op15", "_half"))


# Rounds and branches that depend on data.
LEFT: Final[Mapping[str, str]] = {
    "polygraphy/bad_graph_conditionally_invalid.onnx": "If",
    "polygraphy/loop.onnx": "Loop",
    "polygraphy/scan.onnx": "Scan",
    "silero_vad/silero_vad_op18_ifless.onnx": "If",
}


def _loops(path: Path) -> bool:
    return any(node.op_type in RECURRENT | {"If", "Loop", "Scan"} for node in nodes(onnx.load(path).graph))


NAMES: Final = [
    name
    for path in sorted(MODELS_ROOT.rglob("*.onnx"))
    if (name := name_of(path, MODELS_ROOT)) not in REFUSED and _loops(path)
]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OPEN])
def test_unrolled(name: str, tmp_path: Path) -> None:
    unrolled = unrolled_beside(MODELS_ROOT / name, SHAPES.get(name, {}), tmp_path)
    assert [line.split()[0] for line in loops(unrolled)] == ([LEFT[name]] if name in LEFT else [])


@pytest.mark.parametrize("name", sorted(OPEN))
def test_refused(name: str) -> None:
    path = MODELS_ROOT / name
    settled = settle(onnx.load(path), load_onnx(path, SHAPES[name]).spec.inputs)
    with pytest.raises(ModelRefusedError, match=r"the sequence length of LSTM .* isn't fixed"):
        unroll(settled)
