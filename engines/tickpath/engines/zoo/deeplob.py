"""DeepLOB's shape (Zhang, Zohren and Roberts, 2019, arXiv:1808.03668): convolutions across the book, an inception
module across time, an LSTM. A window is 100 book states of 10 levels x (ask price, ask size, bid price, bid size)."""

import numpy as np

from tickpath.engines.zoo.dense import RELU_GAIN, dense
from tickpath.engines.zoo.network import Network
from tickpath.engines.zoo.recurrent import last_state

CHANNELS = 32
BRANCH_CHANNELS = 64
UNITS = 64
SLOPE = 0.01  # of the leaky relu below zero


def deeplob(network: Network, x: str) -> str:
    """[batch, 100, 40] -> three logits: down, same, up."""
    x = network.node("Unsqueeze", x, network.constant(np.array([1], np.int64)))  # [batch, 1 channel, steps, 40]
    x = _block(network, x, (CHANNELS, 1, 1, 2), stride=2)  # price and size of a level: 40 -> 20
    x = _block(network, x, (CHANNELS, CHANNELS, 1, 2), stride=2)  # the two sides of a level: 20 -> 10
    x = _block(network, x, (CHANNELS, CHANNELS, 1, 10), stride=1)  # the ten levels: 10 -> 1
    x = _inception(network, x)
    x = network.node("Squeeze", x, network.constant(np.array([3], np.int64)))  # [batch, channels, steps]
    x = network.node("Transpose", x, perm=[2, 0, 1])  # [steps, batch, channels]
    return dense(network, last_state(network, x, "LSTM", 3 * BRANCH_CHANNELS, UNITS), UNITS, 3)


def _block(network: Network, x: str, kernel: tuple[int, int, int, int], stride: int) -> str:
    """One convolution across the book and two along time; the number of steps stays."""
    x = _convolution(network, x, kernel, stride)
    x = _convolution(network, x, (CHANNELS, CHANNELS, 4, 1))
    return _convolution(network, x, (CHANNELS, CHANNELS, 4, 1))


def _inception(network: Network, x: str) -> str:
    """Three looks along time, of 3 steps, of 5, and of the largest of 3, side by side."""
    entry = (BRANCH_CHANNELS, CHANNELS, 1, 1)
    short = _convolution(network, _convolution(network, x, entry), (BRANCH_CHANNELS, BRANCH_CHANNELS, 3, 1))
    long = _convolution(network, _convolution(network, x, entry), (BRANCH_CHANNELS, BRANCH_CHANNELS, 5, 1))
    largest = network.node("MaxPool", x, kernel_shape=[3, 1], strides=[1, 1], pads=[1, 0, 1, 0])
    return network.node("Concat", short, long, _convolution(network, largest, entry), axis=1)


def _convolution(network: Network, x: str, kernel: tuple[int, int, int, int], stride: int = 1) -> str:
    """Convolution and leaky relu; `kernel` is (channels out, channels in, steps, across).
    Padded along time, so that the steps stay; strided across the book."""
    channels_out, channels_in, steps, across = kernel
    weights = network.uniform(kernel, channels_in * steps * across, RELU_GAIN)
    bias = network.zeros((channels_out,))
    before = (steps - 1) // 2
    pads = [before, 0, steps - 1 - before, 0]
    x = network.node("Conv", x, weights, bias, kernel_shape=[steps, across], strides=[1, stride], pads=pads)
    return network.node("LeakyRelu", x, alpha=SLOPE)
