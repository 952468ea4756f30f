"""A graph under edit: names that are free, constants that are known, and operators whose form changed between operator
sets, so that a pass says what it means once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tickpath.engines.passes.graph import free_name, known_tensors, tensor_value
from tickpath.engines.spec import Array

Attribute = int | float | str | list[int]

# Where operators began to take as inputs what they had as attributes.
CLIP_BY_INPUT: Final = 11
AXES_BY_INPUT: Final = 13


@dataclass(frozen=True, slots=True)
class Scope:
    """What is known where a node stands: every name taken in the model, the opset, and the tensors whose value is
    fixed in this graph or around it."""

    names: set[str]
    opset: int
    known: Mapping[str, onnx.TensorProto]

    def inside(self, graph: onnx.GraphProto) -> "Scope":
        """The scope of a graph that a node in this one holds."""
        return Scope(self.names, self.opset, {**self.known, **known_tensors(graph)})


class Editor:
    """Makes the nodes and constants that take one node's place. What can be computed from known tensors is, and what
    has been made of a tensor once is not made again, since each of a hundred steps asks for the same weights."""

    def __init__(self, scope: Scope, prefix: str) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._scope = scope
        self._prefix = prefix
        self._values: dict[str, Array] = {}
        self._done: dict[tuple[object, ...], list[str]] = {}

    def node(self, operator: str, *inputs: str, **attributes: Attribute) -> str:
        """Add an operator of one output; the name of that."""
        return self._add(operator, inputs, [self._name(operator)], attributes)[0]

    def named(self, output: str, operator: str, *inputs: str, **attributes: Attribute) -> None:
        """Add an operator whose output has this name."""
        self._add(operator, inputs, [output], attributes)

    def constant(self, array: Array) -> str:
        key = ("constant", array.dtype, array.shape, array.tobytes())
        return self._once(key, lambda: [self._new_constant(array)])[0]

    def value(self, name: str) -> Array | None:
        """The tensor's value where it is known."""
        if name not in self._values and name in self._scope.known:
            self._values[name] = tensor_value(self._scope.known[name])
        return self._values.get(name)

    def take(self, x: str, place: int) -> str:
        """`x[place]`."""
        known = self.value(x)
        if known is not None:
            return self.constant(known[place])
        return self.node("Gather", x, self.constant(np.array(place, np.int64)), axis=0)

    def transpose(self, x: str, perm: list[int]) -> str:
        return self._once(("Transpose", x, *perm), lambda: [self._transpose(x, perm)])[0]

    def add(self, x: str, y: str) -> str:
        one, other = self.value(x), self.value(y)
        if one is not None and other is not None:
            return self.constant(np.add(one, other))
        return self.node("Add", x, y)

    def concat(self, parts: Sequence[str], axis: int) -> str:
        known = [array for array in map(self.value, parts) if array is not None]
        if len(known) == len(parts):
            return self.constant(np.concatenate(known, axis))
        return self.node("Concat", *parts, axis=axis)

    def split(self, x: str, sizes: Sequence[int], axis: int) -> list[str]:
        """The parts of `x` along `axis`, in order."""
        if len(sizes) == 1:
            return [x]
        return self._once(("Split", x, axis, *sizes), lambda: self._split(x, sizes, axis))

    def unsqueeze(self, x: str, axis: int) -> str:
        if self._scope.opset < AXES_BY_INPUT:
            return self.node("Unsqueeze", x, axes=[axis])
        return self.node("Unsqueeze", x, self.constant(np.array([axis], np.int64)))

    def clip(self, x: str, bound: float, dtype: np.dtype[np.generic]) -> str:
        """`x` held to [-bound, bound]."""
        if self._scope.opset < CLIP_BY_INPUT:
            return self.node("Clip", x, min=-bound, max=bound)
        return self.node("Clip", x, *(self.constant(np.asarray(limit, dtype)) for limit in (-bound, bound)))

    def _add(
        self, operator: str, inputs: Sequence[str], outputs: list[str], attributes: Mapping[str, Attribute]
    ) -> list[str]:
        made = helper.make_node(operator, list(inputs), outputs, name=f"{outputs[0]}:{operator}")
        made.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(made)
        return outputs

    def _once(self, key: tuple[object, ...], make: Callable[[], list[str]]) -> list[str]:
        if key not in self._done:
            self._done[key] = make()
        return self._done[key]

    def _new_constant(self, array: Array) -> str:
        name = self._name("constant")
        self.constants.append(numpy_helper.from_array(np.array(array, order="C"), name))
        self._values[name] = array
        return name

    def _transpose(self, x: str, perm: list[int]) -> str:
        known = self.value(x)
        return self.node("Transpose", x, perm=perm) if known is None else self.constant(known.transpose(perm))

    def _split(self, x: str, sizes: Sequence[int], axis: int) -> list[str]:
        known = self.value(x)
        if known is not None:
            return [self.constant(part) for part in np.split(known, np.cumsum(sizes)[:-1], axis)]
        outputs = [self._name("Split") for _ in sizes]
        if self._scope.opset < AXES_BY_INPUT:
            return self._add("Split", [x], outputs, {"axis": axis, "split": list(sizes)})
        return self._add("Split", [x, self.constant(np.array(sizes, np.int64))], outputs, {"axis": axis})

    def _name(self, hint: str) -> str:
        return free_name(self._scope.names, f"{self._prefix}/{hint}")
