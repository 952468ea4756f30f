"""The suite that every engine passes, over the torch engine: the same tiny models, exported. Left out is what torch has
no form for: trees, branches, and inputs with a default."""

from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest
from tests.conformance.test_engine import (
    Load,
    test_a_batch_axis_that_differs,
    test_a_closed_engine_captures_nothing,
    test_a_failed_replay_says_why_and_the_graph_goes_on,
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
from tickpath.engines.onnx_spec import Shape
from tickpath.engines.passes import unroll
from tickpath.engines.torch_exported import load_exported
from tickpath.engines.zoo.exported import export_program

__all__ = [
    "test_a_batch_axis_that_differs",
    "test_a_closed_engine_captures_nothing",
    "test_a_failed_replay_says_why_and_the_graph_goes_on",
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


def load_as_exported(path: Path, shapes: Mapping[str, Shape] | None) -> Engine:
    """The ONNX model in this file as a program of torch.export. torch has no GRU that is linear after the reset."""
    exported = path.with_suffix(".pt2")
    exported.write_bytes(export_program(unroll(onnx.load(path))))
    return load_exported(exported, shapes)


@pytest.fixture
def load() -> Load:
    return load_as_exported
