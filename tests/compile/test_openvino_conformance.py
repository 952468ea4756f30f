"""The suite that every engine passes, over OpenVINO: the same tiny models, compiled for it. Left out is what it has no
form for: trees, and inputs with a default; and an index out of range, which it takes for a zero."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.conformance.test_engine import (
    Load,
    test_a_batch_axis_that_differs,
    test_a_closed_engine_captures_nothing,
    test_a_fixed_batch,
    test_a_fixed_shape_is_one_row,
    test_a_model_without_inputs,
    test_a_sample_has_the_rows_asked_for,
    test_a_scalar_that_all_rows_share,
    test_an_output_of_several_places_per_row,
    test_buffers_that_do_not_fit_are_refused,
    test_every_dtype,
    test_graphs_keep_their_buffers_and_outlive_the_engines_name,
    test_initializers_before_ir_4_are_constants,
    test_many_inputs_and_outputs_in_the_models_order,
    test_rows_that_depend_on_each_other_are_refused,
    test_the_same_file_has_the_same_sha256,
)

from tickpath.engines import Engine
from tickpath.engines.compile import CompileOptions, compile_model
from tickpath.engines.onnx_spec import Shape
from tickpath.engines.onnxruntime import load_onnx
from tickpath.engines.openvino import load_openvino

__all__ = [
    "test_a_batch_axis_that_differs",
    "test_a_closed_engine_captures_nothing",
    "test_a_fixed_batch",
    "test_a_fixed_shape_is_one_row",
    "test_a_model_without_inputs",
    "test_a_sample_has_the_rows_asked_for",
    "test_a_scalar_that_all_rows_share",
    "test_an_output_of_several_places_per_row",
    "test_buffers_that_do_not_fit_are_refused",
    "test_every_dtype",
    "test_graphs_keep_their_buffers_and_outlive_the_engines_name",
    "test_initializers_before_ir_4_are_constants",
    "test_many_inputs_and_outputs_in_the_models_order",
    "test_rows_that_depend_on_each_other_are_refused",
    "test_the_same_file_has_the_same_sha256",
]

# All that the suite asks for.
BUCKETS = (1, 2, 3, 4, 5)


def load_compiled(path: Path, shapes: Mapping[str, Shape] | None) -> Engine:
    """The ONNX model in this file, compiled for OpenVINO."""
    reference = load_onnx(path, shapes)
    spec = reference.spec
    buckets = (spec.rows_fixed,) if spec.rows_fixed else BUCKETS if spec.batched else (1,)
    out = path.with_suffix(".ov")
    compile_model(path, out, CompileOptions("openvino", buckets, shapes=dict(shapes or {})), reference)
    return load_openvino(out)


@pytest.fixture
def load() -> Load:
    return load_compiled
