"""LSTM, GRU and RNN as fixed steps of plain operators, and loops of a fixed number of rounds as well (straighten.py).

TensorRT makes a loop of a recurrent operator, and a loop can't be captured in a CUDA graph. Unrolled, a model of fixed
sequence length is a straight line. The products with the input don't depend on the state, so they are one product for
all steps; what is left for each step is one product with the state and a few functions of single elements.

Answers are those of the original to rounding: sums are added up in another order.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import onnx
from onnx import helper

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.onnx_file import nodes, subgraphs
from tickpath.engines.passes.cells import Cell, GruCell, LstmCell, RnnCell, State
from tickpath.engines.passes.checks import loops
from tickpath.engines.passes.editor import Editor, Scope
from tickpath.engines.passes.graph import (
    all_names,
    copy_flat,
    drop_unused,
    known_tensors,
    opset_of,
    overridable,
    replace_nodes,
    tensor_types,
)
from tickpath.engines.passes.recurrence import OPSET_MIN, RECURRENT, SEQUENCE_LENS, Recurrence, read_recurrence
from tickpath.engines.passes.shapes import with_rows
from tickpath.engines.passes.straighten import straighten

Types = Mapping[str, onnx.TypeProto.Tensor]

CELLS: Final[Mapping[str, type[Cell]]] = {"RNN": RnnCell, "GRU": GruCell, "LSTM": LstmCell}

# Inputs of a node by place.
X, W, R, B, _, INITIAL_H, INITIAL_C, P = range(8)


def unroll(model: onnx.ModelProto, rows: int | None = None) -> onnx.ModelProto:
    """The model, a copy, without recurrent operators and without the loops that can be counted. `rows` fixes the batch
    axis, where the file needs that for its sequence length to be known. Sizes that were declared must be in the model:
    see `shapes.settle`.

    Raises ModelRefusedError naming the operator: a sequence length that is not fixed or differs from row to row, an
    unknown activation, an operator set older than 7.
    """
    unrolled = copy_flat(model) if rows is None else with_rows(copy_flat(model), rows)
    if not loops(unrolled):
        return unrolled
    unrolled = straighten(unrolled)
    if not any(_recurrent(node) for node in nodes(unrolled.graph)):
        return unrolled
    if opset_of(unrolled) < OPSET_MIN:
        raise ModelRefusedError(
            f"operator set {opset_of(unrolled)} is too old to unroll: export with {OPSET_MIN} or newer"
        )
    known = known_tensors(unrolled.graph, overridable(unrolled))
    scope = Scope(set(all_names(unrolled.graph)), opset_of(unrolled), known)
    _unroll_graph(unrolled.graph, scope, tensor_types(unrolled))
    drop_unused(unrolled.graph)
    return unrolled


def _recurrent(node: onnx.NodeProto) -> bool:
    return node.op_type in RECURRENT and node.domain in {"", "ai.onnx"}


def _unroll_graph(graph: onnx.GraphProto, scope: Scope, types: Types) -> None:
    made: list[onnx.NodeProto] = []
    for node in graph.node:
        for inner in subgraphs(node):
            _unroll_graph(inner, scope.inside(inner), types)
        if _recurrent(node):
            editor = Editor(scope, node.name or next(filter(None, node.output)))
            _unroll_node(editor, node, types)
            made += editor.nodes
            graph.initializer.extend(editor.constants)
        else:
            made.append(node)
    replace_nodes(graph, made)


def _unroll_node(editor: Editor, node: onnx.NodeProto, types: Types) -> None:
    operands = [*node.input, *[""] * (P + 1 - len(node.input))]
    form = read_recurrence(node, _size(types, operands[R], 2, f"the hidden size of {node.op_type} {node.name!r}"))
    steps = _size(types, operands[X], form.layout, f"the sequence length of {form.label}")
    _check_lengths(editor, operands[SEQUENCE_LENS], steps, form)
    dtype = helper.tensor_dtype_to_np_dtype(types[operands[X]].elem_type)
    x = editor.transpose(operands[X], [1, 0, 2]) if form.layout else operands[X]
    states = [_states(editor, form, operands[place]) for place in (INITIAL_H, INITIAL_C)]
    all_steps, last = [], []
    for direction, reverse in enumerate(form.reverse):
        weights = [editor.take(name, direction) if name else "" for name in _weights(operands)]
        cell = CELLS[form.kind](editor, form, direction, weights, dtype)
        state: State = tuple(state[direction] for state in states[: 2 if form.kind == "LSTM" else 1])
        hidden, state = _run(cell, cell.project(x, steps), state, reverse)
        all_steps.append(hidden)
        last.append(state)
    _outputs(editor, form, node.output, all_steps, last)


def _weights(operands: Sequence[str]) -> list[str]:
    return [operands[place] for place in (W, R, B, P)]


def _size(types: Types, name: str, axis: int, what: str) -> int:
    """A dimension that must be fixed."""
    dimensions = types[name].shape.dim if name in types else ()
    if axis >= len(dimensions) or dimensions[axis].dim_value < 1:
        raise ModelRefusedError(
            f"{what} isn't fixed, so it can't be unrolled: give the input's sizes with "
            "--shape, or export the model with a fixed length"
        )
    return int(dimensions[axis].dim_value)


def _check_lengths(editor: Editor, name: str, steps: int, form: Recurrence) -> None:
    lengths = editor.value(name) if name else None
    if name and (lengths is None or not np.array_equal(lengths, np.full_like(lengths, steps))):
        raise ModelRefusedError(
            f"{form.label} takes a length for each row (sequence_lens {name!r}), and fixed steps have one for all: "
            "pad the sequences and export the model without it"
        )


def _states(editor: Editor, form: Recurrence, name: str) -> Sequence[str | None]:
    """Each direction's initial state, [1, batch, units]."""
    if not name:
        return [None] * len(form.reverse)
    known = editor.value(name)
    if known is not None and not known.any():
        return [None] * len(form.reverse)
    whole = editor.transpose(name, [1, 0, 2]) if form.layout else name
    return editor.split(whole, [1] * len(form.reverse), 0)


def _run(cell: Cell, projected: list[str], state: State, reverse: bool) -> tuple[list[str], State]:
    """The hidden state after each step, in the order of the steps, and the state at the end."""
    hidden = []
    for x in reversed(projected) if reverse else projected:
        state = cell.step(x, state)
        assert state[0] is not None, "a step names the state it makes"
        hidden.append(state[0])
    return hidden[::-1] if reverse else hidden, state


def _outputs(
    editor: Editor, form: Recurrence, names: Sequence[str], all_steps: list[list[str]], last: list[State]
) -> None:
    """Y [steps, directions, batch, units], then Y_h and Y_c [directions, batch, units]; batch first in layout 1."""
    if names and names[0]:
        whole = [editor.unsqueeze(editor.concat(hidden, 0), 1) for hidden in all_steps]
        _finish(editor, form, whole, 1, [2, 0, 1, 3], names[0])
    for place, name in enumerate(names[1:]):
        if name:
            ends = [state[place] for state in last]
            _finish(editor, form, [end for end in ends if end], 0, [1, 0, 2], name)


def _finish(editor: Editor, form: Recurrence, parts: list[str], axis: int, perm: list[int], name: str) -> None:
    if form.layout:
        editor.named(name, "Transpose", editor.concat(parts, axis), perm=perm)
    else:
        editor.named(name, "Concat", *parts, axis=axis)
