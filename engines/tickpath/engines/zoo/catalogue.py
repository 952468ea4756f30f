"""Which models there are. The three LSTM sizes are those of STAC-ML Markets (Inference)."""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from tickpath.engines.zoo.deeplob import deeplob
from tickpath.engines.zoo.dense import identity, mlp
from tickpath.engines.zoo.network import Network
from tickpath.engines.zoo.recurrent import stacked


class Entry(NamedTuple):
    """One model: shapes are those of one row."""

    text: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    layers: Callable[[Network, str], str]


def _stack(kind: str, steps: int, features: int, layers: int, units: int) -> Entry:
    text = f"{layers} {kind} layers of {units} units on {steps} steps of {features} features, 1 output"
    made = partial(stacked, kind=kind, features=features, units=units, layers=layers)
    return Entry(text, (steps, features), (1,), made)


CATALOGUE: Final = {
    "null": Entry("64 floats in, the same 64 out: the floor", (64,), (64,), identity),
    "mlp": Entry("multi-layer perceptron 64-256-256-3, relu", (64,), (3,), mlp),
    "gru": _stack("GRU", steps=100, features=40, layers=2, units=64),
    "deeplob": Entry(
        "DeepLOB's shape: CNN, inception and LSTM on 100 book states of 40 values, 3 logits", (100, 40), (3,), deeplob
    ),
    "lstm_a": _stack("LSTM", steps=50, features=100, layers=2, units=100),
    "lstm_b": _stack("LSTM", steps=100, features=250, layers=3, units=200),
    "lstm_c": _stack("LSTM", steps=100, features=500, layers=4, units=1000),
}
