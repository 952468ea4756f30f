"""Layers on a flat row: [batch, width]."""

from tickpath.engines.zoo.network import Network

RELU_GAIN = 2.0**0.5  # half of what enters a relu is lost there


def identity(network: Network, x: str) -> str:
    """What comes goes: all that is left to measure is the way there and back."""
    return network.node("Flatten", x, axis=1)


def dense(network: Network, x: str, width_in: int, width_out: int, gain: float = 1.0) -> str:
    """x times weights plus bias: [batch, width_in] -> [batch, width_out]."""
    return network.node("Gemm", x, network.uniform((width_in, width_out), width_in, gain), network.zeros((width_out,)))


def mlp(network: Network, x: str) -> str:
    """64 -> 256 -> 256 -> 3, relu between."""
    for width_in, width_out in ((64, 256), (256, 256)):
        x = network.node("Relu", dense(network, x, width_in, width_out, RELU_GAIN))
    return dense(network, x, 256, 3)
