"""What operators say: who shapes an output by data, and who can't be served at all."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.onnx_models import Dims, constant, model, value

from tickpath.engines import ModelRefusedError
from tickpath.engines.onnx_dependence import shapes_from_data
from tickpath.engines.onnx_operators import check_operators, check_output_shapes, whole_graph


def with_nodes(
    *nodes: onnx.NodeProto, dims: Dims = None, constants: Sequence[onnx.TensorProto] = ()
) -> onnx.ModelProto:
    return model(nodes, [value("x", np.float32, ["N", 4])], [value("y", np.float32, dims)], constants)


NONZERO = helper.make_node("NonZero", ["x"], ["places"])
SHAPE = helper.make_node("Shape", ["x"], ["shape"])


def test_reaching_an_output() -> None:
    proto = with_nodes(NONZERO, helper.make_node("Cast", ["places"], ["y"], to=1))
    with pytest.raises(ModelRefusedError, match=r"output 'y' depends on the data \(operator 'NonZero'\)"):
        check_output_shapes(proto.graph)


def test_nodes_in_any_order() -> None:
    proto = with_nodes(helper.make_node("Cast", ["places"], ["y"], to=1), NONZERO)
    assert shapes_from_data(proto.graph)["y"] == "NonZero"


def test_not_reaching_an_output() -> None:
    proto = with_nodes(NONZERO, helper.make_node("Neg", ["x"], ["y"]))
    assert check_output_shapes(proto.graph) == {}


def test_a_declared_shape_is_believed_until_it_runs() -> None:
    proto = with_nodes(NONZERO, helper.make_node("Cast", ["places"], ["y"], to=1), dims=["N", 3])
    assert check_output_shapes(proto.graph) == {"y": "NonZero"}


def test_a_shape_made_of_shapes_is_no_data() -> None:
    proto = with_nodes(SHAPE, helper.make_node("Expand", ["one", "shape"], ["y"]), constants=[constant("one", [1])])
    assert shapes_from_data(proto.graph) == {}


def test_a_shape_made_of_a_data_dependent_shape_is() -> None:
    proto = with_nodes(
        NONZERO,
        helper.make_node("Shape", ["places"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["y"]),
    )
    assert shapes_from_data(proto.graph)["y"] == "ConstantOfShape"


def test_constants_are_no_data() -> None:
    proto = with_nodes(helper.make_node("Reshape", ["x", "to"], ["y"]), constants=[constant("to", [-1], np.int64)])
    assert shapes_from_data(proto.graph) == {}


def test_inside_a_branch() -> None:
    branch = helper.make_graph([helper.make_node("NonZero", ["x"], ["z"])], "b", [], [value("z", np.int64, None)])
    condition = helper.make_node("Constant", [], ["c"], value=constant("c", True, np.bool_))
    proto = with_nodes(condition, helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch))
    assert shapes_from_data(proto.graph)["y"] == "NonZero"


def test_a_recurrence_over_as_many_steps_as_the_data_says() -> None:
    proto = with_nodes(
        helper.make_node("Compress", ["x", "keep"], ["steps"], axis=0),
        helper.make_node("GRU", ["steps", "W", "R"], ["y"], hidden_size=1),
    )
    proto.graph.input.append(value("keep", np.bool_, [4]))
    with pytest.raises(ModelRefusedError, match=r"'GRU' gets a sequence .*'Compress'.*end the process"):
        check_output_shapes(proto.graph)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (helper.make_node("MyOp", ["x"], ["y"], domain="my.ops"), "operator 'MyOp' is from 'my.ops'"),
        (helper.make_node("Bernoulli", ["x"], ["y"]), "operator 'Bernoulli' is random"),
    ],
)
def test_operators_that_cannot_be_served(node: onnx.NodeProto, reason: str) -> None:
    with pytest.raises(ModelRefusedError, match=reason):
        check_operators(with_nodes(node).graph)


def test_functions_of_the_model_are_its_own() -> None:
    proto = with_nodes(helper.make_node("Twice", ["x"], ["y"], domain="mine"))
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    proto.functions.append(helper.make_function("mine", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 18)]))
    check_operators(whole_graph(proto))


def test_operators_within_functions_of_functions() -> None:
    """They may use operator sets of their own."""
    proto = with_nodes(helper.make_node("Outer", ["x"], ["y"], domain="mine"))
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("mine", 1)]
    call = helper.make_node("Inner", ["a"], ["b"], domain="mine")
    random = helper.make_node("RandomNormalLike", ["a"], ["b"])
    proto.functions.append(helper.make_function("mine", "Outer", ["a"], ["b"], [call], opsets))
    proto.functions.append(helper.make_function("mine", "Inner", ["a"], ["b"], [random], opsets))
    with pytest.raises(ModelRefusedError, match="operator 'RandomNormalLike' is random"):
        check_operators(whole_graph(proto))


def test_a_function_that_calls_itself() -> None:
    proto = with_nodes(helper.make_node("Again", ["x"], ["y"], domain="mine"))
    call = helper.make_node("Again", ["a"], ["b"], domain="mine")
    proto.functions.append(
        helper.make_function("mine", "Again", ["a"], ["b"], [call], [helper.make_opsetid("mine", 1)])
    )
    with pytest.raises(ModelRefusedError, match="functions can't be followed"):
        whole_graph(proto)
