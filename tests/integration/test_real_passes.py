"""Real models with recurrent operators, unrolled: they answer as their files do, or are refused with the reason."""

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
from tickpath.engines.passes import settle, unroll
from tickpath.engines.passes.recurrence import RECURRENT

ROOT = inputs_root()
if ROOT is None:
    pytest.skip("no real models: set TICKPATH_INPUTS", allow_module_level=True)
MODELS_ROOT = ROOT / "models"

# Their sequences' lengths follow from padding and branches that shape inference does not see through.
OPEN: Final = frozenset(f"silero_vad/silero_vad{kind}.onnx" for kind in ("", "_16k_op15", "_16k_sequence", "_half"))


def _recurrent(path: Path) -> bool:
    return any(node.op_type in RECURRENT for node in nodes(onnx.load(path).graph))


NAMES: Final = [
    name
    for path in sorted(MODELS_ROOT.rglob("*.onnx"))
    if (name := name_of(path, MODELS_ROOT)) not in REFUSED and _recurrent(path)
]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OPEN])
def test_unrolled(name: str, tmp_path: Path) -> None:
    unrolled_beside(MODELS_ROOT / name, SHAPES.get(name, {}), tmp_path)


@pytest.mark.parametrize("name", sorted(OPEN))
def test_refused(name: str) -> None:
    path = MODELS_ROOT / name
    settled = settle(onnx.load(path), load_onnx(path, SHAPES[name]).spec.inputs)
    with pytest.raises(ModelRefusedError, match=r"the sequence length of LSTM .* isn't fixed"):
        unroll(settled)
