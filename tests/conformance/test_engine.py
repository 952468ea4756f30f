"""What every engine must do, run over each of them on the same tiny models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper
from tests.onnx_models import constant, gru, model, one_node, save, value
from tests.reference import assert_near, assert_same_bits, reference_session, run_reference

from tickpath.engines import Array, Engine, EngineFailedError, Graph, ModelRefusedError, TensorSpec
from tickpath.engines.onnx_spec import Shape
from tickpath.engines.onnxruntime import load_onnx

Load = Callable[[Path, Mapping[str, Shape] | None], Engine]


@dataclass(frozen=True)
class Bound:
    """A graph and its buffers."""

    graph: Graph
    inputs: list[Array]
    outputs: list[Array]

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        for buffer, array in zip(self.inputs, arrays, strict=True):
            buffer[...] = array
        self.graph.replay()
        return [output.copy() for output in self.outputs]


def capture(engine: Engine, rows: int) -> Bound:
    inputs = [np.zeros(tensor.shape_at(rows), tensor.dtype) for tensor in engine.spec.inputs]
    outputs = [np.zeros(tensor.shape_at(rows), tensor.dtype) for tensor in engine.spec.outputs]
    return Bound(engine.capture(inputs, outputs), list(inputs), list(outputs))


def data(tensors: Sequence[TensorSpec], rows: int, seed: int) -> list[Array]:
    random = np.random.default_rng(seed)
    return [np.asarray(random.random(tensor.shape_at(rows)) * 4).astype(tensor.dtype) for tensor in tensors]


def assert_serves(path: Path, engine: Engine, rows: Sequence[int]) -> None:
    """Bound replays give what plain runs of the same batch give in onnxruntime, with several graphs at once: bit for
    bit where it is the engine's own runtime."""
    session = reference_session(path)
    check = assert_same_bits if engine.spec.runtime.startswith("onnxruntime") else assert_near
    bound = {count: capture(engine, count) for count in rows}
    for seed in range(3):
        for count in rows:
            arrays = data(engine.spec.inputs, count, seed)
            check(bound[count](arrays), run_reference(session, engine.spec, arrays))


@pytest.fixture(params=[load_onnx], ids=["onnxruntime"])
def load(request: pytest.FixtureRequest) -> Load:
    loader: Load = request.param
    return loader


@pytest.mark.parametrize("dtype", ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])
def test_every_dtype(load: Load, tmp_path: Path, dtype: str) -> None:
    path = save(one_node("Identity", dtype, ["N", 3]), tmp_path)
    engine = load(path, None)
    assert engine.spec.describe() == f"x {np.dtype(dtype).name}[N,3] -> y {np.dtype(dtype).name}[N,3]"
    assert_serves(path, engine, [1, 2, 5])


def test_many_inputs_and_outputs_in_the_models_order(load: Load, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["flags"], ["weights"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["prices", "weights"], ["masked"]),
        helper.make_node("ArgMax", ["masked"], ["best"], axis=1, keepdims=0),
    ]
    inputs = [value("prices", np.float32, ["N", 4]), value("flags", np.bool_, ["N", 4])]
    outputs = [value("best", np.int64, ["N"]), value("masked", np.float32, ["N", 4])]
    path = save(model(nodes, inputs, outputs), tmp_path)
    engine = load(path, None)
    assert engine.spec.describe() == "prices float32[N,4], flags bool[N,4] -> best int64[N], masked float32[N,4]"
    assert_serves(path, engine, [1, 3])


def test_a_batch_axis_that_differs(load: Load, tmp_path: Path) -> None:
    path = save(gru(), tmp_path)
    engine = load(path, None)
    assert [tensor.batch_axis for tensor in (*engine.spec.inputs, *engine.spec.outputs)] == [0, 1, 0, 1]
    assert_serves(path, engine, [1, 2, 4])


def test_a_scalar_that_all_rows_share(load: Load, tmp_path: Path) -> None:
    inputs = [value("x", np.float64, ["N", 2]), value("factor", np.float64, [])]
    nodes = [helper.make_node("Mul", ["x", "factor"], ["y"])]
    path = save(model(nodes, inputs, [value("y", np.float64, ["N", 2])]), tmp_path)
    engine = load(path, None)
    assert engine.spec.describe() == "x float64[N,2], factor float64[] -> y float64[N,2]"
    assert_serves(path, engine, [1, 2])


