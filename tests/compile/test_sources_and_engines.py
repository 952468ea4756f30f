"""Every source to every engine: an .onnx or a .pt2 file to a plan, to OpenVINO, to onnxruntime, to machine code."""

import shutil
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import torch
from tests.compile.programs import export, rewritten
from tests.conformance.test_engine import capture, data
from tests.onnx_models import save
from tests.reference import assert_near

from tickpath.engines import Engine, EngineFailedError, ModelRefusedError, zoo
from tickpath.engines.compile import BadPlanError, Compiled, CompileOptions, compile_model
from tickpath.engines.compile.options import SUFFIXES, CompileEngine, Precision
from tickpath.engines.load import load

BUCKETS: Final = (1, 2, 4)


class Recurrent(torch.nn.Module):
    """A GRU over an LSTM over five steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.LSTM(3, 8, batch_first=True)
        self.second = torch.nn.GRU(8, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """float32[N,5,3] -> float32[N,8]"""
        return {"y": self.second(self.first(x)[0])[0][:, -1]}


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As people export such a model: nn.LSTM and nn.GRU, the batch open."""
    path = tmp_path_factory.mktemp("recurrent") / "recurrent.pt2"
    batch = {"x": {0: torch.export.Dim("batch", min=1)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of nn.LSTM, torch says that it assigns to its own parts
        program = torch.export.export(Recurrent().eval(), (torch.randn(3, 5, 3),), dynamic_shapes=batch)
    torch.export.save(program, path)
    return path


def compile_for(engine: CompileEngine, source: Path, folder: Path, precision: Precision = "fp32") -> Compiled:
    targets = ("sm89",) if engine == "tensorrt-rtx" else ()
    options = CompileOptions(engine, BUCKETS, precision, targets)
    return compile_model(source, folder / f"out{SUFFIXES[engine]}", options)


def assert_same_answers(one: Engine, other: Engine) -> None:
    for rows in BUCKETS:
        arrays = data(one.spec.inputs, rows, seed=rows)
        assert_near(capture(one, rows)(arrays), capture(other, rows)(arrays))


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_recurrent_program_on_the_cpu(engine: CompileEngine, recurrent: Path, tmp_path: Path) -> None:
    compiled = compile_for(engine, recurrent, tmp_path)
    out = load(compiled.path)
    assert out.spec.describe() == "x float32[N,5,3] -> y float32[N,8]"
    assert_same_answers(out, load(recurrent))


def test_a_recurrent_program_as_a_plan_of_every_bucket(recurrent: Path, tmp_path: Path) -> None:
    sidecar = compile_for("tensorrt-rtx", recurrent, tmp_path).sidecar
    assert sidecar.recipe.source_sha256 == load(recurrent).spec.sha256
    assert sidecar.recipe.inputs[0].batch_axis == 0
    assert sidecar.parity is not None
    assert [each.bucket for each in sidecar.parity.outputs] == list(BUCKETS)


def test_a_program_of_one_batch_size_stays_so(tmp_path: Path) -> None:
    source = export(tmp_path, lambda module, x: x * module.state, dims=())
    compiled = compile_model(source, tmp_path / "out.ov", CompileOptions("openvino", (3,), shapes={"x": ("N", 3)}))
    assert compiled.sidecar.recipe.rows_fixed == 3
    with pytest.raises(ValueError, match="runs on 3"):
        capture(load(compiled.path), 1)


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiled]:
    """What AOTInductor makes of a small program: a C++ compiler takes half a minute on its own headers."""
    folder = tmp_path_factory.mktemp("packaged")
    source = export(folder, lambda module, x: {"y": torch.relu(x * module.state), "total": x.sum(1)})
    yield compile_for("torch", source, folder)
    assert sorted(file.name for file in folder.iterdir()) == ["model.pt2", "out.pt2", "out.pt2.json"]


@pytest.mark.timeout(600)  # the compiler's time, with others at work beside it
def test_machine_code_answers_as_its_program(packaged: Compiled) -> None:
    assert packaged.sidecar.notes == (
        "it holds machine code, for CPUs like this one: serve it with --trust (trust = true)",
    )
    with pytest.raises(ModelRefusedError, match="machine code"):
        load(packaged.path)
    assert_same_answers(load(packaged.path, trusted=True), load(packaged.path.with_name("model.pt2")))


@pytest.mark.timeout(600)
def test_machine_code_without_its_program(packaged: Compiled, tmp_path: Path) -> None:
    alone = Path(shutil.copy(packaged.path, tmp_path / "alone.pt2"))
    rewritten(alone, lambda name, content: None if "/models/" in name else content)
    with pytest.raises(ModelRefusedError, match="does not say what it takes"):
        load(alone, trusted=True)


@pytest.mark.parametrize(
    ("engine", "precision", "says"),
    [
        ("torch", "fp32", r"mlp\.onnx: torch compiles \.pt2 files"),
        ("openvino", "fp16", "computes in fp32 or bf16 on a CPU, not in fp16"),
        ("openvino", "tf32", "has no TF32"),
    ],
)
def test_what_an_engine_has_not(engine: CompileEngine, precision: Precision, says: str, tmp_path: Path) -> None:
    source = save(zoo.build("mlp"), tmp_path, "mlp.onnx")
    with pytest.raises(ModelRefusedError, match=says):
        compile_for(engine, source, tmp_path, precision)
    assert [file.name for file in tmp_path.iterdir()] == ["mlp.onnx"]


def test_bfloat16_in_openvino(tmp_path: Path) -> None:
    source = save(zoo.build("mlp"), tmp_path, "mlp.onnx")
    if "BF16" not in capabilities():
        with pytest.raises(ModelRefusedError, match="this CPU has no bfloat16"):
            compile_for("openvino", source, tmp_path, "bf16")
        return
    compiled = compile_for("openvino", source, tmp_path, "bf16")
    assert compiled.sidecar.parity is not None
    assert all(1e-5 < each.max_rel < 5e-2 for each in compiled.sidecar.parity.outputs)
    assert load(compiled.path).spec.precision == "bfloat16"


def capabilities() -> list[str]:
    import openvino

    return list(openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda content: content[: len(content) // 2], "without its end: the file is truncated"),
        (
            lambda content: content[:500] + bytes([content[500] ^ 1]) + content[501:],
            "it is damaged or of another build",
        ),
        (lambda content: b"", "the file is empty"),
        (lambda content: b"nothing", "not an OpenVINO model"),
    ],
    ids=["truncated", "flipped", "empty", "foreign"],
)
def test_a_damaged_openvino_model(damage: object, says: str, tmp_path: Path) -> None:
    out = compile_for("openvino", save(zoo.build("null"), tmp_path, "null.onnx"), tmp_path).path
    assert callable(damage)
    out.write_bytes(damage(out.read_bytes()))
    with pytest.raises(ModelRefusedError, match=says) as refused:
        load(out)
    assert "\n" not in str(refused.value)


def test_an_openvino_model_without_its_sidecar_or_with_anothers(tmp_path: Path) -> None:
    source = save(zoo.build("null"), tmp_path, "null.onnx")
    out = compile_for("openvino", source, tmp_path).path
    other = compile_for("onnxruntime", source, tmp_path).path
    stranger = tmp_path / "stranger.ov"
    with zipfile.ZipFile(stranger, "w") as archive:
        archive.writestr("a", "b")
    with pytest.raises(BadPlanError, match=r"the sidecar of stranger\.ov is not there"):
        load(stranger)
    shutil.copy(f"{other}.json", f"{out}.json")
    with pytest.raises(BadPlanError, match="another build"):
        load(out)


def test_without_a_sample_of_its_own_rows_it_is_asked_for_others(tmp_path: Path) -> None:
    """Whoever verifies asks for more rows than the largest bucket has."""
    engine = load(compile_for("openvino", save(zoo.build("mlp"), tmp_path, "mlp.onnx"), tmp_path).path)
    assert [np.shape(array) for array in engine.sample(11)] == [(11, 64)]
    with pytest.raises(EngineFailedError, match=r"compiled for buckets 1,2,4, not 3"):
        capture(engine, 3)
