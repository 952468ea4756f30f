"""Every real model is served, answer for answer as the runtime gives it, or refused with its reason; the table of all
of them is the test's output."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tests.inputs import inputs_root
from tests.reference import assert_same_bits, reference_session, run_reference

from tickpath.engines import Array, Engine, ModelRefusedError, TensorSpec
from tickpath.engines.load import load
from tickpath.engines.onnx_spec import Shape

ROOT = inputs_root()
if ROOT is None:
    pytest.skip("no real models: set TICKPATH_INPUTS", allow_module_level=True)
MODELS_ROOT = ROOT / "models"
MODELS = sorted(MODELS_ROOT.rglob("*.onnx"))
NODE_TESTS = sorted((ROOT / "onnx_node_tests").glob("*/model.onnx"))

# The sizes that a file leaves open, or an axis that is to be the batch.
SHAPES: Mapping[str, Mapping[str, Shape]] = {
    "deeplob_serve/model_b8.onnx": {"lob_window": ("N", 100, 40)},
    "gonnx/gru.onnx": {"data_input": ("N", 4, 3)},
    "gonnx/ndm.onnx": {"sensor_input": ("N", 6, 4)},
    "polygraphy/attention.onnx": {"q": ("N", 4, 8), "k": ("N", 8, 4), "v": ("N", 4, 8)},
    "silero_vad/silero_vad.onnx": {"input": ("N", 576), "state": (2, "N", 128)},
    "silero_vad/silero_vad_16k_op15.onnx": {"input": ("N", 576)},
    "silero_vad/silero_vad_16k_sequence.onnx": {"input": (5, 576)},
    "silero_vad/silero_vad_half.onnx": {"input": ("N", 576)},
    "silero_vad/silero_vad_op18_ifless.onnx": {"input": ("N", 576)},
}

# Why a file can't be served, in words of the refusal. Every other file has to be.
REFUSED: Mapping[str, str] = {
    "gonnx/mnist-8-opset13.onnx": "Git LFS pointer",
    "onnxruntime_datasets/logreg_iris.onnx": "output 'probabilities' is a sequence value",
    "onnxruntime_go/example_0_dim_output.onnx": "output 'y' depends on the data (operator 'Expand')",
    "onnxruntime_go/example_float16.onnx": "output 'OutputA' has element type bfloat16",
    "onnxruntime_go/example_needs_extensions.onnx": "output 'output' has element type string",
    "onnxruntime_go/example_strings.onnx": "output 'output_lower' has element type string",
    "onnxruntime_go/sklearn_randomforest.onnx": "output 'output_probability' is a sequence value",
    "polygraphy/bad_graph_with_dup_value_info.onnx": "two inputs are named 'inp'",
    "polygraphy/bad_graph_with_no_import_domains.onnx": "imports no operator set",
    "polygraphy/bad_graph_with_parallel_invalid_nodes.onnx": "output 'add_out_8' depends on the data",
    "polygraphy/capability.onnx": "No Op registered for FAKE!",
    "polygraphy/custom_op_node.onnx": "operator 'NegPos' is from 'ai.onnx.contrib'",
    "polygraphy/empty_tensor_expand.onnx": "output 'expanded' has a dimension of size 0",
    "polygraphy/ext_weights.onnx": "the weights of 'd' are in 'ext_weights.data', which is not beside the model",
    "polygraphy/matmul.bf16.onnx": "output 'matmul_out_0' has element type bfloat16",
    "polygraphy/nonzero.onnx": "output 'nonzero_out_0' depends on the data (operator 'NonZero')",
}

# What a file needs said before it is served, in words of the refusal without it.
UNDECLARED: Mapping[str, str] = {
    "gonnx/gru.onnx": "--shape data_input=N,SIZE,3",
    "gonnx/ndm.onnx": "--shape sensor_input=N,SIZE,4",
    "polygraphy/attention.onnx": "--shape q=N,SIZE",
    "silero_vad/silero_vad.onnx": "--shape state=2,N,128",
    "silero_vad/silero_vad_16k_op15.onnx": "--shape input=N,SIZE",
    "silero_vad/silero_vad_16k_sequence.onnx": "a row's answer depends on the other rows",
    "silero_vad/silero_vad_half.onnx": "--shape input=N,SIZE",
    "silero_vad/silero_vad_op18_ifless.onnx": "--shape input=N,SIZE",
}

# Scalars whose values matter.
SCALARS: Mapping[str, int] = {"sr": 16000}

REFUSED_NODE_TESTS: Mapping[str, str] = {
    "bernoulli": "is random",
    "cast_BFLOAT16_to_FLOAT": "bfloat16",
    "constantofshape": "'ConstantOfShape'|size 0",
    "equal_string": "string",
    "identity_sequence": "sequence",
    "if_opt": "optional",
    "label_encoder": "string",
    "loop16_seq_none": "sequence",
    "nonzero": "'NonZero'",
    "optional_get_element": "optional|sequence",
    "optional_has_element_optional_input": "optional",
    "reduce_max_empty": "size 0",
    "reduce_sum_empty": "size 0",
    "reshape_negative_extended": "does not run",
    "sequence_insert": "sequence",
    "split_zero_size": "size 0",
    "string_": "string",
    "top_k": "'TopK'",
    "unique_sorted": "'Unique'",
}


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Lines of (model, verdict, specification or reason), shown when all of them are there."""
    lines: list[str] = []
    yield lines
    plugins = request.config.pluginmanager
    reporter = plugins.getplugin("terminalreporter")
    with plugins.getplugin("capturemanager").global_and_fixture_disabled():
        reporter.ensure_newline()
        reporter.section("real models", sep="-")
        for line in sorted(lines):
            reporter.write_line(line)


