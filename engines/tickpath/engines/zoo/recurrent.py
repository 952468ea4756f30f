"""Recurrent layers on a window, [batch, steps, features]. The runtimes want time first, so a transpose stands before
them, as it does in exported models."""

import numpy as np

from tickpath.engines.zoo.dense import dense
from tickpath.engines.zoo.network import Network

GATES = {"LSTM": 4, "GRU": 3}


def time_first(network: Network, x: str) -> str:
    """[batch, steps, features] -> [steps, batch, features]."""
    return network.node("Transpose", x, perm=[1, 0, 2])


def sequence(network: Network, x: str, kind: str, features: int, units: int) -> str:
    """All hidden states of one layer: [steps, batch, features] -> [steps, batch, units]."""
    y = network.node(kind, x, *_weights(network, kind, features, units), **_attributes(kind, units))
    return network.node("Squeeze", y, network.constant(np.array([1], np.int64)))


def last_state(network: Network, x: str, kind: str, features: int, units: int) -> str:
    """The hidden state after the last step: [steps, batch, features] -> [batch, units]."""
    y = network.node(kind, x, *_weights(network, kind, features, units), outputs=2, **_attributes(kind, units))
    return network.node("Squeeze", y, network.constant(np.array([0], np.int64)))


def stacked(network: Network, x: str, *, kind: str, features: int, units: int, layers: int) -> str:
    """`layers` layers and one number from the last state: [batch, steps, features] -> [batch, 1]."""
    x = time_first(network, x)
    for _ in range(layers - 1):
        x = sequence(network, x, kind, features, units)
        features = units
    return dense(network, last_state(network, x, kind, features, units), units, 1)


def _weights(network: Network, kind: str, features: int, units: int) -> tuple[str, str, str]:
    rows = GATES[kind] * units
    return (
        network.uniform((1, rows, features), features),
        network.uniform((1, rows, units), units),
        network.zeros((1, 2 * rows)),
    )


def _attributes(kind: str, units: int) -> dict[str, int]:
    # linear_before_reset is the form of the GRU that PyTorch, Keras and cuDNN compute.
    return {"hidden_size": units, "linear_before_reset": 1} if kind == "GRU" else {"hidden_size": units}
