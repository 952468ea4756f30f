"""Loops whose rounds can be counted, and branches whose condition is known, as straight lines.

Exporters write a recurrent layer as a Loop over a counter (Keras through tf2onnx does) and a check of its input's shape
as an If. Both follow from constants and fixed sizes, so the graph is walked with what is known: an operator on known
small tensors is computed, a body is put in its place once for each round, and a branch instead of its If. What depends
on data stays as it is, and `checks.loops` names it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tickpath.engines.onnx_file import subgraphs
from tickpath.engines.onnx_operators import RANDOM
from tickpath.engines.passes.editor import AXES_BY_INPUT
from tickpath.engines.passes.graph import (
    all_names,
    copy_flat,
    drop_unused,
    free_name,
    known_tensors,
    opset_of,
    overridable,
    replace_nodes,
    tensor_types,
    tensor_value,
)
from tickpath.engines.spec import Array

# Counters, sizes, axes and paddings; weights are larger, and left alone.
KNOWN_ELEMENTS_MAX: Final = 64

# A body of twenty operators makes twenty thousand of them then, which no builder finishes with in an hour.
ROUNDS_MAX: Final = 1024

Names = dict[str, str]
"""Names in a body, and what their tensors are called in the graph that it is put into."""


def straighten(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, a copy, without the loops and branches that follow from constants and fixed sizes."""
    straight = copy_flat(model)
    count = -1
    while count != len(straight.graph.node):  # sizes that become known make others known
        count = len(straight.graph.node)
        _Walk(straight).walk()
    return straight


