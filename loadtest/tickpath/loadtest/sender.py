"""The sender's loop: one thread that looks at the clock, sends what is due, and between that takes in what has come.

Rules
- A request is sent at its intended time or as soon after it as this thread gets there, whatever the answers do.
- A request whose connection is full is skipped and counted: waiting for room would let the server set the pace.
- After every send the sockets are looked at once, even when the next request is late already: otherwise the answers
  that came meanwhile would be charged with the sender's own delay.
- It spins. Only while nothing is in flight and the next request is far does it sleep.
- It reads the clock once in every turn, and writes down each that took long: what came meanwhile lay unread, whoever is
  to blame for that.

One thread and no reader beside it: a reader has to wait until the one that spins gives the interpreter away, 5 ms by
default. Tried against the C floor at 2,000/s on two cores: the round trip's p99 in the quietest of seven runs is 58 µs
polled and 8 ms with a reader thread.
"""

import time
from collections.abc import Callable, Sequence
from select import EPOLLIN, EPOLLOUT, epoll
from typing import Final, Generic, TypeVar

from tickpath.loadtest.link import AnyDialogue, Link
from tickpath.loadtest.rows import GapWriter, RowWriter
from tickpath.loadtest.run import GAP_NS
from tickpath.loadtest.target import AskingDialogue

# A sleep with the timer slack lowered ends some 10 to 60 µs late, on a busy machine later: that much is spun.
SPIN_NS: Final = 500_000
MS: Final = 1_000_000
# epoll sleeps for whole milliseconds.
NAP_NS: Final = SPIN_NS + MS
# Connections looked at in one turn: the rest is there in the next.
EVENTS_MAX: Final = 64

Asking = TypeVar("Asking", bound=AskingDialogue)


class ServerLostError(Exception):
    """A connection ended. The text says why."""


class StoppedError(Exception):
    """Whoever started the sender wants it to end."""


