"""Every zoo model is parsed and built by TensorRT-RTX, and so is every real one that can be served, or refused by name.

Unrolled recurrences are long to build, minutes for a hundred steps of several layers. Such models are parsed unrolled,
which shows that RTX knows all of their operators; those of the zoo are also built with their loops left in.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import onnx
import pytest
from tests.inputs import inputs_root
from tests.real_models import REFUSED, SHAPES, name_of

from tickpath.engines import ModelRefusedError, zoo
from tickpath.engines.compile import CompileOptions, compile_model, read_plan
from tickpath.engines.compile.compiling import UNWATCHED
from tickpath.engines.onnx_model import OnnxModel, read_model
from tickpath.engines.onnxruntime import load_onnx
from tickpath.engines.passes.shapes import settle
from tickpath.engines.passes.unroll import unroll
from tickpath.engines.tensorrt import BuildSettings, TensorRT, build, parse

# The zoo's, built as they would be served: those whose build takes seconds.
QUICK: Final[Mapping[str, tuple[int, ...]]] = {
    "null": (1, 2, 4, 8),
    "mlp": (1, 2, 4, 8),
    "deeplob": (1,),
    "lstm_a": (1,),
}
LONG: Final = tuple(name for name in zoo.names() if name not in QUICK)

# A real model of more operators, unrolled, is parsed and not built.
OPERATORS_MAX: Final = 250

NO_LENGTH: Final = "isn't fixed, so it can't be unrolled"

# Why a model that the CPU engine serves can't be compiled, in words of the refusal.
UNCOMPILED: Final[Mapping[str, str]] = {
    "onnxruntime_go/example_multitype.onnx": "input 'InputB' is float64",
    "polygraphy/bad_graph_conditionally_invalid.onnx": "If 'If_Node': can't be captured",
    "polygraphy/loop.onnx": "Loop 'while_loop': can't be captured",
    "polygraphy/qdq_conv.onnx": "operator 'QuantizeLinear' (onnx_graphsurgeon_node_1): ",
    "polygraphy/scan.onnx": "Scan 'y': can't be captured",
    "silero_vad/silero_vad.onnx": NO_LENGTH,
    "silero_vad/silero_vad_16k_op15.onnx": NO_LENGTH,
    "silero_vad/silero_vad_half.onnx": NO_LENGTH,
    "silero_vad/silero_vad_op18_ifless.onnx": "If 'node_cond__1': can't be captured",
    "surfaces/gradient_boosting_regressor.onnx": "operator 'Scaler' (Scaler): it has no such operator",
    "surfaces/k_neighbors_regressor.onnx": "operator 'Scaler' (Scaler): it has no such operator",
}

ROOT: Final = (inputs_root() or Path("none")) / "models"
SERVED: Final = sorted(path for path in ROOT.rglob("*.onnx") if name_of(path, ROOT) not in REFUSED)


@pytest.mark.parametrize(("name", "buckets"), QUICK.items(), ids=QUICK)
def test_the_zoo(name: str, buckets: tuple[int, ...], tmp_path: Path) -> None:
    source, out = tmp_path / f"{name}.onnx", tmp_path / f"{name}.plan"
    source.write_bytes(zoo.build(name).SerializeToString())
    compiled = compile_model(source, out, CompileOptions("tensorrt-rtx", buckets, targets=("sm89",)))
    assert read_plan(out).sidecar == compiled.sidecar
    assert compiled.sidecar.parity is not None
    assert [each.bucket for each in compiled.sidecar.parity.outputs] == list(buckets)


@pytest.mark.parametrize("name", LONG)
def test_long_ones_of_the_zoo(name: str, rtx: TensorRT) -> None:
    model = zoo.build(name)
    assert parse(rtx, unroll(model).SerializeToString()).notes == ()
    sizes = [dimension.dim_value for dimension in model.graph.input[0].type.tensor_type.shape.dim[1:]]
    settings = BuildSettings(({"x": (1, *sizes)},), False, ("sm89",), 0, 1, 0)
    assert build(rtx, model.SerializeToString(), settings, UNWATCHED).plan


@pytest.mark.skipif(not SERVED, reason="no real models here: set TICKPATH_INPUTS to their folder")
@pytest.mark.parametrize("path", SERVED, ids=[name_of(path, ROOT) for path in SERVED])
def test_real_models(path: Path, rtx: TensorRT, tmp_path: Path) -> None:
    name = name_of(path, ROOT)
    shapes = dict(SHAPES.get(name, {}))
    if name not in UNCOMPILED and operators(read_model(path, shapes)) > OPERATORS_MAX:
        parse(rtx, straight(read_model(path, shapes)).SerializeToString())
        return
    reference = load_onnx(path, shapes)
    buckets = (reference.spec.rows_fixed,) if reference.spec.rows_fixed else (1, 2) if reference.spec.batched else (1,)
    options = CompileOptions("tensorrt-rtx", buckets, targets=("sm89",), shapes=shapes)
    if name in UNCOMPILED:
        with pytest.raises(ModelRefusedError) as refused:
            compile_model(path, tmp_path / "out.plan", options, reference)
        assert UNCOMPILED[name] in str(refused.value)
        assert list(tmp_path.iterdir()) == []
        return
    assert compile_model(path, tmp_path / "out.plan", options, reference).fresh


def straight(model: OnnxModel) -> onnx.ModelProto:
    """What the builder would get."""
    return unroll(settle(model.file.model, model.inputs.tensors, model.inputs.rows_fixed))


def operators(model: OnnxModel) -> int:
    return len(straight(model).graph.node)
