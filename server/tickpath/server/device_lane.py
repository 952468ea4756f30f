"""A lane on a device: several slots for each bucket, each launched and looked at, never waited for.

Rules
- The loop's thread owns it. All slots share the engine's stream, so what was launched first is done first.
- A slot in flight belongs to the device until `land` has something to say of it.
- Who waits, and what is launched next, is the executor's (polled_executor.py).
"""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from time import monotonic_ns
from typing import cast

from tickpath.engines import DeviceLostError, Engine, EngineFailedError
from tickpath.graphs import DeviceGraph, Slot
from tickpath.server.admission import OUR_FAULT, Refusal
from tickpath.server.config import ModelConfig
from tickpath.server.lane import (
    DEVICE_LOST,
    Answer,
    AnswerRefusedError,
    InputRefusedError,
    Lane,
    too_late_by,
)
from tickpath.server.scheduling import Queued
from tickpath.wire import Code, Result, encode_frame

log = logging.getLogger(__name__)


class Flight:
    """A request on the device, with all that its answer needs."""

    __slots__ = ("bucket_index", "filled_ns", "flags", "graph", "request", "slot", "started_ns")

    def __init__(self, request: Queued, bucket_index: int, slot: Slot, started_ns: int, flags: int) -> None:
        self.request = request
        self.bucket_index = bucket_index
        self.slot = slot
        self.graph = cast(DeviceGraph, slot.graph)
        self.started_ns = self.filled_ns = started_ns
        self.flags = flags


class DeviceLane(Lane):
    """`config.device_slots` slots for each bucket, so that as many requests can be in flight. `slots` has one of each
    bucket, as every lane's."""

    def __init__(self, engine: Engine, config: ModelConfig, buckets: tuple[int, ...]) -> None:
        super().__init__(engine, config, buckets)
        self.flights_max = config.device_slots
        self._free = [[slot] for slot in self.slots]
        self._further: list[Slot] = []
        with ExitStack() as unless_made:
            unless_made.callback(self.close)
            for _ in range(1, config.device_slots):
                captured = self._capture(engine, buckets)
                self._further += captured
                for slots, slot in zip(self._free, captured, strict=True):
                    slots.append(slot)
            unless_made.pop_all()

    def warm(self, samples: Sequence[Sequence[bytes]]) -> None:
        """As a Lane's, and every other slot of each bucket has run."""
        super().warm(samples)
        for slots, inputs in zip(self._free, samples, strict=True):
            for slot in slots[1:]:
                slot.fill(slot.bucket, inputs)
                slot.replay()

    def begin(self, request: Queued) -> Flight | Answer | Refusal:
        """Copy in and launch; or what came of it at once. No more than `flights_max` may be in flight. Never raises, as
        `run`."""
        started_ns, infer = monotonic_ns(), request.infer
        bucket_index = self._bucket_index[infer.rows]
        if infer.budget_ns and (
            late := too_late_by(infer.budget_ns, started_ns - request.received_ns, self.times[bucket_index])
        ):
            return late
        slot = self._free[bucket_index].pop()
        flight = Flight(request, bucket_index, slot, started_ns, self._mark)
        try:
            slot.fill(infer.rows, infer.inputs)
            if self._looks_at_inputs and (name := slot.bad_value()) is not None:
                flight.flags |= self._judge_input(name)
            flight.filled_ns = monotonic_ns()
            flight.graph.launch()
        except Exception as error:
            return self._given_back(flight, self._not_answered(flight, error))
        return flight

    def land(self, flight: Flight) -> Answer | Refusal | None:
        """What came of it, and its slot is free again; None: it is still in flight. Never raises."""
        try:
            if not flight.graph.done():
                return None
            outcome = self._answer(flight, monotonic_ns())
        except Exception as error:
            outcome = self._not_answered(flight, error)
        return self._given_back(flight, outcome)

    def close(self) -> None:
        """As a Lane's, of all slots; one that is still in flight is waited for."""
        with ExitStack() as stack:
            stack.callback(super().close)
            for slot in self._further:
                stack.callback(slot.close)
            self._further.clear()
            self._free.clear()

    def _answer(self, flight: Flight, computed_ns: int) -> Answer | Refusal:
        slot, infer = flight.slot, flight.request.infer
        if self._looks_at_outputs and slot.has_bad_output(infer.rows):
            flight.flags |= self._judge_outputs(slot, infer.rows)
        outputs = slot.read(infer.rows)
        stamps = (*self._stamps_until_launch(flight), computed_ns, monotonic_ns())
        frame = encode_frame(Result(infer.id, self._version, outputs, stamps, flight.flags))
        if flight.started_ns >= self.recent.next_ns:
            self.recent.keep(infer, frame, flight.started_ns)
        return Answer(frame, flight.bucket_index, slot.bucket, stamps, flight.flags)

    def _not_answered(self, flight: Flight, error: Exception) -> Answer | Refusal:
        """As `run` has it."""
        if isinstance(error, InputRefusedError):
            return error.refusal
        if isinstance(error, DeviceLostError):
            self.device_lost(error)
            return DEVICE_LOST
        if isinstance(error, EngineFailedError | AnswerRefusedError):
            now_ns = monotonic_ns()
            stamps = (*self._stamps_until_launch(flight), now_ns, now_ns)
            return self._failed(flight.request.infer, error, flight.bucket_index, flight.flags, stamps)
        log.error("a fault of the server refused a request", exc_info=error)
        return Refusal(Code.INTERNAL, OUR_FAULT)

    def _given_back(self, flight: Flight, outcome: Answer | Refusal) -> Answer | Refusal:
        self._free[flight.bucket_index].append(flight.slot)
        return outcome

    @staticmethod
    def _stamps_until_launch(flight: Flight) -> tuple[int, int, int, int]:
        request = flight.request
        return request.first_byte_ns, request.received_ns, flight.started_ns, flight.filled_ns