def name_of(path: Path) -> str:
    return path.relative_to(MODELS_ROOT).as_posix()


def described(engine: Engine) -> str:
    spec = engine.spec
    inputs, outputs = (
        ", ".join(f"{tensor.name} {tensor.describe()}" for tensor in side) for side in (spec.inputs, spec.outputs)
    )
    fixed = "" if spec.rows_fixed is None else f" (N = {spec.rows_fixed})"
    return f"{inputs or 'nothing'} -> {outputs}{fixed}"


def data(tensor: TensorSpec, rows: int, random: np.random.Generator) -> Array:
    shape = tensor.shape_at(rows)
    if tensor.name in SCALARS:
        return np.full(shape, SCALARS[tensor.name], tensor.dtype)
    if tensor.default is not None:
        return tensor.default
    if tensor.dtype.kind == "f":
        return np.asarray(random.standard_normal(shape)).astype(tensor.dtype)
    return np.asarray(random.integers(0, 2, shape)).astype(tensor.dtype)


def replayed(engine: Engine, arrays: Sequence[Array], rows: int) -> list[Array]:
    spec = engine.spec
    inputs = [np.array(array, order="C") for array in arrays]
    outputs = [np.full(tensor.shape_at(rows), 3, tensor.dtype) for tensor in spec.outputs]
    engine.capture(inputs, outputs).replay()
    return list(outputs)


def assert_served(path: Path, engine: Engine) -> None:
    """At several batch sizes, bit for bit what a plain run of the same batch gives."""
    session = reference_session(path)
    random = np.random.default_rng(0)
    spec = engine.spec
    for rows in (spec.rows_fixed,) if spec.rows_fixed else (1, 2, 3, 8) if spec.batched else (1,):
        arrays = [data(tensor, rows, random) for tensor in spec.inputs]
        assert_same_bits(replayed(engine, arrays, rows), run_reference(session, spec, arrays))


@pytest.mark.parametrize("path", MODELS, ids=name_of)
def test_model(path: Path, table: list[str]) -> None:
    name = name_of(path)
    try:
        engine = load(path, SHAPES.get(name))
    except ModelRefusedError as error:
        text = str(error).removeprefix(f"{path}: ")
        table.append(f"{name}  refused  {text}")
        assert name in REFUSED, text
        assert REFUSED[name] in text
        return
    table.append(f"{name}  served  {described(engine)}")
    assert name not in REFUSED
    assert_served(path, engine)


@pytest.mark.parametrize("name", UNDECLARED)
def test_what_a_model_needs_is_said(name: str) -> None:
    with pytest.raises(ModelRefusedError) as refusal:
        load(MODELS_ROOT / name)
    assert UNDECLARED[name] in str(refusal.value)


def test_external_weights_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(MODELS_ROOT / "polygraphy" / "ext_weights_same_dir")
    from_inside = load(Path("ext_weights.onnx")).spec.sha256
    monkeypatch.chdir(tmp_path)
    assert load(MODELS_ROOT / "polygraphy/ext_weights_same_dir/ext_weights.onnx").spec.sha256 == from_inside


def test_an_archive_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes((MODELS_ROOT / "gonnx/nt_1.zip").read_bytes())
    with pytest.raises(ModelRefusedError, match="zip archive"):
        load(path)


def tensor_file(path: Path) -> Array:
    array: Array = numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))
    return array


@pytest.mark.parametrize("path", NODE_TESTS, ids=lambda path: path.parent.name)
def test_operator(path: Path, table: list[str]) -> None:
    """ONNX's own cases: the answer that ONNX expects, or a refusal."""
    name = path.parent.name.removeprefix("test_").removeprefix("ai_onnx_ml_")
    reasons = [reason for start, reason in REFUSED_NODE_TESTS.items() if name.startswith(start)]
    try:
        engine = load(path)
    except ModelRefusedError as error:
        text = str(error).removeprefix(f"{path}: ")
        table.append(f"{path.parent.name}  refused  {text}")
        assert any(part in text for reason in reasons for part in reason.split("|")), text
        return
    table.append(f"{path.parent.name}  served  {described(engine)}")
    assert not reasons
    folder = path.parent / "test_data_set_0"
    arrays = [tensor_file(folder / f"input_{place}.pb") for place in range(len(engine.spec.inputs))]
    for place, output in enumerate(replayed(engine, arrays, 1)):
        expected = tensor_file(folder / f"output_{place}.pb")
        assert (output.dtype, output.shape) == (expected.dtype, expected.shape)
        assert np.allclose(output.astype(float), expected.astype(float), rtol=1e-3, atol=1e-7, equal_nan=True)
