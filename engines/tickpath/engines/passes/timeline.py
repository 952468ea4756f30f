"""Follows time through a graph: which axis of each tensor it is, so that one can say that no operator mixes two steps.

Of a tensor one of four things is known
- stepped: it has a time axis, and each step depends on the steps up to it alone;
- last: it has none any more, and depends on the last step's values;
- zeros: it is all zeros, whatever its shape: states to begin with are often computed so;
- fixed: it depends on no input.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.passes.graph import tensor_value
from tickpath.engines.passes.recurrence import SEQUENCE_LENS, Recurrence
from tickpath.engines.spec import Array

Types = Mapping[str, onnx.TypeProto.Tensor]

# One element of the answer from the elements at the same place, broadcast.
# fmt: off
ELEMENTWISE: Final = frozenset((
    "Abs", "Add", "Cast", "Ceil", "Clip", "Cos", "Div", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu",
    "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Max", "Min", "Mish", "Mul", "Neg", "Pow", "PRelu",
    "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum",
    "Tanh", "ThresholdedRelu", "Where",
))
# fmt: on
# Of zeros these make zeros.
KEEP_ZEROS: Final = frozenset(
    ["Cast", "Expand", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"],
)
ALONG_AN_AXIS: Final = frozenset(["Hardmax", "LogSoftmax", "Softmax"])

LAST: Final = -1


class Timeline:
    """What is known of each tensor so far. Nodes come in the graph's order. `constants`: what nodes that had to change
    read now."""

    def __init__(self, known: Mapping[str, onnx.TensorProto], steps: int, types: Types) -> None:
        self._known = known
        self._steps = steps
        self._types = types
        self.constants: list[onnx.TensorProto] = []
        self._axes: dict[str, int] = {}  # of stepped tensors the axis, LAST for those of the last step
        self._late: dict[str, int] = {}  # of stepped tensors, how many of the window's first steps they don't have
        self._reaches: dict[str, int] = {}
        self._zeros = {name for name, tensor in known.items() if not tensor_value(tensor).any()}
        self._rules: dict[str, Callable[[onnx.NodeProto, int], onnx.NodeProto]] = {
            "Transpose": self._transpose,
            "Squeeze": self._squeeze,
            "Unsqueeze": self._unsqueeze,
            "Gather": self._gather,
            "Slice": self._slice,
            "MatMul": self._matmul,
            "Concat": self._concat,
            "Conv": self._convolution,
            "LayerNormalization": self._layer_normalization,
            "BatchNormalization": self._batch_normalization,
        }

    def begin(self, name: str, axis: int) -> None:
        """An input of the model has time along this axis."""
        self._axes[name] = axis

    def through(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """The node as it is in a model of one step. Raises ModelRefusedError where it mixes steps."""
        axes = {self._axes[name] for name in node.input if name in self._axes}
        if not axes:
            self._fixed(node)
            return node
        if axes == {LAST}:
            self._set(node, LAST)
            return node
        if node.op_type == "Shape":  # depends on no value
            return node
        if len(axes) > 1 or len({self.late(name) for name in node.input if name in self._axes}) > 1:
            self._refuse(node, "joins values of different steps")
        (axis,) = axes
        if node.op_type in ELEMENTWISE:
            return self._elementwise(node, axis)
        if node.op_type in ALONG_AN_AXIS:
            return self._along(node, axis)
        if node.op_type not in self._rules:
            self._refuse(node, "may mix steps: only what treats each step by itself can be stepped")
        return self._rules[node.op_type](node, axis)

    def through_recurrence(self, node: onnx.NodeProto, form: Recurrence) -> None:
        """A recurrent node must run forward, over time, from zeros."""
        if form.reverse != (False,):
            self._refuse(node, "runs backward, from steps that have not come yet")
        if self._axes.get(node.input[0]) != form.layout:
            self._refuse(node, f"does not run along the window's time axis (layout {form.layout})")
        if any(name in self._axes for name in node.input[1:]):
            self._refuse(node, "takes weights or states from the window")
        if len(node.input) > SEQUENCE_LENS and node.input[SEQUENCE_LENS]:
            self._refuse(node, "takes a length for each row (sequence_lens)")
        if any(name and name not in self._zeros for name in node.input[5:7]):
            self._refuse(node, "begins with states other than zeros, which a feed would not know")
        whole, *ends = node.output
        if whole:
            # Y has the directions behind the steps; batch first in layout 1.
            self._axes[whole] = 1 if form.layout else 0
            self._late[whole] = self.late(node.input[0])
        for name in filter(None, ends):
            self._axes[name] = LAST

    def check_output(self, name: str) -> None:
        """An answer must come from the last step alone. Raises ModelRefusedError."""
        if self._axes.get(name, LAST) != LAST:
            raise ModelRefusedError(
                f"output {name!r} has all steps of the window: let the model answer from the last step alone"
            )

    def dims(self, node: onnx.NodeProto) -> tuple[int, ...]:
        """The sizes of a node's first input, 0 for those that are open."""
        self._rank(node, node.input[0])
        return tuple(each.dim_value for each in self._types[node.input[0]].shape.dim)

    def time_axis(self, name: str) -> int:
        """Which axis of a stepped tensor is time."""
        return self._axes[name]

    def late(self, name: str) -> int:
        """How many steps must have come before a stepped tensor has its first."""
        return self._late.get(name, 0)

    def reach(self, node: onnx.NodeProto) -> int:
        """How many steps before this one a convolution reads."""
        return self._reaches.get(node.output[0], 0)

    # -- one rule for each operator; `axis` is time in its input --

    def _fixed(self, node: onnx.NodeProto) -> None:
        is_zero = node.op_type in KEEP_ZEROS and node.input and node.input[0] in self._zeros
        if node.op_type == "Concat":
            is_zero = all(name in self._zeros for name in node.input)
        if node.op_type == "ConstantOfShape":
            value = next((each.t for each in node.attribute if each.name == "value"), None)
            is_zero = value is None or not numpy_helper.to_array(value).any()
        if is_zero:
            self._zeros.update(node.output)

    def _set(self, node: onnx.NodeProto, axis: int) -> onnx.NodeProto:
        late = max(self.late(name) for name in node.input)
        for name in filter(None, node.output):
            self._axes[name] = axis
            if axis != LAST:
                self._late[name] = late + self.reach(node)
        return node

    def _elementwise(self, node: onnx.NodeProto, axis: int) -> onnx.NodeProto:
        rank = self._rank(node, next(name for name in node.input if name in self._axes))
        for name in node.input:
            if name and name not in self._axes:
                shape = self._shape(name)
                if shape is None:
                    self._refuse(node, f"takes {name!r}, whose size isn't known")
                place = axis - rank + len(shape)
                if len(shape) > rank or (place >= 0 and shape[place] != 1):
                    self._refuse(node, f"has another value for each step in {name!r}")
            elif name and self._rank(node, name) != rank:
                self._refuse(node, "joins tensors of different ranks")
        return self._set(node, axis)

    def _along(self, node: onnx.NodeProto, axis: int) -> onnx.NodeProto:
        along = self._attribute(node, "axis", -1)
        if along % self._rank(node, node.input[0]) == axis:
            self._refuse(node, "runs along time")
        return self._set(node, axis)

    def _transpose(self, node: onnx.NodeProto, axis: int) -> onnx.NodeProto:
        rank = self._rank(node, node.input[0])
        perm = self._attribute(node, "perm", list(range(rank))[::-1])
        return self._set(node, list(perm).index(axis))

    def _squeeze(self, node: onnx.NodeProto, axis: int) -> onnx.NodeProto:
        rank = self._rank(node, node.input[0])
        gone = sorted(place % rank for place in self._places(node))
        if not gone or axis in gone:
            self._refuse(node, "may remove the time axis: give it axes")
        return self._set(node, axis - sum(place < axis for place in gone))

    def _unsqueeze(self, node: onnx.NodeProto, axis: int) -> onnx.NodeProto:
        places = self._places(node)
        rank = self._rank(node, node.input[0]) + len(places)
        new = {place % rank for place in places}
        kept = [place for place in range(rank) if place not in new]
        return self._set(node, kept[axis])

    def _gather(self, node: onnx.NodeProto, axis: int) -> onnx.NodeProto:
        along = self._attribute(node, "axis", 0) % self._rank(node, node.input[0])
        index = self._value(node.input[1])
        if along != axis and index is not None:
            return self._set(node, axis + (along < axis) * (index.ndim - 1))
        last = self._steps - self.late(node.input[0]) - 1
        if index is None or index.size != 1 or int(index.reshape(-1)[0]) not in (LAST, last):
            self._refuse(node, "takes more, or another, than the last step")
        self._set(node, LAST)
        return self._gathering_last(node, index)

    def _gathering_last(self, node: onnx.NodeProto, index: Array) -> onnx.NodeProto:
        changed = onnx.NodeProto()
        changed.CopyFrom(node)
        changed.input[1] = f"{node.output[0]}/last"
        self.constants.append(numpy_helper.from_array(np.full_like(index, LAST), changed.input[1]))
        return changed

    def _slice(self, node: onnx.NodeProto, axis: int) -> onnx.NodeProto:
        rank = self._rank(node, node.input[0])
        values = [self._value(name) if name else None for name in node.input[1:]]
        starts, ends, axes, strides = [*values, None, None, None, None][:4]
        if starts is None or ends is None:
            self._refuse(node, "takes a part that isn't fixed")
        along = list(range(starts.size)) if axes is None else [int(place) % rank for place in axes]
        if axis not in along:
            return self._set(node, axis)
        place = along.index(axis)
        steps = self._steps - self.late(node.input[0])
        takes_last = int(starts[place]) in (LAST, steps - 1) and int(ends[place]) >= steps
        if len(along) > 1 or not takes_last or (strides is not None and (strides != 1).any()):
            self._refuse(node, "takes more, or another, than the last step")
        self._set(node, LAST)
        return helper.make_node("Identity", [node.input[0]], [node.output[0]], name=node.name)

    def _matmul(self, node: onnx.NodeProto, axis: int) -> onnx.NodeProto:
        shape = self._shape(node.input[1])
        rank = self._rank(node, node.input[0])
        if shape is None or len(shape) != 2 or axis == rank - 1:
            self._refuse(node, "may multiply along time: only one product for each step can be stepped")
        return self._set(node, axis)

    def _concat(self, node: onnx.NodeProto, axis: int) -> onnx.NodeProto:
        if self._attribute(node, "axis", 0) % self._rank(node, node.input[0]) == axis:
            self._refuse(node, "joins along time")
        if any(name not in self._axes for name in node.input):
            self._refuse(node, "joins what has steps with what has none")
        return self._set(node, axis)

    def _convolution(self, node: onnx.NodeProto, axis: int) -> onnx.NodeProto:
        shape = self._shape(node.input[1]) if node.input[0] in self._axes else None
        if shape is None or axis < 2:
            self._refuse(node, "has time among its channels, or computed weights")
        spatial = axis - 2
        pads = self._attribute(node, "pads", [0] * 2 * (len(shape) - 2))
        padded = (
            pads[spatial]
            or pads[spatial + len(shape) - 2]
            or self._attribute(node, "auto_pad", b"NOTSET")
            not in (
                b"NOTSET",
                b"VALID",
            )
        )
        if padded and shape[axis] > 1:
            self._refuse(node, f"reads {shape[axis]} steps at once and pads them along time")
        if padded or self._attribute(node, "strides", [1] * (len(shape) - 2))[spatial] != 1:
            self._refuse(node, "pads or skips steps")
        apart = self._attribute(node, "dilations", [1] * (len(shape) - 2))[spatial]
        self._reaches[node.output[0]] = apart * (shape[axis] - 1)
        return self._set(node, axis)

    def _layer_normalization(self, node: onnx.NodeProto, axis: int) -> onnx.NodeProto:
        if self._attribute(node, "axis", -1) % self._rank(node, node.input[0]) <= axis:
            self._refuse(node, "normalises along time")
        return self._set(node, axis)

    def _batch_normalization(self, node: onnx.NodeProto, axis: int) -> onnx.NodeProto:
        if axis == 1:
            self._refuse(node, "has another scale for each step")
        return self._set(node, axis)

    # -- what is known of a tensor --

    def _places(self, node: onnx.NodeProto) -> Sequence[int]:
        """The axes of a Squeeze or Unsqueeze, an attribute once and an input since."""
        given = self._value(node.input[1]) if len(node.input) > 1 else None
        return list(self._attribute(node, "axes", [])) if given is None else given.reshape(-1).tolist()

    def _value(self, name: str) -> Array | None:
        return tensor_value(self._known[name]) if name in self._known else None

    def _shape(self, name: str) -> tuple[int, ...] | None:
        value = self._value(name)
        return None if value is None else value.shape

    def _rank(self, node: onnx.NodeProto, name: str) -> int:
        if name not in self._types or not self._types[name].HasField("shape"):
            self._refuse(node, f"takes {name!r}, whose rank isn't known")
        return len(self._types[name].shape.dim)

    @staticmethod
    def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
        return next((helper.get_attribute_value(each) for each in node.attribute if each.name == name), default)

    def _refuse(self, node: onnx.NodeProto, why: str) -> NoReturn:
        raise ModelRefusedError(f"{label_of(node)} {why}, so the model can't be stepped: serve its window as it is")


def label_of(node: onnx.NodeProto) -> str:
    """What a message calls the node."""
    return f"{node.op_type} {node.name or next(filter(None, node.output), '')!r}"
