"""A recurrent model over a window, as a model of one step: what a step needs of those before it goes in and comes out.

The window's model takes [N, steps, ...] and answers from its last step; the step model takes [N, 1, ...] and for each
recurrent operator its states, and gives the states after this step. Begun with zeros and stepped through a window, it
gives that window's answer: the operators, weights and order of sums are the same.

A convolution that reads several steps, and pads none, keeps the last of them as a state. What comes behind it has fewer
steps than the window, so a recurrent operator keeps its zeros until its first one has come. Sums are the same; the
runtime may add up a convolution of one step in another order.

That holds where every other operator treats each step by itself, and where the answer is read from the last step alone.
So each tensor's time axis is followed through the graph (`timeline.py`), and a model in which one gets
lost, or two steps meet, is refused with the operator that did it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.passes.graph import (
    all_names,
    copy_flat,
    drop_unused,
    free_name,
    known_tensors,
    overridable,
    replace_nodes,
    tensor_types,
)
from tickpath.engines.passes.recurrence import RECURRENT, read_recurrence
from tickpath.engines.passes.timeline import Timeline, label_of
from tickpath.engines.spec import FEED_KEY

BATCH: Final = "N"

# The first of a recurrent node's states among its inputs.
INITIAL_H: Final = 5
# A Slice without the first.
_FROM_THE_SECOND: Final = {"from": 1, "to": 2**31}


@dataclass(frozen=True, slots=True)
class Streamed:
    """A step model: the rows of the window that it stands for, and each state's input and output."""

    model: onnx.ModelProto
    window: int
    states: tuple[tuple[str, str], ...]


def stream(model: onnx.ModelProto, axis: int = 1) -> Streamed:
    """The step model of one whose inputs have time along `axis`, a fixed number of steps. Sizes that were declared must
    be in the model: see `shapes.settle`. Raises ModelRefusedError naming what can't be stepped."""
    stepped = copy_flat(model)
    graph = stepped.graph
    known = known_tensors(graph, overridable(stepped))
    inputs = [value for value in graph.input if value.name not in known]
    window = _window(inputs, axis)
    timeline = Timeline(known, window, tensor_types(stepped))
    for value in inputs:
        timeline.begin(value.name, axis)
    made = [node if node.op_type in RECURRENT else timeline.through(node) for node in _followed(graph, timeline)]
    if not any(node.op_type in RECURRENT for node in made):
        raise ModelRefusedError(
            "it has no recurrent operator (LSTM, GRU, RNN), so there is nothing to step: serve its window as it is"
        )
    for output in graph.output:
        timeline.check_output(output.name)
    states = _States(graph, inputs[0], axis)
    made = [each for node in made for each in _keeping(node, timeline, states)]
    for value in inputs:
        value.type.tensor_type.shape.dim[axis].Clear()
        value.type.tensor_type.shape.dim[axis].dim_value = 1
    graph.initializer.extend([*timeline.constants, *states.constants])
    _finish(stepped, [*made, *states.after], {"window": window, "states": states.pairs})
    return Streamed(stepped, window, tuple(states.pairs))


def _followed(graph: onnx.GraphProto, timeline: Timeline) -> Iterator[onnx.NodeProto]:
    """The graph's nodes in order; through recurrent ones the timeline has gone."""
    for node in graph.node:
        if node.op_type in RECURRENT:
            timeline.through_recurrence(node, read_recurrence(node, _units(node)))
        yield node


def _window(inputs: Sequence[onnx.ValueInfoProto], axis: int) -> int:
    dimensions = [value.type.tensor_type.shape.dim for value in inputs]
    sizes = {each[axis].dim_value if axis < len(each) else 0 for each in dimensions}
    if len(sizes) != 1 or not (window := sizes.pop()):
        raise ModelRefusedError(
            f"axis {axis} of its inputs is not one fixed number of steps: give the inputs' sizes with --shape"
        )
    return int(window)


def _units(node: onnx.NodeProto) -> int:
    units = next((attribute.i for attribute in node.attribute if attribute.name == "hidden_size"), 0)
    if not units:
        raise ModelRefusedError(f"{label_of(node)} has no hidden_size: export the model with it")
    return int(units)


