"""A recurrent node's attributes, read once: what it computes, in terms that no longer depend on how ONNX writes it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

from tickpath.engines.engine import ModelRefusedError
from tickpath.engines.passes.editor import Editor

RECURRENT: Final = frozenset({"GRU", "LSTM", "RNN"})

GATES: Final[Mapping[str, int]] = {"RNN": 1, "GRU": 3, "LSTM": 4}

DEFAULTS: Final[Mapping[str, tuple[str, ...]]] = {
    "RNN": ("Tanh",),
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
}

# For each activation, what it takes of activation_alpha and activation_beta, and their values where it stands alone
# (None: it must be given, since it has no default or onnxruntime has another one than ONNX).
Parameters = Mapping[str, float | None]
ACTIVATIONS: Final[Mapping[str, Parameters]] = {
    "Affine": {"alpha": None, "beta": None},
    "Elu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "LeakyRelu": {"alpha": 0.01},
    "Relu": {},
    "ScaledTanh": {"alpha": None, "beta": None},
    "Sigmoid": {},
    "Softplus": {},
    "Softsign": {},
    "Tanh": {},
    "ThresholdedRelu": {"alpha": None},
}
_SPELLING: Final = {name.lower(): name for name in ACTIVATIONS}

# The oldest operator set in which these operators have the form they have today.
OPSET_MIN: Final = 7

# Inputs by place: X, W, R, B, sequence_lens, initial_h, and for an LSTM initial_c and P.
SEQUENCE_LENS: Final = 4


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of one element."""

    operator: str
    parameters: Mapping[str, float]

    def apply(self, editor: Editor, x: str, dtype: np.dtype[np.generic]) -> str:
        """The activation of `x`; the name of what it gives."""
        scalar = {key: np.asarray(value, dtype) for key, value in self.parameters.items()}
        if self.operator == "Affine":
            return editor.add(editor.node("Mul", x, editor.constant(scalar["alpha"])), editor.constant(scalar["beta"]))
        if self.operator == "ScaledTanh":
            inner = editor.node("Tanh", editor.node("Mul", x, editor.constant(scalar["beta"])))
            return editor.node("Mul", inner, editor.constant(scalar["alpha"]))
        return editor.node(self.operator, x, **self.parameters)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """What a recurrent node computes. `reverse` has an entry for each direction, `activations` too; `layout` 1 has the
    batch first; `clip` bounds what enters an activation."""

    label: str
    kind: str
    units: int
    reverse: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    layout: int
    clip: float | None
    linear_before_reset: bool
    input_forget: bool


def read_recurrence(node: onnx.NodeProto, units: int) -> Recurrence:
    """What the node says of itself; `units` is its hidden size. Raises ModelRefusedError."""
    label = f"{node.op_type} {node.name or node.output[0] or node.output[-1]!r}"
    given: dict[str, Any] = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    direction = _text(given.get("direction", "forward"))
    reverse = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(direction)
    if reverse is None:
        raise ModelRefusedError(f"{label} has direction {direction!r}: forward, reverse and bidirectional are known")
    activations = _activations(label, given, DEFAULTS[node.op_type] * len(reverse))
    count = len(DEFAULTS[node.op_type])
    return Recurrence(
        label,
        node.op_type,
        units,
        reverse,
        tuple(activations[place : place + count] for place in range(0, len(activations), count)),
        int(given.get("layout", 0)),
        float(given["clip"]) if "clip" in given else None,
        bool(given.get("linear_before_reset", 0)),
        bool(given.get("input_forget", 0)),
    )


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _activations(label: str, given: Mapping[str, Any], defaults: tuple[str, ...]) -> tuple[Activation, ...]:
    names = [_text(name) for name in given.get("activations", ())] or list(defaults)
    if len(names) != len(defaults):
        raise ModelRefusedError(f"{label} has {len(names)} activations, it takes {len(defaults)}")
    values = {key: iter(given.get(f"activation_{key}", ())) for key in ("alpha", "beta")}
    return tuple(_activation(label, name, values) for name in names)


def _activation(label: str, name: str, values: Mapping[str, Iterator[float]]) -> Activation:
    """The activation, with what it takes of the values that are left: each takes its own, in their order."""
    operator = _SPELLING.get(name.lower())
    if operator is None:
        raise ModelRefusedError(f"{label} has activation {name!r}; known are {', '.join(ACTIVATIONS)}")
    parameters = {key: next(values[key], default) for key, default in ACTIVATIONS[operator].items()}
    missing = [key for key, value in parameters.items() if value is None]
    if missing:
        raise ModelRefusedError(f"{label} has activation {name!r} without activation_{missing[0]}: export it with one")
    return Activation(operator, {key: float(value) for key, value in parameters.items() if value is not None})
