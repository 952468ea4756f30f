"""Compiling for the CPU goes the whole way here: what comes out is loaded, runs, and is what its sidecar says."""

from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import helper
from tests.onnx_models import constant, gru, model, one_node, save, value
from tests.reference import assert_same_bits, reference_session, run_reference

from tickpath.engines import ModelRefusedError, zoo
from tickpath.engines.compile import BadPlanError, CompileOptions, compile_model, read_plan, sidecar_path
from tickpath.engines.compile.fallback import load_or_fall_back
from tickpath.engines.onnxruntime import RUNTIME, load_onnx

OPTIONS = CompileOptions("onnxruntime", (1, 2))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return save(zoo.build("mlp"), tmp_path, "mlp.onnx")


def test_what_comes_out_answers_as_its_source(source: Path) -> None:
    out = source.with_name("out.onnx")
    compiled = compile_model(source, out, OPTIONS)
    assert compiled.fresh
    one, other = load_onnx(source), load_onnx(out)
    assert one.spec.describe() == other.spec.describe()
    arrays = one.sample(2)
    assert_same_bits(
        run_reference(reference_session(out), one.spec, arrays),
        run_reference(reference_session(source), one.spec, arrays),
    )


def test_the_sidecar_says_where_it_is_from(source: Path) -> None:
    out = source.with_name("out.onnx")
    compile_model(source, out, OPTIONS)
    sidecar = read_plan(out).sidecar
    spec = load_onnx(source).spec
    assert (sidecar.recipe.source_sha256, sidecar.recipe.runtime) == (spec.sha256, RUNTIME)
    assert sidecar.parity is not None
    assert {(each.bucket, each.max_rel) for each in sidecar.parity.outputs} == {(1, 0.0), (2, 0.0)}


def test_what_is_up_to_date_is_left_alone(source: Path) -> None:
    out = source.with_name("out.onnx")
    compile_model(source, out, OPTIONS)
    before = out.stat().st_mtime_ns
    assert not compile_model(source, out, OPTIONS).fresh
    assert out.stat().st_mtime_ns == before
    assert compile_model(source, out, OPTIONS, force=True).fresh
    assert compile_model(source, out, msgspec.structs.replace(OPTIONS, buckets=(1,))).fresh
    save(zoo.build("null"), source.parent, source.name)
    assert compile_model(source, out, OPTIONS).fresh


def test_what_is_damaged_is_named_and_made_again(source: Path) -> None:
    out = source.with_name("out.onnx")
    compile_model(source, out, OPTIONS)
    whole = out.read_bytes()
    out.write_bytes(whole[:100])
    compiled = compile_model(source, out, OPTIONS)
    assert compiled.fresh
    assert "out.onnx: the plan has 100 bytes" in compiled.notes[0]
    assert out.read_bytes() == whole


def test_precision_is_bought_with_a_figure(source: Path) -> None:
    out = source.with_name("half.onnx")
    compiled = compile_model(source, out, msgspec.structs.replace(OPTIONS, precision="fp16"))
    parity = compiled.sidecar.parity
    assert parity is not None
    assert all(0 < each.max_rel < 1e-2 for each in parity.outputs)
    assert load_onnx(out).spec.inputs[0].dtype == np.float32
    assert out.stat().st_size < 0.6 * source.stat().st_size


def test_what_float16_cannot_hold_is_refused(tmp_path: Path) -> None:
    """Prices as some venues send them: 4,799,000,000,000."""
    inputs, outputs = [value("x", np.float32, ["N", 4])], [value("y", np.float32, ["N", 4])]
    proto = model([helper.make_node("Mul", ["x", "k"], ["y"])], inputs, outputs, [constant("k", [4.799e12] * 4)])
    source, out = save(proto, tmp_path), tmp_path / "out.onnx"
    with pytest.raises(ModelRefusedError, match=r"model\.onnx: .*"):
        compile_model(source, out, msgspec.structs.replace(OPTIONS, precision="fp16"))
    assert not out.exists()
    assert not sidecar_path(out).exists()


def test_a_model_whose_weights_stand_beside_it_comes_out_whole(tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    onnx.save_model(zoo.build("mlp"), source, save_as_external_data=True, location="weights.bin", size_threshold=0)
    out = tmp_path / "elsewhere" / "out.onnx"
    out.parent.mkdir()
    compile_model(source, out, OPTIONS)
    assert load_onnx(out).spec.describe() == load_onnx(source).spec.describe()


def test_declared_shapes_are_within(tmp_path: Path) -> None:
    source = save(gru(), tmp_path)
    compiled = compile_model(
        source, tmp_path / "out.onnx", msgspec.structs.replace(OPTIONS, shapes={"data": ("N", 4, 3)})
    )
    assert compiled.sidecar.recipe.inputs[1].batch_axis == 1


@pytest.mark.parametrize(
    ("out", "options", "says"),
    [
        ("out.plan", OPTIONS, r"out\.plan: onnxruntime writes \.onnx files: name it out\.onnx"),
        ("out.onnx", CompileOptions("tensorrt-rtx", (1,)), r"out\.onnx: tensorrt-rtx writes \.plan files"),
        (
            "out.onnx",
            msgspec.structs.replace(OPTIONS, targets=("sm89",)),
            "onnxruntime runs on the CPU: leave --gpu out",
        ),
        ("out.onnx", msgspec.structs.replace(OPTIONS, precision="tf32"), "no TF32"),
        ("none/out.onnx", OPTIONS, r"none/out\.onnx: can't be written: No such file or directory"),
    ],
)
def test_what_cannot_be(source: Path, out: str, options: CompileOptions, says: str) -> None:
    with pytest.raises(ModelRefusedError, match=says):
        compile_model(source, source.parent / out, options)


def test_a_bad_plan_is_refused_or_its_source_runs_on_the_cpu(tmp_path: Path) -> None:
    plan = tmp_path / "model.plan"
    plan.write_bytes(b"")

    def load(path: Path) -> str:
        read_plan(path)
        raise AssertionError("it is bad")

    for policy in ("refuse", "cpu", "rebuild"):
        with pytest.raises(BadPlanError, match=r"model\.plan\.json: .* is not there"):
            load_or_fall_back(plan, policy, load, load_onnx)
    save(one_node("Neg", np.float32, ["N", 4]), tmp_path)
    with pytest.raises(BadPlanError, match="nobody knows how to build it"):
        load_or_fall_back(plan, "rebuild", load, load_onnx)
    engine, problem = load_or_fall_back(plan, "cpu", load, load_onnx)
    assert not isinstance(engine, str)
    assert engine.spec.runtime == RUNTIME
    assert problem.endswith("compile the model again; model.onnx runs on the CPU")