class _States:
    """What a step needs of those before it: inputs of the graph, each with the output that it is after the step.
    `after`: nodes that give them, behind all others."""

    def __init__(self, graph: onnx.GraphProto, value: onnx.ValueInfoProto, axis: int) -> None:
        """Their element type and the batch's size or name are those of `value`, an input."""
        self.pairs: list[tuple[str, str]] = []
        self.after: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._graph = graph
        self._names = set(all_names(graph))
        tensor = value.type.tensor_type
        batch = tensor.shape.dim[0 if axis else 1]
        self._element_type = tensor.elem_type
        self._rows: int | str = batch.dim_value or batch.dim_param or BATCH
        if not batch.dim_value:
            batch.dim_param = str(self._rows)

    def of_recurrent(self, node: onnx.NodeProto, late: int) -> None:
        """Have the node begin with states. Before `late` steps it has no input yet, and they stay as they were."""
        layout = next((attribute.i for attribute in node.attribute if attribute.name == "layout"), 0)
        letters = "hc" if node.op_type == "LSTM" else "h"
        label = node.name or node.output[0] or node.output[1]
        node.input.extend([""] * (INITIAL_H + len(letters) - len(node.input)))
        node.output.extend([""] * (1 + len(letters) - len(node.output)))
        early = self._early(label, late, self._shape(1, layout)) if late else ""
        for place, letter in enumerate(letters):
            taken, given = self._take(f"{letter}_{label}", self._shape(_units(node), layout))
            node.input[INITIAL_H + place] = taken
            inner = node.output[1 + place] or free_name(self._names, f"{taken}_after")
            node.output[1 + place] = inner
            if early:
                self._give("Where", [early, taken, inner], given)
            else:
                # A name of its own: what the node gives may be an output of the model already.
                self._give("Identity", [inner], given)

    def of_convolution(
        self, node: onnx.NodeProto, reach: int, axis: int, dims: tuple[int, ...]
    ) -> list[onnx.NodeProto]:
        """The node, reading as many steps as it did: what it read before is kept. `dims`: of its input."""
        shape = [self._rows, *dims[1:axis], reach, *dims[axis + 1 :]]
        if dims[0] not in (0, self._rows) or not all(shape):
            raise ModelRefusedError(
                f"{label_of(node)} reads {reach + 1} steps of {node.input[0]!r}, but only its batch may be open"
            )
        taken, given = self._take(f"past_{node.name or node.output[0]}", shape)
        joined = free_name(self._names, f"{taken}_joined")
        bounds = [self._constant(f"{taken}_{name}", [value]) for name, value in _FROM_THE_SECOND.items()]
        self._give("Slice", [joined, *bounds, self._constant(f"{taken}_axis", [axis])], given)
        changed = onnx.NodeProto()
        changed.CopyFrom(node)
        changed.input[0] = joined
        return [helper.make_node("Concat", [taken, node.input[0]], [joined], name=joined, axis=axis), changed]

    def _early(self, label: str, late: int, shape: Sequence[int | str]) -> str:
        """Whether so many steps have not come yet."""
        taken, given = self._take(f"steps_{label}", shape)
        dtype = helper.tensor_dtype_to_np_dtype(self._element_type)
        limit, one = (self._constant(f"{taken}_{name}", [value], dtype) for name, value in (("late", late), ("one", 1)))
        early = free_name(self._names, f"{taken}_early")
        self.after.append(helper.make_node("Less", [taken, limit], [early], name=early))
        self._give("Add", [taken, one], given)
        return early

    def _shape(self, units: int, layout: int) -> list[int | str]:
        return [self._rows, 1, units] if layout else [1, self._rows, units]

    def _take(self, wanted: str, shape: Sequence[int | str]) -> tuple[str, str]:
        taken = free_name(self._names, wanted)
        given = free_name(self._names, f"{taken}_next")
        for values, name in ((self._graph.input, taken), (self._graph.output, given)):
            values.append(helper.make_tensor_value_info(name, self._element_type, shape))
        self.pairs.append((taken, given))
        return taken, given

    def _give(self, operator: str, inputs: Sequence[str], given: str) -> None:
        self.after.append(helper.make_node(operator, inputs, [given], name=given))

    def _constant(self, wanted: str, values: Sequence[int], dtype: npt.DTypeLike = np.int64) -> str:
        name = free_name(self._names, wanted)
        self.constants.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name


def _keeping(node: onnx.NodeProto, timeline: Timeline, states: _States) -> list[onnx.NodeProto]:
    """The node with what it needs of earlier steps as states; others as they are."""
    if node.op_type in RECURRENT:
        states.of_recurrent(node, timeline.late(node.input[0]))
    elif reach := timeline.reach(node):
        return states.of_convolution(node, reach, timeline.time_axis(node.input[0]), timeline.dims(node))
    return [node]


def _finish(model: onnx.ModelProto, made: list[onnx.NodeProto], feed: dict[str, object]) -> None:
    """The nodes that were made, and of them what is still needed."""
    graph = model.graph
    replace_nodes(graph, _needed(graph, made))
    drop_unused(graph)
    del graph.value_info[:]
    props = {entry.key: entry.value for entry in model.metadata_props} | {FEED_KEY: json.dumps(feed)}
    helper.set_model_props(model, props)


def _needed(graph: onnx.GraphProto, made: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """The nodes on which an output depends: what made the states of zeros is not among them."""
    wanted = {value.name for value in graph.output}
    kept: list[onnx.NodeProto] = []
    for node in reversed(made):
        if wanted & set(node.output):
            kept.append(node)
            wanted |= set(node.input)
    return kept[::-1]