class _Walk:
    """One walk over a model's graph."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._types = tensor_types(model)
        self._taken = set(all_names(model.graph))
        self._nodes: list[onnx.NodeProto] = []
        self._written: set[str] = {tensor.name for tensor in model.graph.initializer}
        self._known: dict[str, Array] = {}
        self._sizes: dict[str, npt.NDArray[np.int64]] = {}  # shapes, 0 where a size is open
        self._learn(model.graph, {}, overridable(model))

    def walk(self) -> None:
        """Put the straight graph in the model's place."""
        graph = self._model.graph
        for node in graph.node:
            self._add(node, {})
        for value in graph.output:
            self._write(value.name)
        replace_nodes(graph, self._nodes)
        del graph.value_info[:]  # of tensors that may be gone, or known better now
        drop_unused(graph)

    def _learn(self, graph: onnx.GraphProto, names: Names, given: set[str]) -> None:
        for name, tensor in known_tensors(graph, given).items():
            if np.prod(tensor.dims, dtype=np.int64) <= KNOWN_ELEMENTS_MAX:
                self._known[names.get(name, name)] = tensor_value(tensor)

    def _add(self, node: onnx.NodeProto, names: Names) -> None:
        """A node of a graph whose names are called by `names` here."""
        inputs, outputs = ([names.get(name, name) for name in side] for side in (node.input, node.output))
        if node.op_type == "Constant" and outputs[0] in self._known:
            return  # who reads it has it written, and of one name there may be one tensor
        if node.op_type == "Shape":
            self._note_sizes(node, inputs[0], outputs[0])
        results = self._compute(node, inputs, outputs[0])
        if results is not None:
            self._known |= dict(zip(outputs, results, strict=True))
        elif not (self._branch(node, inputs, names) or self._loop(node, inputs, names)):
            self._keep(node, names)

    def _compute(self, node: onnx.NodeProto, inputs: Sequence[str], output: str) -> Sequence[Array] | None:
        """What an operator on known tensors gives; None where it is not known or not small."""
        if node.op_type == "Shape":
            part = self._sizes.get(output)
            return [part] if part is not None and part.all() else None
        if node.op_type == "Gather" and inputs[0] in self._sizes and inputs[1] in self._known:
            part = self._sizes[inputs[0]][self._known[inputs[1]]]
            return [np.asarray(part)] if np.all(part) else None
        if any(subgraphs(node)) or node.op_type in RANDOM or not inputs or not self._all_known(inputs):
            return None
        values = {name: self._known[name] for name in inputs if name}
        alone = onnx.NodeProto()
        alone.CopyFrom(node)
        del alone.input[:]
        alone.input.extend(inputs)
        try:
            results = _evaluate(alone, values, self._model.opset_import)
        except Exception:  # the evaluator lacks some operators: then the runtime computes it
            return None
        return results if sum(each.size for each in results) <= KNOWN_ELEMENTS_MAX else None

    def _note_sizes(self, node: onnx.NodeProto, name: str, output: str) -> None:
        """What a Shape gives, of which a part may be open."""
        if name in self._known:
            sizes = list(self._known[name].shape)
        elif name in self._types and self._types[name].HasField("shape"):
            sizes = [dimension.dim_value for dimension in self._types[name].shape.dim]
        else:
            return
        bounds = {attribute.name: attribute.i for attribute in node.attribute}
        self._sizes[output] = np.array(sizes[bounds.get("start", 0) : bounds.get("end", len(sizes))], np.int64)

    def _all_known(self, inputs: Sequence[str]) -> bool:
        return all(not name or name in self._known for name in inputs)

    def _branch(self, node: onnx.NodeProto, inputs: Sequence[str], names: Names) -> bool:
        """An If whose condition is known: its branch in its place."""
        if node.op_type != "If" or inputs[0] not in self._known:
            return False
        wanted = "then_branch" if bool(self._known[inputs[0]].all()) else "else_branch"
        (body,) = (attribute.g for attribute in node.attribute if attribute.name == wanted)
        results = self._put(body, {}, names)
        self._rename(results, [names.get(name, name) for name in node.output])
        return True

    def _loop(self, node: onnx.NodeProto, inputs: Sequence[str], names: Names) -> bool:
        """A Loop whose rounds are known: its body in its place, once for each."""
        if node.op_type != "Loop" or not self._all_known(inputs[:2]):
            return False
        (body,) = subgraphs(node)
        before = len(self._nodes), dict(self._known), set(self._written), len(self._model.graph.initializer)
        rounds = min(int(self._known[inputs[0]].item()) if inputs[0] else ROUNDS_MAX, ROUNDS_MAX + 1)
        states, collected, done = list(inputs[2:]), [], 0
        going = not inputs[1] or bool(self._known[inputs[1]].item())
        while going and done < rounds:
            condition, *results = self._put(body, self._entries(body, done, states), names)
            if condition not in self._known or done == ROUNDS_MAX:
                self._undo(*before)
                return False
            going = bool(self._known[condition].item())
            collected.append(results[len(states) :])
            states, done = results[: len(states)], done + 1
        if not done and len(node.output) > len(states):
            return False  # nothing was collected, and of what shape nobody says
        outputs = [names.get(name, name) for name in node.output]
        self._rename(states, outputs[: len(states)])
        for place, output in enumerate(outputs[len(states) :]):
            self._stack([each[place] for each in collected], output)
        return True

    def _entries(self, body: onnx.GraphProto, done: int, states: Sequence[str]) -> Names:
        """The names of a body's inputs in one round."""
        count, going = (free_name(self._taken, body.input[place].name) for place in (0, 1))
        self._known |= {count: np.array(done, np.int64), going: np.array(True)}
        return dict(zip((value.name for value in body.input), (count, going, *states), strict=True))

    def _put(self, body: onnx.GraphProto, entries: Mapping[str, str], around: Names) -> list[str]:
        """A body's nodes, in the place of the node that holds it; the names of its outputs."""
        names = {**around, **entries}
        for tensor in body.initializer:
            names[tensor.name] = free_name(self._taken, tensor.name)
            self._model.graph.initializer.append(tensor)
            self._model.graph.initializer[-1].name = names[tensor.name]
            self._written.add(names[tensor.name])
        for node in body.node:
            names |= {name: free_name(self._taken, name) for name in node.output if name}
        self._learn(body, names, set())
        for node in body.node:
            self._add(node, names)
        return [names.get(value.name, value.name) for value in body.output]

    def _keep(self, node: onnx.NodeProto, names: Names) -> None:
        kept = onnx.NodeProto()
        kept.CopyFrom(node)
        _call_by(kept, names)
        if names:
            kept.name = f"{node.name or node.op_type}:{len(self._nodes)}"
        for name in _reads(kept):
            self._write(name)
        self._nodes.append(kept)

    def _write(self, name: str) -> None:
        """A known tensor as a constant of the graph, for who reads it."""
        if name in self._known and name not in self._written:
            self._written.add(name)
            self._model.graph.initializer.append(numpy_helper.from_array(self._known[name], name))

    def _rename(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        for source, target in zip(sources, targets, strict=True):
            if target and source in self._known:
                self._known[target] = self._known[source]
            elif target:
                self._nodes.append(helper.make_node("Identity", [source], [target], name=f"{target}:Identity"))

    def _stack(self, parts: Sequence[str], output: str) -> None:
        """What each round gave, one behind the other along a new first axis."""
        if not output:
            return
        axes = free_name(self._taken, f"{output}/axes")
        self._known[axes] = np.array([0], np.int64)
        rows = []
        for part in parts:
            self._write(part)
            rows.append(free_name(self._taken, f"{output}/row"))
            if opset_of(self._model) < AXES_BY_INPUT:
                self._nodes.append(helper.make_node("Unsqueeze", [part], [rows[-1]], axes=[0]))
            else:
                self._write(axes)
                self._nodes.append(helper.make_node("Unsqueeze", [part, axes], [rows[-1]]))
        self._nodes.append(helper.make_node("Concat", rows, [output], name=f"{output}:Concat", axis=0))

    def _undo(self, nodes: int, known: dict[str, Array], written: set[str], initializers: int) -> None:
        del self._nodes[nodes:]
        del self._model.graph.initializer[initializers:]
        self._known, self._written = known, written


def _evaluate(
    node: onnx.NodeProto, values: Mapping[str, Array], opsets: Sequence[onnx.OperatorSetIdProto]
) -> Sequence[Array]:
    """What one operator gives on known tensors."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in values.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    alone = helper.make_model(helper.make_graph([node], "alone", inputs, outputs), opset_imports=list(opsets))
    return [np.asarray(each) for each in ReferenceEvaluator(alone).run(None, dict(values))]


def _call_by(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Give a node's operands and results their names, those of the bodies that it holds too."""
    for side in (node.input, node.output):
        for place, name in enumerate(side):
            side[place] = names.get(name, name)
    for body in subgraphs(node):
        own = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
        own |= {name for each in body.node for name in each.output}
        outer = {name: target for name, target in names.items() if name not in own}
        for each in body.node:
            _call_by(each, outer)
        for value in body.output:
            value.name = outer.get(value.name, value.name)


def _reads(node: onnx.NodeProto) -> list[str]:
    """All that a node reads, the bodies that it holds too."""
    inner = [name for body in subgraphs(node) for each in body.node for name in _reads(each)]
    ends = [value.name for body in subgraphs(node) for value in body.output]
    return [*node.input, *inner, *ends]
