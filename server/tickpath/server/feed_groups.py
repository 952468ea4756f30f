"""Which feeds step together after their replies, and the slots in which they do.

A feed puts off `window - 1` rows. Those of k feeds lie behind one another in one slot of k times as many rows, and the
bits must be those that each would have had alone: so a slot is used only once seeded rows have shown it, and only where
the model takes less for it than for the feeds one by one.
"""

import logging
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Final

import numpy as np

from tickpath.engines import Array, Engine
from tickpath.graphs import Slot
from tickpath.server.executor import INLINE_COMPUTE_NS_MAX
from tickpath.server.feed_spec import FeedSpec

log = logging.getLogger(__name__)

# A tick that comes meanwhile waits for all that step together: not for longer than any request may for a model that
# runs inline, and not for a saving of less than a tenth.
GROUP_NS_MAX: Final = INLINE_COMPUTE_NS_MAX
SHARE_MAX: Final = 0.9
# The least of so many is what a run takes, whatever else the machine does.
TIMED_RUNS: Final = 8
# Other weights of states and rows each time: kernels that add up in another order show it in the first.
SEEDS: Final = 4

PaysNot = Callable[[Slot, Slot], str]
"""Why the second slot is not worth having beside the first, which holds one feed; empty if it is."""


def group_sizes(together: int) -> tuple[int, ...]:
    """How many feeds there are slots for: doubled up to `together`, which is the last. One needs none of its own."""
    doubled = [2**power for power in range(1, together.bit_length()) if 2**power < together]
    return (*doubled, together) if together > 1 else ()


def group_size(waiting: int, sizes: Sequence[int]) -> int:
    """Of so many feeds that have put work off, how many step next: no more than there are, since a slot that is not
    full costs as much as a full one."""
    return max((size for size in sizes if size <= waiting), default=1)


def capture_groups(engine: Engine, feed: FeedSpec, alone: Slot, pays_not: PaysNot | None = None) -> dict[int, Slot]:
    """The slots in which feeds step together, by how many; those are left out, and the log says why, that give other
    bits than `alone` or do not pay. Raises EngineFailedError, DeviceLostError, ModelRefusedError."""
    groups: dict[int, Slot] = {}
    for size in group_sizes(feed.together):
        slot = Slot(engine, size * alone.bucket)
        why = _other_bits(engine, alone, slot) or (pays_not or _pays_not)(alone, slot)
        if why:
            log.warning("%d feeds don't step together: %s", size, why)
        else:
            groups[size] = slot
    return groups


def _other_bits(engine: Engine, alone: Slot, slot: Slot) -> str:
    if all(_same_bits(engine, alone, slot, seed) for seed in range(SEEDS)):
        return ""
    return f"{slot.bucket} rows at once give other bits than {alone.bucket}"


def _pays_not(alone: Slot, slot: Slot) -> str:
    return why_not(slot.bucket // alone.bucket, *_least_ns(alone, slot))


def why_not(size: int, one_ns: int, all_ns: int) -> str:
    """Why so many feeds are better stepped one by one, each in `one_ns`, than together in `all_ns`; empty if not."""
    if all_ns > GROUP_NS_MAX:
        return f"a tick that comes meanwhile would wait {all_ns / 1e3:.0f} us, {GROUP_NS_MAX / 1e3:.0f} is the most"
    share = all_ns / (size * one_ns)
    return f"it takes {share:.2f} of what they take one by one, {SHARE_MAX} is the most" if share > SHARE_MAX else ""


def _least_ns(*slots: Slot) -> list[int]:
    """What a run of each takes, ns, measured in turns."""
    least = [2**63] * len(slots)
    for _ in range(TIMED_RUNS):
        for place, slot in enumerate(slots):
            start_ns = monotonic_ns()
            slot.replay()
            least[place] = min(least[place], monotonic_ns() - start_ns)
    return least


def _same_bits(engine: Engine, alone: Slot, slot: Slot, seed: int) -> bool:
    """Whether seeded rows are answered in `slot` as in `alone`, one piece after the other."""
    pieces = _pieces(engine, alone.bucket, slot.bucket // alone.bucket, seed)
    slot.fill_together([(alone.bucket, piece) for piece in pieces])
    slot.replay()
    for place, piece in enumerate(pieces):
        alone.fill_together([(alone.bucket, piece)])
        alone.replay()
        if alone.read(alone.bucket) != slot.read_from(place * alone.bucket, alone.bucket):
            return False
    return True


def _pieces(engine: Engine, rows: int, count: int, seed: int) -> list[list[memoryview | None]]:
    """Inputs of so many feeds: numbers where floats are asked for, else what the engine runs on."""
    random = np.random.default_rng(seed)
    sample = engine.sample(rows)

    def values(array: Array) -> memoryview:
        if array.dtype.kind == "f":
            array = random.standard_normal(array.shape).astype(array.dtype)
        return np.ascontiguousarray(array).view(np.uint8).reshape(-1).data

    return [
        [None if spec.optional else values(array) for spec, array in zip(engine.spec.inputs, sample, strict=True)]
        for _ in range(count)
    ]