class Sender(Generic[AnyDialogue]):
    """Sends over `links`, which are ready, and writes down what becomes of it. Indices are places of `rows`. It stops
    when there is something to read from the descriptor `stop`, or that has ended.

    Where the dialogues make no requests, there are no loops over them: whoever makes them gives each to `send`."""

    def __init__(
        self,
        links: Sequence[Link[AnyDialogue]],
        rows: RowWriter,
        gaps: GapWriter,
        stop: int,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.unasked = 0
        """Answers to nothing that was in flight: a second one, or one with an id never sent."""
        self.in_flight = 0
        self._links = links
        self._rows = rows
        self._gaps = gaps
        self._stop = stop
        self._clock_ns = clock_ns
        self._answered: Sequence[Link[AnyDialogue]] = ()
        self._by_descriptor = {link.fileno(): link for link in links}
        self._epoll = epoll()
        self._epoll.register(stop, EPOLLIN)
        for link in links:
            self._epoll.register(link.fileno(), EPOLLIN)

    def open_loop(self: "Sender[Asking]", first: int, times_ns: Sequence[int], last_ns: int) -> None:
        """Send request `first + i` at `times_ns[i]`, each on the next connection; none after `last_ns`. Raises
        ServerLostError, StoppedError."""
        links = self._links
        now_ns = self._clock_ns()
        for index, intended_ns in enumerate(times_ns, first):
            now_ns = self.wait(intended_ns, now_ns)
            if now_ns > last_ns:
                return
            link = links[index % len(links)]
            if len(link.waiting) < link.in_flight_max:
                self.send(link, link.dialogue.request(index), index, intended_ns, now_ns)
            else:
                self._rows.skipped(index, intended_ns, link.number)
            now_ns = self.turn(now_ns)

    def closed_loop(self: "Sender[Asking]", first: int, last: int, concurrency: int, end_ns: int) -> None:
        """Send requests `first` to `last`, exclusive, and keep `concurrency` of them in flight, spread over the
        connections: each answer is followed by the next request, until `end_ns`. Raises ServerLostError,
        StoppedError."""
        self._answered = [self._links[place % len(self._links)] for place in range(concurrency)]
        index, now_ns = first, self._clock_ns()
        while now_ns < end_ns:
            for link in self._answered:
                if index == last:
                    return
                sent_ns = self._clock_ns()
                self.send(link, link.dialogue.request(index), index, sent_ns, sent_ns)
                index += 1
            now_ns = self.turn(now_ns)

    def warm(self: "Sender[Asking]", index: int, end_ns: int) -> None:
        """Send one request and wait for its answer, until `end_ns` at the most. Raises ServerLostError,
        StoppedError."""
        now_ns = self._clock_ns()
        link = self._links[index % len(self._links)]
        self.send(link, link.dialogue.request(index), index, now_ns, now_ns)
        self.settle(end_ns)

    @property
    def link_count(self) -> int:
        """How many connections it was given."""
        return len(self._links)

    def settle(self, end_ns: int) -> None:
        """Wait until nothing is in flight, or `end_ns` has come. Raises ServerLostError, StoppedError."""
        now_ns = self._clock_ns()
        while self.in_flight and now_ns < end_ns:
            now_ns = self.turn(now_ns)

    def linger(self, end_ns: int) -> None:
        """Read on until `end_ns`, for answers that nobody asked for; a connection that ends now has said all that was.
        Raises StoppedError."""
        now_ns = self._clock_ns()
        while now_ns < end_ns:
            try:
                now_ns = self.turn(now_ns)
            except ServerLostError:
                now_ns = self._clock_ns()

    def wait(self, intended_ns: int, now_ns: int) -> int:
        """Take in what comes until the clock says `intended_ns`. Returns what it says then. Raises ServerLostError,
        StoppedError."""
        while now_ns < intended_ns:
            if intended_ns - now_ns > NAP_NS and not self.in_flight:
                now_ns = self._nap(intended_ns - now_ns)
            now_ns = self.turn(now_ns)
        return now_ns

    def turn(self, now_ns: int) -> int:
        """Look at the sockets once. `now_ns` is the time when the turn began, which the one before it returned. Raises
        ServerLostError, StoppedError."""
        ready = self._epoll.poll(0, EVENTS_MAX)
        self._answered = self._serve(ready) if ready else ()
        end_ns = self._clock_ns()
        if end_ns - now_ns > GAP_NS:
            self._gaps.add(now_ns, end_ns)
        return end_ns

    def _nap(self, ahead_ns: int) -> int:
        """Sleep until shortly before the next request, or until something comes. Half a millisecond less is asked for:
        it is rounded up to a whole one."""
        self._epoll.poll(((ahead_ns - SPIN_NS) // MS - 0.5) / 1e3, 1)
        return self._clock_ns()

    def send(
        self, link: Link[AnyDialogue], frame: bytes | bytearray, index: int, intended_ns: int, now_ns: int
    ) -> None:
        """Send a request that is answered as `index`."""
        link.waiting.add(index)
        self.in_flight += 1
        self._rows.sent(index, intended_ns, now_ns, link.number)
        self.say(link, frame)

    def say(self, link: Link[AnyDialogue], frame: bytes | bytearray) -> None:
        """Send what nobody answers."""
        if not link.send(frame):
            self._epoll.modify(link.fileno(), EPOLLIN | EPOLLOUT)

    def add(self, link: Link[AnyDialogue]) -> None:
        """One more connection, which the loops above know nothing of."""
        self._by_descriptor[link.fileno()] = link
        self._epoll.register(link.fileno(), EPOLLIN)

    def remove(self, link: Link[AnyDialogue]) -> None:
        """It is closed; nothing is in flight on it."""
        self._epoll.unregister(link.fileno())
        del self._by_descriptor[link.fileno()]
        link.close()

    def _serve(self, ready: Sequence[tuple[int, int]]) -> Sequence[Link[AnyDialogue]]:
        """A link for each answer that came."""
        answered: list[Link[AnyDialogue]] = []
        for descriptor, events in ready:
            if descriptor == self._stop:
                raise StoppedError
            link = self._by_descriptor[descriptor]
            if events & EPOLLOUT and link.flush():
                self._epoll.modify(descriptor, EPOLLIN)
            more = True
            while more:
                byte_count = link.receive()
                done_ns = self._clock_ns()
                if byte_count:
                    answered += [link] * self._take(link, byte_count, done_ns)
                more = link.hides_more
        # After all of them: what the others have to say was measured, and counts.
        lost = [link for descriptor, _ in ready if (link := self._by_descriptor[descriptor]).ended]
        if lost:
            self._lose(lost)
        return answered

    def _take(self, link: Link[AnyDialogue], byte_count: int, done_ns: int) -> int:
        """How many requests the bytes answer."""
        count = 0
        for index, code, stamps in link.answers(byte_count):
            if index in link.waiting:
                link.waiting.remove(index)
                self._rows.done(index, done_ns, code, stamps)
                count += 1
            else:
                self.unasked += 1
        self.in_flight -= count
        return count

    def _lose(self, links: Sequence[Link[AnyDialogue]]) -> None:
        for link in links:
            self._epoll.unregister(link.fileno())
            for index in link.waiting:
                self._rows.lost(index)
            self.in_flight -= len(link.waiting)
            link.waiting.clear()
        raise ServerLostError(links[0].ended)
