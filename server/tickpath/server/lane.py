"""A lane runs requests of one model, one after the other: the CPU's form of a stream. One thread owns it, with its
slots."""

import logging
from collections.abc import Callable, Sequence
from statistics import median
from time import monotonic_ns
from typing import Final

import msgspec

from tickpath.engines import DeviceLostError, Engine, EngineFailedError
from tickpath.graphs import Slot, bucket_index_by_rows
from tickpath.server.admission import OUR_FAULT, Refusal
from tickpath.server.recent import RecentAnswers
from tickpath.wire import Code, Infer, Result, encode_frame

log = logging.getLogger(__name__)

# Enough for the runtime's lazy allocations (two runs) and for a median that one interrupted replay does not move.
WARM_REPLAYS_MIN: Final = 8
# And as many more as fit in this time, for branch predictors and caches; ten models must still be ready in two seconds.
WARM_NS_PER_BUCKET: Final = 20_000_000
WARM_REPLAYS_MAX: Final = 300

_LOST: Final = Refusal(Code.NOT_READY, "this server has lost its device and ends: go to another")

DeviceLost = Callable[[DeviceLostError], object]
"""Told by a lane, on its own thread, that no model of this process can answer on that device any more."""

Stamps = tuple[int, int, int, int, int, int]


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A request that has run: the whole reply frame and what the records keep of it."""

    frame: bytes
    bucket_index: int
    bucket: int
    stamps: Stamps


class Lane:
    """The slots of one model, one per bucket, and the way through them. Raises EngineFailedError, DeviceLostError."""

    def __init__(self, engine: Engine, version: str, buckets: tuple[int, ...], refuse_bad_values: bool) -> None:
        # The largest first: what it needs from the runtime's arena then serves the smaller ones too.
        slots = [Slot(engine, bucket) for bucket in reversed(buckets)]
        self.slots = slots[::-1]
        self._version = version
        self._bucket_index = bucket_index_by_rows(buckets)
        self._refuse_bad_values = refuse_bad_values
        self.device_lost: DeviceLost = _untold
        """Who is told that the device is gone, once the lane serves."""
        spec = engine.spec
        self.recent = RecentAnswers(sum(tensor.bytes_at(buckets[-1]) for tensor in (*spec.inputs, *spec.outputs)))
        self.compute_ns = [0] * len(buckets)
        """What a replay of each bucket takes: the median while warming up."""

    def warm(self, samples: Sequence[Sequence[bytes]]) -> None:
        """Replay every bucket until it costs what it will cost, on inputs of its own (`samples`, by bucket).
        Raises EngineFailedError, DeviceLostError."""
        self.compute_ns = [_warm(slot, inputs) for slot, inputs in zip(self.slots, samples, strict=True)]

    def run(self, infer: Infer, first_byte_ns: int, received_ns: int) -> Answer | Refusal:
        """Schedule, copy in, replay, copy out: the way of every request. Never raises, since a lane must go on: a
        failure of the engine, and a fault of ours, is this request's refusal."""
        started_ns = monotonic_ns()
        try:
            bucket_index = self._bucket_index[infer.rows]
            if infer.budget_ns and started_ns + self.compute_ns[bucket_index] > received_ns + infer.budget_ns:
                return _too_late(infer.budget_ns, started_ns - received_ns, self.compute_ns[bucket_index])
            slot = self.slots[bucket_index]
            slot.fill(infer.rows, infer.inputs)
            if self._refuse_bad_values and (name := slot.bad_value()) is not None:
                return _bad_value(name)
            filled_ns = monotonic_ns()
            slot.replay()
            computed_ns = monotonic_ns()
            outputs = slot.read(infer.rows)
            stamps = (first_byte_ns, received_ns, started_ns, filled_ns, computed_ns, monotonic_ns())
            frame = encode_frame(Result(infer.id, self._version, outputs, stamps))
            if started_ns >= self.recent.next_ns:
                self.recent.keep(infer, frame, started_ns)
        except EngineFailedError as error:
            return Refusal(Code.ENGINE_FAILED, f"the model's runtime failed: {error}")
        except DeviceLostError as error:
            self.device_lost(error)
            return _LOST
        except Exception:
            log.exception("a fault of the server refused a request")
            return Refusal(Code.INTERNAL, OUR_FAULT)
        return Answer(frame, bucket_index, slot.bucket, stamps)

    @property
    def unsettled(self) -> bool:
        """Whether there is work that was put off until after the replies."""
        return False

    def settle(self) -> None:
        """Do that work. On the lane's thread; never raises."""

    def close(self) -> None:
        """Give back buffers and graphs. Nothing may run any more."""
        self.slots.clear()
        self.recent.clear()


def _untold(_error: DeviceLostError) -> None:
    """Whoever runs a lane that does not serve has the refusal to go by."""


def _warm(slot: Slot, inputs: Sequence[bytes]) -> int:
    slot.fill(slot.bucket, inputs)
    times_ns: list[int] = []
    end_ns = monotonic_ns() + WARM_NS_PER_BUCKET
    while len(times_ns) < WARM_REPLAYS_MIN or (monotonic_ns() < end_ns and len(times_ns) < WARM_REPLAYS_MAX):
        start_ns = monotonic_ns()
        slot.replay()
        times_ns.append(monotonic_ns() - start_ns)
    return int(median(times_ns[WARM_REPLAYS_MIN // 2 :]))


def _too_late(budget_ns: int, waited_ns: int, compute_ns: int) -> Refusal:
    return Refusal(
        Code.DEADLINE,
        f"the budget of {budget_ns} ns can't be kept: the request has waited {waited_ns} ns and the model takes "
        f"{compute_ns}, so it was not run",
    )


def _bad_value(name: str) -> Refusal:
    return Refusal(
        Code.BAD_VALUE,
        f"input {name!r} holds a NaN or an infinity (or a bool other than 0 and 1), which this server refuses "
        'since models hide it: send finite values, or serve the model with --non-finite pass (non_finite = "pass")',
    )
