"""The engine for plans, on a TensorRT without a device."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.plans import RECIPE, make_sidecar
from tests.stand_in_tensorrt import DataType, Mode, StandInEngine, Strategy, Tensor, fitting_engine, stand_in

from tickpath.engines import DeviceEngine, EngineFailedError, ModelRefusedError
from tickpath.engines.compile.plan_file import BadPlanError, Plan, publish
from tickpath.engines.plan import PlanEngine, check_engine, load_plan
from tickpath.engines.tensorrt import deserialise

PLAN = Plan(Path("model.plan"), b"plan", make_sidecar(b"plan"))
ADDRESSES = [0x1000, 0x2000]
STREAM = 77


def test_it_is_a_device_engine() -> None:
    engine = PlanEngine(stand_in(), fitting_engine(), PLAN)
    assert isinstance(engine, DeviceEngine)
    assert (engine.spec.buckets, engine.spec.precision) == ((1, 2), "float32")
    assert [array.shape for array in engine.sample(2)] == [(2, 4)]


def test_the_first_run_prepares_on_its_stream_and_later_ones_only_run() -> None:
    trt_engine = fitting_engine()
    context = PlanEngine(stand_in(), trt_engine, PLAN).context(2)
    context.bind(ADDRESSES)
    assert context.enqueue(STREAM)
    assert context.enqueue(STREAM + 1)
    assert trt_engine.contexts[0].calls == [
        ("profile", 1, STREAM),
        ("shape", "x", (2, 4)),
        ("address", "x", 0x1000),
        ("address", "y", 0x2000),
        ("run", STREAM),
        ("run", STREAM + 1),
    ]


def test_every_context_is_its_own() -> None:
    trt_engine = fitting_engine()
    engine = PlanEngine(stand_in(), trt_engine, PLAN)
    for rows in (2, 1, 1):
        context = engine.context(rows)
        context.bind(ADDRESSES)
        context.enqueue(STREAM)
    assert [context.profile for context in trt_engine.contexts] == [1, 0, 0]


def test_rtx_makes_its_kernels_before_the_first_run() -> None:
    engines = {rtx: fitting_engine() for rtx in (True, False)}
    for rtx, trt_engine in engines.items():
        PlanEngine(stand_in(rtx=rtx), trt_engine, PLAN).context(1)
    assert engines[True].configs[0].dynamic_shapes_kernel_specialization_strategy is Strategy.EAGER
    assert engines[False].configs == [None]


@pytest.mark.parametrize(
    ("refuse", "says"),
    [
        ("profile", "refused profile 0"),
        ("shape", r"refused shape \(1, 4\) of input 'x'"),
        ("address", "refused the address of 'x'"),
    ],
)
def test_what_is_refused_is_an_exception(refuse: str, says: str) -> None:
    context = PlanEngine(stand_in(), fitting_engine(refuse), PLAN).context(1)
    context.bind(ADDRESSES)
    with pytest.raises(EngineFailedError, match=says):
        context.enqueue(STREAM)


def test_a_run_that_is_refused_is_false() -> None:
    context = PlanEngine(stand_in(), fitting_engine("run"), PLAN).context(1)
    context.bind(ADDRESSES)
    assert context.enqueue(STREAM) is False


def test_an_output_of_another_size_never_runs() -> None:
    trt_engine = fitting_engine()
    trt_engine.tensors["y"] = replace(trt_engine.tensors["y"], shapes=[(1, 300), (2, 300)])
    context = PlanEngine(stand_in(), trt_engine, PLAN).context(1)
    context.bind(ADDRESSES)
    with pytest.raises(EngineFailedError, match=r"output 'y' as \(1, 300\), not \(1, 3\)"):
        context.enqueue(STREAM)
    assert "run" not in [call[0] for call in trt_engine.contexts[0].calls]


def test_no_context_and_no_such_bucket() -> None:
    with pytest.raises(EngineFailedError, match="no execution context"):
        PlanEngine(stand_in(), fitting_engine("context"), PLAN).context(1)
    with pytest.raises(EngineFailedError, match="compiled for buckets 1,2, not 4"):
        PlanEngine(stand_in(), fitting_engine(), PLAN).context(4)


def test_a_closed_engine_has_no_contexts() -> None:
    engine = PlanEngine(stand_in(), fitting_engine(), PLAN)
    engine.close()
    with pytest.raises(ValueError, match="closed"):
        engine.context(1)


def other(name: str, tensor: Tensor) -> Callable[[StandInEngine], None]:
    return lambda engine: engine.tensors.update({name: tensor})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda engine: engine.tensors.pop("y"), r"tensors x \(input\), its sidecar says x \(input\), y \(output\)"),
        (other("z", Tensor(Mode.OUTPUT, DataType.FLOAT, [(1,), (2,)])), r"z \(output\)"),
        (other("x", Tensor(Mode.OUTPUT, DataType.FLOAT, [(1, 4), (2, 4)])), r"x \(output\)"),
        (other("x", Tensor(Mode.INPUT, DataType.HALF, [(1, 4), (2, 4)])), "'x' as float16, its sidecar says float32"),
        (other("x", Tensor(Mode.INPUT, DataType.FLOAT, [(1, 4), (4, 4)])), r"profile 1 of 'x' as \[\(4, 4\)\]"),
        (lambda engine: setattr(engine, "num_optimization_profiles", 1), "1 profiles, its sidecar says 2"),
    ],
)
def test_what_the_runtime_sees_must_be_what_the_sidecar_says(
    change: Callable[[StandInEngine], None], says: str
) -> None:
    engine = fitting_engine()
    check_engine(PLAN.path, engine, PLAN)
    change(engine)
    with pytest.raises(BadPlanError, match=says):
        check_engine(PLAN.path, engine, PLAN)


def test_a_plan_that_the_runtime_does_not_take_is_refused_with_its_reason() -> None:
    with pytest.raises(
        ModelRefusedError, match=r"tensorrt-rtx 1\.7\.1\.116 does not take this plan: .* capability 7\.5"
    ):
        deserialise(stand_in(engine=None), b"plan")


def test_sidecars_that_are_not_for_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "model.plan"
    recipe = msgspec.structs.replace(RECIPE, options=msgspec.structs.replace(RECIPE.options, engine="onnxruntime"))
    publish(path, b"plan", make_sidecar(b"plan", recipe))
    with pytest.raises(BadPlanError, match="of an onnxruntime model"):
        load_plan(path)


def test_samples_are_those_that_ran_when_it_was_compiled() -> None:
    sidecar = msgspec.structs.replace(PLAN.sidecar, patterns=(1, 0))
    engine = PlanEngine(stand_in(), fitting_engine(), replace(PLAN, sidecar=sidecar))
    assert not np.any(engine.sample(1)[0])
    assert np.any(engine.sample(2)[0])
