"""An executor for a model on a device: the loop's thread launches, and looks between two of its turns whether what it
launched is done. No hand-off, no thread that waits, and the loop is deaf only while it copies.

While anything is in flight the loop goes round without sleeping, as `Polling` has it; with nothing in flight it costs
nothing. As many requests are in flight as there are slots, in the order in which they were launched.
"""

import asyncio
from collections import deque
from time import monotonic_ns
from typing import Final, Literal, cast

from tickpath.server.admission import Refusal
from tickpath.server.device_lane import DeviceLane, Flight
from tickpath.server.dispatch import Turn
from tickpath.server.executor import Outcome, QueueingExecutor, Requester
from tickpath.server.lane import Answer
from tickpath.wire import Infer


class PolledExecutor(QueueingExecutor):
    """Runs a DeviceLane. The loop's thread calls everything here."""

    kind: Final[Literal["polled"]] = "polled"

    def __init__(self, lane: DeviceLane, loop: asyncio.AbstractEventLoop, name: str, queue_max: int) -> None:
        super().__init__(lane, loop, name, queue_max, _nobody_rings, turns_max=lane.flights_max)
        self._flights: deque[tuple[Turn, Flight | Outcome]] = deque()
        self._begin = lane.begin
        self._land = lane.land
        self._call_soon = loop.call_soon
        self._polls = False
        self._landed_ns = 0  # when the device was done with what it ran last

    def submit(self, requester: Requester, infer: Infer, first_byte_ns: int, received_ns: int) -> Refusal | None:
        refusal = super().submit(requester, infer, first_byte_ns, received_ns)
        self._launch()
        return refusal

    def join(self) -> None:
        """Nothing to wait for: what is still in flight is the stream's, which the engine waits for as it closes."""

    def _launch(self) -> None:
        """Begin what lies ready: the dispatcher hands over as many as there are slots. Whatever comes of it comes by
        `_poll`, since whoever submits does not expect to be finished within."""
        while self._deck:
            turn = self._deck.popleft()
            (request,) = turn
            self._flights.append((turn, self._begin(request)))
        if self._flights and not self._polls:
            self._polls = True
            self._call_soon(self._poll)

    def _poll(self) -> None:
        """Finish what is done. A callback that schedules itself makes the loop look at its sockets, and come back."""
        flights = self._flights
        try:
            while flights:
                turn, flight = flights[0]
                outcome = self._land(flight) if type(flight) is Flight else cast(Outcome, flight)
                if outcome is None:
                    return
                flights.popleft()
                self._finish(turn, outcome)
        finally:  # whatever becomes of one session, the others' answers are looked for
            if flights:
                self._call_soon(self._poll)
            else:
                self._polls = False

    def _finish(self, turn: Turn, outcome: Outcome) -> None:
        (request,) = turn
        try:
            request.requester.finish(request.infer, outcome, request.queued)
        finally:
            now_ns = monotonic_ns()
            if type(outcome) is Answer:
                self._note_flight(outcome, now_ns)
            self._dispatcher.done(turn, now_ns)
            self._launch()

    def _note_flight(self, answer: Answer, sent_ns: int) -> None:
        """What it took by itself: it may have waited on the stream for the one before it."""
        _, _, started_ns, _, computed_ns, read_ns = answer.stamps
        began_ns = max(started_ns, self._landed_ns)
        self._landed_ns = computed_ns
        self._lane.times[answer.bucket_index].note(read_ns - began_ns, sent_ns - began_ns)


def _nobody_rings(_until_ns: int) -> None:
    """What the dispatcher hands over is looked for whenever it has been called."""
