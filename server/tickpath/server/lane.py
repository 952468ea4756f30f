"""A lane runs requests of one model, one after the other: the CPU's form of a stream. One thread owns it, with its
slots."""

import logging
from collections.abc import Sequence
from time import monotonic_ns

import msgspec

from tickpath.engines import Engine, EngineFailedError
from tickpath.graphs import Slot, bucket_index_by_rows
from tickpath.server.admission import OUR_FAULT, Refusal
from tickpath.wire import Code, FrameEncoder, Infer, Result

log = logging.getLogger(__name__)

Stamps = tuple[int, int, int, int, int, int]


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A request that has run: the whole reply frame and what the records keep of it."""

    frame: bytes
    bucket_index: int
    bucket: int
    stamps: Stamps


class Lane:
    """The slots of one model, one per bucket, and the way through them."""

    def __init__(self, engine: Engine, version: str, buckets: tuple[int, ...], refuse_bad_values: bool) -> None:
        # The largest first: what it needs from the runtime's arena then serves the smaller ones too.
        slots = [Slot(engine, bucket) for bucket in reversed(buckets)]
        self.slots = slots[::-1]
        self._version = version
        self._bucket_index = bucket_index_by_rows(buckets)
        self._refuse_bad_values = refuse_bad_values
        self._encoder = FrameEncoder()

    def run(
        self, infer: Infer, inputs: Sequence[memoryview | bytes | None], first_byte_ns: int, received_ns: int
    ) -> Answer | Refusal:
        """Schedule, copy in, replay, copy out: the way of every request. `inputs` stand for `infer.inputs`, whose
        bytes may be gone. Never raises, since a lane must go on: a failure of the engine, and a fault of ours, is this
        request's refusal."""
        started_ns = monotonic_ns()
        if infer.budget_ns and started_ns - received_ns >= infer.budget_ns:
            return _too_late(infer.budget_ns, started_ns - received_ns)
        try:
            bucket_index = self._bucket_index[infer.rows]
            slot = self.slots[bucket_index]
            slot.fill(infer.rows, inputs)
            if self._refuse_bad_values and (name := slot.bad_value()) is not None:
                return _bad_value(name)
            filled_ns = monotonic_ns()
            slot.replay()
            computed_ns = monotonic_ns()
            outputs = slot.read(infer.rows)
            stamps = (first_byte_ns, received_ns, started_ns, filled_ns, computed_ns, monotonic_ns())
            frame = self._encoder.frame(Result(infer.id, self._version, outputs, stamps))
        except EngineFailedError as error:
            return Refusal(Code.ENGINE_FAILED, f"the model's runtime failed: {error}")
        except Exception:
            log.exception("a fault of the server refused a request")
            return Refusal(Code.INTERNAL, OUR_FAULT)
        return Answer(frame, bucket_index, slot.bucket, stamps)


def _too_late(budget_ns: int, waited_ns: int) -> Refusal:
    return Refusal(
        Code.DEADLINE,
        f"the budget of {budget_ns} ns was over before the model could start: the request had waited {waited_ns} ns",
    )


def _bad_value(name: str) -> Refusal:
    return Refusal(
        Code.BAD_VALUE,
        f"input {name!r} holds a NaN or an infinity (or a bool other than 0 and 1), which this server refuses "
        'since models hide it: send finite values, or serve the model with non_finite = "pass"',
    )
