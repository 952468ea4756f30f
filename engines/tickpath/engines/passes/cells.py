"""One step of each recurrent operator, made of plain operators.

- A state that nobody gives is zeros. It has no name then, and what would be multiplied by it or added to it is left
  out, so no step needs to know the batch size.
- Tensors of a step keep the step's axis: x [1, batch, gates x units], states [1, batch, units].
- Gates stand in ONNX's order: z, r, h in a GRU; i, o, f, c in an LSTM, whose peepholes are i, o, f.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tickpath.engines.passes.editor import Editor
from tickpath.engines.passes.recurrence import GATES, Recurrence

State: TypeAlias = tuple[str | None, ...]
"""The hidden state, and for an LSTM the cell's; None: zeros."""


class Cell(ABC):
    """One direction of a recurrent node. `operands`: W, R, B and P of that direction, empty names for those left out.
    W [gates x units, features], R [gates x units, units], B [2 x gates x units], P [3 x units]."""

    def __init__(
        self, editor: Editor, form: Recurrence, direction: int, operands: Sequence[str], dtype: np.dtype[np.generic]
    ) -> None:
        self._editor = editor
        self._form = form
        self._activations = form.activations[direction]
        self._dtype = dtype
        self._input_weights, self._weights, bias, self._peepholes = operands
        width = GATES[form.kind] * form.units
        self._bias = editor.split(bias, [width, width], 0) if bias else []

    def project(self, x: str, steps: int) -> list[str]:
        """[steps, batch, features] -> each step's part of the gates that its input makes, all in one product."""
        projected = self._editor.node("MatMul", x, self._editor.transpose(self._input_weights, [1, 0]))
        if self._bias:
            projected = self._editor.node("Add", projected, self._input_bias(*self._bias))
        return self._editor.split(projected, [1] * steps, 0)

    @abstractmethod
    def step(self, x: str, state: State) -> State:
        """The state after a step."""

    def _input_bias(self, of_input: str, of_state: str) -> str:
        return self._editor.add(of_input, of_state)

    def _times(self, h: str | None, weights: str, x: str) -> str:
        """x + h * weights'."""
        if h is None:
            return x
        return self._editor.node("Add", x, self._editor.node("MatMul", h, self._editor.transpose(weights, [1, 0])))

    def _parts(self, x: str, counts: Sequence[int]) -> list[str]:
        """The gates apart; `counts` are numbers of gates."""
        return self._editor.split(x, [count * self._form.units for count in counts], 2)

    def _activate(self, place: int, x: str) -> str:
        if self._form.clip is not None:
            x = self._editor.clip(x, self._form.clip, self._dtype)
        return self._activations[place].apply(self._editor, x, self._dtype)


class RnnCell(Cell):
    """h' = f(x + R h)."""

    def step(self, x: str, state: State) -> State:
        return (self._activate(0, self._times(state[0], self._weights, x)),)


class GruCell(Cell):
    """z, r = f(x + R h); n = g(x + R (r h)), or g(x + r (R h)) where linear before reset; h' = n + z (h - n)."""

    def _input_bias(self, of_input: str, of_state: str) -> str:
        if not self._form.linear_before_reset:
            return self._editor.add(of_input, of_state)
        gates = [2 * self._form.units, self._form.units]
        (first, new), (other, _) = (self._editor.split(bias, gates, 0) for bias in (of_input, of_state))
        return self._editor.concat([self._editor.add(first, other), new], 0)

    def step(self, x: str, state: State) -> State:
        h = state[0]
        gates, new = self._parts(x, [2, 1])
        weights = self._editor.split(self._weights, [2 * self._form.units, self._form.units], 0)
        z, r = self._parts(self._activate(0, self._times(h, weights[0], gates)), [1, 1])
        n = self._activate(1, self._candidate(new, r, h, weights[1]))
        if h is None:
            return (self._editor.node("Sub", n, self._editor.node("Mul", z, n)),)
        return (self._editor.node("Add", n, self._editor.node("Mul", z, self._editor.node("Sub", h, n))),)

    def _candidate(self, x: str, r: str, h: str | None, weights: str) -> str:
        editor = self._editor
        if not self._form.linear_before_reset:
            return self._times(None if h is None else editor.node("Mul", r, h), weights, x)
        bias = editor.split(self._bias[1], [2 * self._form.units, self._form.units], 0)[1] if self._bias else None
        if h is not None:
            product = editor.node("MatMul", h, editor.transpose(weights, [1, 0]))
            bias = product if bias is None else editor.node("Add", product, bias)
        return x if bias is None else editor.node("Add", x, editor.node("Mul", r, bias))


class LstmCell(Cell):
    """i, f, o, g = gates of x + R h; c' = f c + i g; h' = o h(c')."""

    def step(self, x: str, state: State) -> State:
        editor = self._editor
        h, c = state
        i, o, f, g = self._parts(self._times(h, self._weights, x), [1, 1, 1, 1])
        peep_i, peep_o, peep_f = self._peephole_parts()
        i = self._activate(0, self._peep(i, peep_i, c))
        new = self._activate(1, g)
        if c is None:
            c = editor.node("Mul", i, new)
        elif self._form.input_forget:  # f = 1 - i
            c = editor.node("Add", c, editor.node("Mul", i, editor.node("Sub", new, c)))
        else:
            f = self._activate(0, self._peep(f, peep_f, c))
            c = editor.node("Add", editor.node("Mul", f, c), editor.node("Mul", i, new))
        o = self._activate(0, self._peep(o, peep_o, c))
        # Not clipped, as onnxruntime has it: `clip` holds the gates, and those hold the cell's state.
        return editor.node("Mul", o, self._activations[2].apply(editor, c, self._dtype)), c

    def _peephole_parts(self) -> Sequence[str]:
        if not self._peepholes:
            return ("", "", "")
        return self._editor.split(self._peepholes, [self._form.units] * 3, 0)

    def _peep(self, gate: str, weights: str, c: str | None) -> str:
        if c is None or not weights:
            return gate
        return self._editor.node("Add", gate, self._editor.node("Mul", weights, c))
