"""Reference models, made with the onnx package alone: the same bytes on every machine and with every release.

They have the shapes of the models people run on market data and weights that were never trained, so what they cost
means something and what they answer does not.
"""

import onnx

from tickpath.engines.zoo.catalogue import CATALOGUE
from tickpath.engines.zoo.network import Network

__all__ = ["build", "describe", "names"]


def names() -> tuple[str, ...]:
    """The models there are, small ones first."""
    return tuple(CATALOGUE)


def describe(name: str) -> str:
    """One line for people. Raises KeyError for a name that is not in `names()`."""
    return CATALOGUE[name].text


def build(name: str) -> onnx.ModelProto:
    """The model: one input `x` and one output `y`, float32, batch axis 0 named "batch".
    Raises KeyError for a name that is not in `names()`."""
    entry = CATALOGUE[name]
    network = Network(name, entry.input_shape)
    output = entry.layers(network, network.input)
    return network.model(output, entry.output_shape)
