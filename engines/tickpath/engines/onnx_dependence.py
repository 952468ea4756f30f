"""Which tensors of a graph may get their shape from data: asked before any runtime sees the model, since an empty
sequence into a recurrent operator can end the process.

Rules
- A tensor's *value* depends on data when any operand's value does; `Shape` and `Size` read no values, so theirs does
  not.
- A tensor's *shape* depends on data when an operand's shape does, or when an operator of SHAPED_BY_VALUE takes its
  shape from an operand whose value depends on data.
- A subgraph (If, Loop, Scan) sees the names around it. What its inputs get, it gets from the node's operands and, in
  the next round, from its own outputs. In a loop that runs as often as the data says, all that changes from one round
  to the next depends on data.
- It errs towards "depends": a shape that the model declares is believed later, and runs decide what is left.
"""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Final, TypeAlias

import onnx

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.onnx_file import nodes, subgraphs

# The operands whose values give the output its shape.
SHAPED_BY_VALUE: Final[Mapping[str, tuple[int, ...]]] = {
    "CenterCropPad": (1,),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Loop": (0, 1),
    "NonMaxSuppression": (0, 1, 2, 3, 4),
    "NonZero": (0,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "StringSplit": (0,),
    "Tile": (1,),
    "TopK": (1,),
    "Unique": (0,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}

# An empty sequence into one of these can end the whole process (onnxruntime 1.32: GRU and AttnLSTM do, by SIGABRT), so
# its length must be fixed.
RECURRENT: Final = frozenset({"AttnLSTM", "DynamicQuantizeLSTM", "GRU", "LSTM", "RNN"})

Feed: TypeAlias = tuple[str, str]
"""A name whose tensor gets another name: outside a subgraph and in it."""


def shapes_from_data(graph: onnx.GraphProto) -> dict[str, str]:
    """The tensors whose shape may depend on data, each with the operator that makes it so.
    Raises ModelRefusedError where that would feed a recurrent operator."""
    known = _Known({value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}, {})
    known.follow(graph, ())
    return known.shapes


class _Known:
    """What depends on data in a graph: names by their `values`, and by their `shapes`, each with the operator at
    fault."""

    def __init__(self, values: set[str], shapes: dict[str, str]) -> None:
        self.values = values
        self.shapes = shapes

    def follow(self, graph: onnx.GraphProto, feeds: Iterable[Feed]) -> None:
        """Follow all nodes, and what the graph's inputs get, until nothing new is found: once is enough where nodes
        stand in order, which files need not keep to, and nothing is fed back."""
        count = -1
        while count != len(self.values) + len(self.shapes):
            count = len(self.values) + len(self.shapes)
            for source, target in feeds:
                self._pass_on(self, source, target)
            for node in graph.node:
                self._follow_node(node)

    def _follow_node(self, node: onnx.NodeProto) -> None:
        if node.op_type in {"Shape", "Size"}:
            if node.input[0] in self.shapes:
                self.values.update(node.output)
            return
        if _operands(node) & self.values:
            self.values.update(_named(node.output))
        self._shape_outputs(node, self._cause(node))
        for subgraph in subgraphs(node):
            self._enter(node, subgraph)

    def _cause(self, node: onnx.NodeProto) -> str | None:
        cause = next((self.shapes[name] for name in node.input if name in self.shapes), None)
        if cause is None and self.values.intersection(_operands_at(node, SHAPED_BY_VALUE.get(node.op_type, ()))):
            cause = node.op_type
        return cause

    def _shape_outputs(self, node: onnx.NodeProto, cause: str | None) -> None:
        if cause is None:
            return
        if node.op_type in RECURRENT:
            raise ModelRefusedError(
                f"operator {node.op_type!r} gets a sequence whose length depends on the data (operator {cause!r}): "
                "an empty one would end the process; export the model with a fixed length"
            )
        self.shapes.update(dict.fromkeys(_named(node.output), cause))

    def _enter(self, node: onnx.NodeProto, subgraph: onnx.GraphProto) -> None:
        is_loop = node.op_type == "Loop"
        by_data = is_loop and bool(self.values.intersection(node.input[:2]))
        inside = self._inside(node, subgraph, by_data)
        if is_loop and not by_data and subgraph.output[0].name in inside.values:  # the loop asks its body to go on
            inside = self._inside(node, subgraph, by_data=True)
            self._shape_outputs(node, node.op_type)
        for source, target in zip(_results(node, subgraph), node.output, strict=False):
            self._pass_on(inside, source, target)

    def _inside(self, node: onnx.NodeProto, subgraph: onnx.GraphProto, by_data: bool) -> "_Known":
        inside = _Known(set(self.values), dict(self.shapes))
        if by_data:
            inputs = [value.name for value in subgraph.input]
            inside.values.update(inputs)
            inside.shapes.update(dict.fromkeys(inputs[2:], node.op_type))
        inside.follow(subgraph, _feeds(node, subgraph))
        return inside

    def _pass_on(self, origin: "_Known", source: str, target: str) -> None:
        if source in origin.values:
            self.values.add(target)
        if source in origin.shapes:
            self.shapes.setdefault(target, origin.shapes[source])


def _operands(node: onnx.NodeProto) -> set[str]:
    """What a node reads, its subgraphs included."""
    inner = (name for subgraph in subgraphs(node) for each in nodes(subgraph) for name in each.input)
    return {*node.input, *inner}


def _named(outputs: Iterable[str]) -> list[str]:
    """Those that the node has: the name of one left out is empty, and so is that of an operand left out."""
    return [name for name in outputs if name]


def _operands_at(node: onnx.NodeProto, places: Iterable[int]) -> list[str]:
    return [node.input[place] for place in places if place < len(node.input)]


def _feeds(node: onnx.NodeProto, subgraph: onnx.GraphProto) -> list[Feed]:
    """What the subgraph's inputs get: from the node's operands, and in the next round from the subgraph's outputs."""
    inputs = [value.name for value in subgraph.input]
    outputs = [value.name for value in subgraph.output]
    if node.op_type == "Loop":  # inputs: round, condition, state...; outputs: condition, state..., one of each round...
        return [*zip(node.input, inputs, strict=False), *zip(outputs, inputs[1:], strict=False)]
    if node.op_type == "Scan":  # inputs: state..., one of each round...; outputs the same
        scanned = next((attribute.i for attribute in node.attribute if attribute.name == "num_scan_inputs"), 0)
        fed_back = zip(outputs, inputs[: len(inputs) - scanned], strict=False)
        return [*zip(node.input[-len(inputs) :], inputs, strict=False), *fed_back]
    return list(product(node.input, inputs))


def _results(node: onnx.NodeProto, subgraph: onnx.GraphProto) -> list[str]:
    """The subgraph's outputs that become the node's."""
    names = [value.name for value in subgraph.output]
    return names[1:] if node.op_type == "Loop" else names
