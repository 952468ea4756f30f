"""What both clients know of an open feed: how its rows become bytes, and which tick is next. Pure."""

from collections.abc import Sequence

import numpy as np

from tickpath.client.codec import Codec, Inputs, Layout
from tickpath.client.errors import FeedGapError
from tickpath.wire import FeedOpened, ModelInfo


class FeedCodec(Codec):
    """A feed as FeedOpened describes it, on one connection."""

    def __init__(self, opened: FeedOpened, model: str, handle: int) -> None:
        super().__init__(ModelInfo(model, opened.version, handle, opened.inputs, opened.outputs, (1,)))
        self.opened = opened

    def pack_tick(self, inputs: Inputs) -> tuple[list[memoryview | None], Layout]:
        """As `pack`; axes of length one may be left out or added: (40,) stands for (1, 1, 40)."""
        values = self._in_order(inputs)
        arrays = [
            None if value is None else _as_row(tensor.as_array(value), tensor.shape)
            for value, tensor in zip(values, self._inputs, strict=True)
        ]
        layout = self._layout(tuple([None if array is None else array.shape for array in arrays]), 1)
        tensors = zip(arrays, self._inputs, strict=True)
        return [None if array is None else tensor.as_bytes(array) for array, tensor in tensors], layout


class Progress:
    """Where a feed's client is. `next_sequence` counts the rows that were given to `tick`, whatever became of them."""

    def __init__(self, model: str, key: str) -> None:
        self.model = model
        self.key = key
        self.next_sequence = 0  # 0: not opened yet
        self._kept: bytes | None = None
        self._kept_sequence = 0

    def number(self, sequence: int | None) -> int:
        """The number of the next tick: the next one, or as the caller says."""
        number = self.next_sequence if sequence is None else sequence
        self.next_sequence = number + 1
        return number

    def keep(self, snapshot: bytes | None, next_sequence: int) -> None:
        """A snapshot was taken or restored, after which this tick comes; None: what was kept is of no use any more."""
        self._kept, self._kept_sequence = snapshot, next_sequence

    def lacked(self, opened: FeedOpened) -> bytes | None:
        """The snapshot to restore, where the server has not got as far as that: it was restarted, or is another one."""
        return self._kept if opened.next_sequence < self._kept_sequence <= self.next_sequence else None

    def opened(self, opened: FeedOpened, resumed: bool) -> None:
        """The feed is open. `resumed`: it must go on where this client is. Raises FeedGapError where it does not."""
        mine, self.next_sequence = self.next_sequence, opened.next_sequence
        if resumed and mine != opened.next_sequence:
            error = FeedGapError(
                f"feed {self.key!r} of model {self.model!r} was opened again and takes tick {opened.next_sequence} "
                f"next, this client is at {mine}: send what it lacks, reset it, or restore a snapshot"
            )
            error.next_sequence = opened.next_sequence
            raise error


def _as_row(array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]", shape: Sequence[int]) -> "np.ndarray":
    longer = [size for size in shape if size != 1]
    if array.shape != tuple(shape) and [size for size in array.shape if size != 1] == longer:
        return array.reshape(shape)
    return array