def test_optional_inputs_have_their_default_and_can_be_overridden(load: Load, tmp_path: Path) -> None:
    inputs = [value("bias", np.float32, [2]), value("x", np.float32, ["N", 2])]
    nodes = [helper.make_node("Add", ["x", "bias"], ["y"])]
    proto = model(nodes, inputs, [value("y", np.float32, ["N", 2])], [constant("bias", [1, 2])])
    path = save(proto, tmp_path)
    engine = load(path, None)
    required, optional = engine.spec.inputs
    assert (required.name, optional.name, required.optional, optional.optional) == ("x", "bias", False, True)
    assert optional.default is not None
    bound = capture(engine, 1)
    rows = np.array([[10, 20]], np.float32)
    assert bound([rows, optional.default])[0].tolist() == [[11, 22]]
    assert bound([rows, np.array([5, 5], np.float32)])[0].tolist() == [[15, 25]]
    assert_serves(path, engine, [1, 2])


def test_initializers_before_ir_4_are_constants(load: Load, tmp_path: Path) -> None:
    inputs = [value("x", np.float32, ["N", 2]), value("bias", np.float32, [2])]
    nodes = [helper.make_node("Add", ["x", "bias"], ["y"])]
    proto = model(nodes, inputs, [value("y", np.float32, ["N", 2])], [constant("bias", [1, 2])])
    proto.ir_version = 3
    proto.opset_import[0].version = 9
    assert load(save(proto, tmp_path), None).spec.describe() == "x float32[N,2] -> y float32[N,2]"


def test_a_fixed_batch(load: Load, tmp_path: Path) -> None:
    path = save(one_node("Neg", np.float32, [4, 3]), tmp_path)
    engine = load(path, {"x": ("N", 3)})
    assert (engine.spec.describe(), engine.spec.rows_fixed) == ("x float32[N,3] -> y float32[N,3]", 4)
    assert_serves(path, engine, [4])
    with pytest.raises(ValueError, match="runs on 4"):
        capture(engine, 2)


def test_a_fixed_shape_is_one_row(load: Load, tmp_path: Path) -> None:
    path = save(one_node("Neg", np.float32, [4, 3]), tmp_path)
    engine = load(path, None)
    assert (engine.spec.describe(), engine.spec.batched) == ("x float32[4,3] -> y float32[4,3]", False)
    assert_serves(path, engine, [1])


def test_a_model_without_inputs(load: Load, tmp_path: Path) -> None:
    path = save(model([], [], [value("c", np.float32, [2])], [constant("c", [1, 2])]), tmp_path)
    engine = load(path, None)
    assert engine.spec.describe() == "nothing -> c float32[2]"
    assert_serves(path, engine, [1])


def test_an_output_of_several_places_per_row(load: Load, tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "flat"], ["y"])]
    path = save(
        model(nodes, [value("x", "f4", [None, 3, 5])], [value("y", "f4", None)], [constant("flat", [-1], np.int64)]),
        tmp_path,
    )
    engine = load(path, None)
    assert engine.spec.describe() == "x float32[N,3,5] -> y float32[15N]"
    assert_serves(path, engine, [1, 2, 4])


def test_trees_at_their_thresholds(load: Load, tmp_path: Path) -> None:
    """One ulp on either side of a threshold gives what the runtime gives for it, in float32 as in the model."""
    threshold = np.float32(0.1)
    trees = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1,
        nodes_falsenodeids=[2, 0, 0], nodes_featureids=[0, 0, 0], nodes_hitrates=[1.0, 1.0, 1.0],
        nodes_missing_value_tracks_true=[0, 0, 0], nodes_modes=["BRANCH_LT", "LEAF", "LEAF"], nodes_nodeids=[0, 1, 2],
        nodes_treeids=[0, 0, 0], nodes_truenodeids=[1, 0, 0], nodes_values=[float(threshold), 0.0, 0.0],
        target_ids=[0, 0], target_nodeids=[1, 2], target_treeids=[0, 0], target_weights=[-1.0, 1.0], base_values=[0.5],
    )  # fmt: skip
    proto = model([trees], [value("x", np.float32, ["N", 1])], [value("y", np.float32, ["N", 1])])
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    engine = load(save(proto, tmp_path), None)
    below, above = np.nextafter(threshold, np.float32(0)), np.nextafter(threshold, np.float32(1))
    answers = capture(engine, 3)([np.array([[below], [threshold], [above]], np.float32)])
    assert answers[0].ravel().tolist() == [-0.5, 1.5, 1.5]


