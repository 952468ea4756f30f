"""A recurrent model over a window, as a model of one step: what a step needs of those before it goes in and comes out.

The window's model takes [N, steps, ...] and answers from its last step; the step model takes [N, 1, ...] and for each
recurrent operator its states, and gives the states after this step. Begun with zeros and stepped through a window, it
gives that window's answer: the operators, weights and order of sums are the same.

That holds where every operator but the recurrent ones treats each step by itself, and where the answer is read from the
last step alone. So each tensor's time axis is followed through the graph (`timeline.py`), and a model in which one gets
lost, or two steps meet, is refused with the operator that did it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import onnx
from onnx import helper

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
    form = _StateForm(inputs[0], axis)
    made = [node if node.op_type in RECURRENT else timeline.through(node) for node in _followed(graph, timeline)]
    names = set(all_names(graph))
    states = [pair for node in made if node.op_type in RECURRENT for pair in _give_states(graph, node, form, names)]
    if not states:
        raise ModelRefusedError(
            "it has no recurrent operator (LSTM, GRU, RNN), so there is nothing to step: serve its window as it is"
        )
    for output in graph.output[: len(graph.output) - len(states)]:
        timeline.check_output(output.name)
    for value in inputs:
        value.type.tensor_type.shape.dim[axis].Clear()
        value.type.tensor_type.shape.dim[axis].dim_value = 1
    graph.initializer.extend(timeline.constants)
    _finish(stepped, made, {"window": window, "states": states})
    return Streamed(stepped, window, tuple(states))


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


class _StateForm:
    """What a state looks like: its element type, and the batch's size or name, both those of an input."""

    def __init__(self, value: onnx.ValueInfoProto, axis: int) -> None:
        tensor = value.type.tensor_type
        batch = tensor.shape.dim[0 if axis else 1]
        self._element_type = tensor.elem_type
        self._rows: int | str = batch.dim_value or batch.dim_param or BATCH
        if not batch.dim_value:
            batch.dim_param = str(self._rows)

    def declare(self, name: str, units: int, layout: int) -> onnx.ValueInfoProto:
        shape = [self._rows, 1, units] if layout else [1, self._rows, units]
        return helper.make_tensor_value_info(name, self._element_type, shape)


def _give_states(
    graph: onnx.GraphProto, node: onnx.NodeProto, form: _StateForm, names: set[str]
) -> list[tuple[str, str]]:
    """Have the node begin with states that are inputs of the graph. Returns their names, each with that of the output
    which it is after the step."""
    layout = next((attribute.i for attribute in node.attribute if attribute.name == "layout"), 0)
    letters = "hc" if node.op_type == "LSTM" else "h"
    node.input.extend([""] * (INITIAL_H + len(letters) - len(node.input)))
    node.output.extend([""] * (1 + len(letters) - len(node.output)))
    pairs = []
    for place, letter in enumerate(letters):
        taken = free_name(names, f"{letter}_{node.name or node.output[0] or node.output[1]}")
        given = free_name(names, f"{taken}_next")
        node.input[INITIAL_H + place] = taken
        inner = node.output[1 + place] or free_name(names, f"{taken}_after")
        node.output[1 + place] = inner
        graph.input.append(form.declare(taken, _units(node), layout))
        graph.output.append(form.declare(given, _units(node), layout))
        # A name of its own: what the node gives may be an output of the model already.
        graph.node.append(helper.make_node("Identity", [inner], [given], name=given))
        pairs.append((taken, given))
    return pairs


def _finish(model: onnx.ModelProto, made: list[onnx.NodeProto], feed: dict[str, object]) -> None:
    """The nodes that were made, those that give the states, and of them all what is still needed."""
    graph = model.graph
    given = [node for node in graph.node if node.op_type == "Identity" and node.output[0].endswith("_next")]
    replace_nodes(graph, _needed(graph, [*made, *given]))
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
