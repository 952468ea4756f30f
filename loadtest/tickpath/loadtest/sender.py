"""The sender's loop: one thread that looks at the clock, sends what is due, and between that takes in what has come.

Rules
- A request is sent at its intended time or as soon after it as this thread gets there, whatever the answers do.
- A request whose connection is full is skipped and counted: waiting for room would let the server set the pace.
- After every send the sockets are looked at once, even when the next request is late already: otherwise the answers
  that came meanwhile would be charged with the sender's own delay.
- It spins. Only while nothing is in flight and the next request is far does it sleep.

One thread and no reader beside it: a reader has to wait until the one that spins gives the interpreter away, 5 ms by
default. Tried against the C floor at 2,000/s on two cores: the round trip's p99 in the quietest of seven runs is 58 µs
polled and 8 ms with a reader thread.
"""

import time
from collections.abc import Callable, Sequence
from select import EPOLLIN, EPOLLOUT, epoll
from typing import Final

from tickpath.loadtest.link import Link
from tickpath.loadtest.rows import RowWriter

# A sleep with the timer slack lowered ends some 10 to 60 µs late, on a busy machine later: that much is spun.
SPIN_NS: Final = 500_000
# Sleeping for less is not worth the way into it and out.
NAP_NS: Final = 2 * SPIN_NS
# Connections looked at in one turn: the rest is there in the next.
EVENTS_MAX: Final = 64


class ServerLostError(Exception):
    """A connection ended. The text says why."""


class Sender:
    """Sends over `links`, which are ready, and writes down what becomes of it. Indices are places of `rows`."""

    def __init__(
        self,
        links: Sequence[Link],
        rows: RowWriter,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.unasked = 0
        """Answers to nothing that was in flight: a second one, or one with an id never sent."""
        self.in_flight = 0
        self._links = links
        self._rows = rows
        self._clock_ns = clock_ns
        self._sleep = sleep
        self._by_descriptor = {link.fileno(): link for link in links}
        self._epoll = epoll()
        for link in links:
            self._epoll.register(link.fileno(), EPOLLIN)

    def open_loop(self, first: int, times_ns: Sequence[int], last_ns: int) -> None:
        """Send request `first + i` at `times_ns[i]`, each on the next connection; none after `last_ns`. Raises
        ServerLostError."""
        clock_ns, links = self._clock_ns, self._links
        for index, intended_ns in enumerate(times_ns, first):
            now_ns = clock_ns()
            while now_ns < intended_ns:
                self.turn(intended_ns - now_ns)
                now_ns = clock_ns()
            if now_ns > last_ns:
                return
            link = links[index % len(links)]
            if len(link.waiting) < link.in_flight_max:
                self._send(link, index, intended_ns, now_ns)
            else:
                self._rows.skipped(index, intended_ns, link.number)
            self.turn(0)

    def closed_loop(self, first: int, last: int, concurrency: int, end_ns: int) -> None:
        """Send requests `first` to `last`, exclusive, and keep `concurrency` of them in flight, spread over the
        connections: each answer is followed by the next request, until `end_ns`. Raises ServerLostError."""
        free: Sequence[Link] = [self._links[place % len(self._links)] for place in range(concurrency)]
        index = first
        while (now_ns := self._clock_ns()) < end_ns:
            for link in free:
                if index == last:
                    return
                now_ns = self._clock_ns()
                self._send(link, index, now_ns, now_ns)
                index += 1
            free = self.turn(0)

    def warm(self, index: int, end_ns: int) -> None:
        """Send one request and wait for its answer, until `end_ns` at the most. Raises ServerLostError."""
        now_ns = self._clock_ns()
        self._send(self._links[index % len(self._links)], index, now_ns, now_ns)
        self.settle(end_ns)

    @property
    def link_count(self) -> int:
        """How many connections it was given."""
        return len(self._links)

    def settle(self, end_ns: int) -> None:
        """Wait until nothing is in flight, or `end_ns` has come. Raises ServerLostError."""
        while self.in_flight and self._clock_ns() < end_ns:
            self.turn(0)

    def turn(self, ahead_ns: int) -> Sequence[Link]:
        """Look at the sockets once; the next request is due in `ahead_ns`. Returns a link for each answer that came.
        Raises ServerLostError."""
        ready = self._epoll.poll(0, EVENTS_MAX)
        if ready:
            return self._serve(ready)
        if ahead_ns > NAP_NS and not self.in_flight:
            self._sleep((ahead_ns - SPIN_NS) / 1e9)
        return ()

    def _send(self, link: Link, index: int, intended_ns: int, now_ns: int) -> None:
        link.waiting.add(index)
        self.in_flight += 1
        self._rows.sent(index, intended_ns, now_ns, link.number)
        if not link.send(link.request(index)):
            self._epoll.modify(link.fileno(), EPOLLIN | EPOLLOUT)

    def _serve(self, ready: Sequence[tuple[int, int]]) -> Sequence[Link]:
        answered: list[Link] = []
        for descriptor, events in ready:
            link = self._by_descriptor[descriptor]
            if events & EPOLLOUT and link.flush():
                self._epoll.modify(descriptor, EPOLLIN)
            byte_count = link.receive()
            done_ns = self._clock_ns()
            if byte_count:
                answered += [link] * self._take(link, byte_count, done_ns)
        # After all of them: what the others have to say was measured, and counts.
        lost = [link for descriptor, _ in ready if (link := self._by_descriptor[descriptor]).ended]
        if lost:
            self._lose(lost)
        return answered

    def _take(self, link: Link, byte_count: int, done_ns: int) -> int:
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

    def _lose(self, links: Sequence[Link]) -> None:
        for link in links:
            self._epoll.unregister(link.fileno())
            for index in link.waiting:
                self._rows.lost(index)
            self.in_flight -= len(link.waiting)
            link.waiting.clear()
        raise ServerLostError(links[0].ended)