def test_a_failed_replay_says_why_and_the_graph_goes_on(load: Load, tmp_path: Path) -> None:
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"])]
    proto = model(nodes, [value("ids", "i8", ["N"])], [value("y", "f4", ["N"])], [constant("table", [1, 2, 3])])
    bound = capture(load(save(proto, tmp_path), None), 1)
    with pytest.raises(EngineFailedError, match=r"out of (data bounds|range)"):
        bound([np.array([99])])
    assert bound([np.array([2])])[0].tolist() == [3]


def test_graphs_keep_their_buffers_and_outlive_the_engines_name(load: Load, tmp_path: Path) -> None:
    engine = load(save(one_node("Neg", np.float32, ["N", 1 << 16]), tmp_path), None)
    bounds = [capture(engine, 1) for _ in range(4)]
    replays = [bound.graph.replay for bound in bounds]
    outputs = [bound.outputs[0] for bound in bounds]
    for number, bound in enumerate(bounds):
        bound.inputs[0][...] = number
    del engine, bounds, bound
    for number, (replay, output) in enumerate(zip(replays, outputs, strict=True)):
        replay()
        assert (output == -number).all()


def test_a_sample_is_what_the_model_runs_on(load: Load, tmp_path: Path) -> None:
    """Zeros, which buffers begin with, may be the wrong branch."""
    branches = {
        name: helper.make_graph(
            [helper.make_node("Gather", ["table", place], [name])], name, [], [value(name, np.float32, [1])]
        )
        for name, place in (("then", "first"), ("else", "outside"))
    }
    choose = helper.make_node("If", ["flag"], ["y"], then_branch=branches["then"], else_branch=branches["else"])
    constants = [constant("table", [7]), constant("first", [0], np.int64), constant("outside", [1], np.int64)]
    proto = model([choose], [value("flag", np.bool_, [1])], [value("y", np.float32, [1])], constants)
    engine = load(save(proto, tmp_path), None)
    bound = capture(engine, 1)
    with pytest.raises(EngineFailedError):
        bound([np.zeros(1, np.bool_)])
    assert bound(engine.sample(1))[0].tolist() == [7]


def test_a_sample_has_the_rows_asked_for(load: Load, tmp_path: Path) -> None:
    engine = load(save(gru(), tmp_path), None)
    for rows in (1, 2, 5):
        assert [array.shape for array in engine.sample(rows)] == [(rows, 4, 3), (1, rows, 5)]
    engine.close()
    with pytest.raises(ValueError, match="closed"):
        engine.sample(1)


def test_a_closed_engine_captures_nothing(load: Load, tmp_path: Path) -> None:
    engine = load(save(one_node("Neg", np.float32, ["N", 2]), tmp_path), None)
    engine.close()
    with pytest.raises(ValueError, match="closed"):
        capture(engine, 1)


@pytest.mark.parametrize(
    "buffer",
    [
        np.zeros((0, 4), np.float32),
        np.zeros((2, 3), np.float32),
        np.zeros((1, 4), np.float64),
        np.zeros((1, 8), np.float32)[:, ::2],
        np.zeros(4, np.float32),
    ],
    ids=["no rows", "wrong size", "wrong dtype", "not contiguous", "wrong rank"],
)
def test_buffers_that_do_not_fit_are_refused(load: Load, tmp_path: Path, buffer: npt.NDArray[np.generic]) -> None:
    engine = load(save(one_node("Neg", np.float32, ["N", 4]), tmp_path), None)
    with pytest.raises(ValueError, match="buffer"):
        engine.capture([buffer], [np.zeros((1, 4), np.float32)])


def test_rows_that_depend_on_each_other_are_refused(load: Load, tmp_path: Path) -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=0)]
    proto = model(nodes, [value("x", np.float32, ["N", 4])], [value("y", np.float32, ["N", 4])])
    with pytest.raises(ModelRefusedError, match=r"output 'y' a row's answer depends .* --shape x=1,4"):
        load(save(proto, tmp_path), None)


def test_the_same_file_has_the_same_sha256(load: Load, tmp_path: Path) -> None:
    one, other = (save(one_node("Neg", np.float32, ["N", size]), tmp_path, f"{size}.onnx") for size in (2, 3))
    assert load(one, None).spec.sha256 == load(one, None).spec.sha256 != load(other, None).spec.sha256
