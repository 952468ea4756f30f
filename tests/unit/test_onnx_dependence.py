"""A recurrent operator gets no sequence as long as the data says, wherever it stands: in a body, or in a function."""

import pytest
from onnx import parser

from tickpath.engines import ModelRefusedError
from tickpath.engines.onnx_dependence import RECURRENT, shapes_from_data
from tickpath.engines.onnx_operators import whole_graph

# `kept` is as long as the data says, `x` is not.
MODEL = """
<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1, "mine" : 1]>
test (float[S,1,4] x, bool[S] keep, bool ask, int64 trips) => (float[N] y)
<int64 few = {{3}}, bool true = {{1}}, float[1,3,4] W = {{0}}, float[1,3,1] R = {{0}}>
{{
    kept = Compress <axis: int = 0> (x, keep)
    {node}
}}
<domain: "mine", opset_import: ["" : 13]>
Inner (a, W, R) => (b) {{ b = GRU <hidden_size: int = 1> (a, W, R) }}
"""

BRANCHES = (
    "<then_branch: graph = b () => (float b1) {{ {} b1 = Neg(x) }}, "
    "else_branch: graph = c () => (float c1) {{ c1 = Neg(x) }}>"
)
LOOP = "<body: graph = b (int64 i, bool c, float h) => (bool c1, float h1) {{ {} }}>"
SCAN = (
    "<num_scan_inputs: int = 1, "
    "body: graph = b (float h, float s) => (float h1, float s1) {{ {} h1 = Neg(h) s1 = Neg(s) }}>"
)
SHRINKING = "g = GRU(h, W, R) h1 = Slice(h, few, few)"


def inferred(node: str) -> dict[str, str]:
    return shapes_from_data(whole_graph(parser.parse_model(MODEL.format(node=node))))


@pytest.mark.parametrize(
    ("node", "cause"),
    [
        pytest.param("y = If(true)" + BRANCHES.format("g = GRU(kept, W, R)"), "Compress", id="if"),
        pytest.param("y = If(true)" + BRANCHES.format("z = NonZero(x) g = GRU(z, W, R)"), "NonZero", id="made-inside"),
        pytest.param(
            "y = If(true)"
            + BRANCHES.format(f"q = Loop(few, true, kept) {LOOP.format('c1 = Identity(c) h1 = GRU(h, W, R)')}"),
            "Compress",
            id="loop-in-a-branch",
        ),
        pytest.param(
            "z = If(true)" + BRANCHES.format("").replace("b1 = Neg(x)", "b1 = Neg(kept)") + " y = GRU(z, W, R)",
            "Compress",
            id="behind-if",
        ),
        pytest.param(
            f"y = Loop(few, true, kept) {LOOP.format('c1 = Identity(c) ' + SHRINKING)}", "Compress", id="loop-state"
        ),
        pytest.param(
            f"y = Loop(few, true, x) {LOOP.format('c1 = Identity(c) g = GRU(h, W, R) h1 = Compress(h, keep)')}",
            "Compress",
            id="loop-next-round",
        ),
        pytest.param(
            f"y = Loop(trips, true, x) {LOOP.format('c1 = Identity(c) ' + SHRINKING)}", "Loop", id="loop-trips"
        ),
        pytest.param(
            f"y = Loop(few, ask, x) {LOOP.format('c1 = Identity(c) ' + SHRINKING)}", "Loop", id="loop-condition"
        ),
        pytest.param(
            f"y = Loop(few, true, x) {LOOP.format('c1 = Identity(ask) ' + SHRINKING)}", "Loop", id="loop-goes-on"
        ),
        pytest.param(f"y, z = Scan(kept, x) {SCAN.format('g = GRU(h, W, R)')}", "Compress", id="scan-state"),
        pytest.param(f"y, z = Scan(x, kept) {SCAN.format('g = GRU(s, W, R)')}", "Compress", id="scanned"),
        pytest.param("y = mine.Inner(kept, W, R)", "Compress", id="function"),
        pytest.param(
            "y = If(true)" + BRANCHES.format("g = mine.Inner(kept, W, R)"), "Compress", id="function-in-a-branch"
        ),
    ],
)
def test_a_recurrence_as_long_as_the_data_says(node: str, cause: str) -> None:
    with pytest.raises(ModelRefusedError, match=f"'GRU' gets a sequence .*'{cause}'.*end the process"):
        inferred(node)


@pytest.mark.parametrize("operator", sorted(RECURRENT))
def test_every_recurrent_operator(operator: str) -> None:
    with pytest.raises(ModelRefusedError, match=f"'{operator}' gets a sequence"):
        inferred(f"y = {operator}(kept, W, R)")


@pytest.mark.parametrize(
    "node",
    [
        pytest.param("y = If(ask)" + BRANCHES.format("g = GRU(x, W, R)"), id="if"),
        pytest.param(f"y = Loop(few, true, x) {LOOP.format('c1 = Identity(c) ' + SHRINKING)}", id="loop"),
        pytest.param(f"y, z = Scan(x, x) {SCAN.format('g = GRU(s, W, R) f = GRU(h, W, R)')}", id="scan"),
        pytest.param("y = mine.Inner(x, W, R)", id="function"),
    ],
)
def test_a_recurrence_as_long_as_the_model_says(node: str) -> None:
    assert "y" not in inferred(node)


def test_operands_left_out_are_none() -> None:
    """An output that is left out has the same empty name as an operand that is."""
    assert inferred("a, , b = Unique(keep) y = Resize(x, , few)").keys() == {"kept", "a", "b"}
