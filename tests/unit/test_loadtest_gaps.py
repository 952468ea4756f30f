"""Turns in which the sender was held up: recorded by its own clock, and what of each request they may have taken."""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from tests.simulated import START_NS, on_time, run_of

from tickpath.loadtest.echo import EchoDialogue
from tickpath.loadtest.link import Link
from tickpath.loadtest.rows import GapWriter, RowWriter, collect_gaps
from tickpath.loadtest.run import GAP, GAP_NS, OK, ROW, SKIPPED, UNSENT, Run
from tickpath.loadtest.schedule import Constant
from tickpath.loadtest.sender import Sender, StoppedError
from tickpath.loadtest.validity import invalid

US = 1000
FRAME = (6).to_bytes(4, "little") + bytes(6)


class Clock:
    """Every reading is a microsecond after the one before, those in `jumps` by so much more."""

    def __init__(self, jumps: dict[int, int]) -> None:
        self.now_ns = 0
        self._jumps = jumps
        self._readings = 0

    def __call__(self) -> int:
        self._readings += 1
        self.now_ns += US + self._jumps.get(self._readings, 0)
        return self.now_ns


@contextmanager
def sender_of(
    clock: Clock, rows: npt.NDArray[np.void], gaps: npt.NDArray[np.void]
) -> Iterator[tuple[Sender[EchoDialogue], socket.socket, int]]:
    """A sender with one connection, the other end of it, and what stops the sender when it is closed."""
    ours, theirs = socket.socketpair()
    stop, stopper = os.pipe()
    try:
        link = Link(0, ours, EchoDialogue(FRAME), 4)
        yield Sender([link], RowWriter(rows), GapWriter(gaps), stop, clock), theirs, stopper
    finally:
        ours.close()
        theirs.close()
        os.close(stop)


def test_a_turn_that_took_long_is_a_gap_and_no_other() -> None:
    rows, gaps = np.zeros(2, ROW), np.zeros(4, GAP)
    clock = Clock({20: GAP_NS - US, 30: GAP_NS, 50: 7 * GAP_NS})
    with sender_of(clock, rows, gaps) as (sender, _, stopper):
        sender.open_loop(0, [1000 * US, 1001 * US], 10**9)
        os.close(stopper)
    spans_ns = (gaps["end_ns"] - gaps["start_ns"]).tolist()
    assert spans_ns == [GAP_NS + US, 7 * GAP_NS + US, 0, 0]
    assert gaps["start_ns"][0] == 29 * US + GAP_NS - US


def test_it_stops_when_it_is_told() -> None:
    rows = np.zeros(2, ROW)
    with sender_of(Clock({}), rows, np.zeros(4, GAP)) as (sender, theirs, stopper):
        sender.open_loop(0, [10 * US], 10**9)
        os.close(stopper)
        theirs.send(FRAME)
        with pytest.raises(StoppedError):
            sender.settle(10**12)
    assert rows["sent_ns"][0] > 0


def test_a_nap_is_no_gap_and_ends_when_the_sender_is_told_to_stop() -> None:
    """The clock stands nearly still, so it would nap for an hour."""
    gaps = np.zeros(4, GAP)
    with sender_of(Clock({}), np.zeros(2, ROW), gaps) as (sender, _, stopper):
        os.close(stopper)
        with pytest.raises(StoppedError):
            sender.open_loop(0, [3_600 * 10**9], 10**15)
    assert not gaps["end_ns"].any()


def test_more_gaps_than_fit_make_the_last_one_longer() -> None:
    gaps = np.zeros(3, GAP)
    writer = GapWriter(gaps)
    for start in range(5):
        writer.add(10 * start, 10 * start + 5)
    assert gaps.tolist() == [(0, 5), (10, 15), (20, 45)]
    assert collect_gaps(gaps, 5, 20).tolist() == [(10, 15)]
    assert collect_gaps(gaps, 4, 21).tolist() == gaps.tolist()


def held(run: Run, *gaps: tuple[int, int]) -> Run:
    """The same, with gaps that count from the start of the run."""
    return replace(run, gaps=np.array([(START_NS + start, START_NS + end) for start, end in gaps], GAP))


def held_us(sent_us: Sequence[int], done_us: Sequence[int], *gaps_us: tuple[int, int]) -> list[int]:
    """What of each request may be the sender's."""
    sent_ns, done_ns = np.array(sent_us) * US, np.array(done_us) * US
    run = held(run_of(sent_ns, sent_ns, done_ns), *((start * US, end * US) for start, end in gaps_us))
    return [int(span_ns) // US for span_ns in run.held_ns()]


@pytest.mark.parametrize(
    ("sent", "done", "gaps", "own"),
    [
        (1000, 5000, [], 0),
        (1000, 5000, [(2000, 3000)], 0),  # in the middle: nothing was there to be read
        (1000, 5000, [(4400, 5000)], 600),  # read at the end of it
        (1000, 5000, [(4400, 5300)], 600),  # read in it
        (1000, 5000, [(4400, 4950)], 600),  # read in the turn after it
        (1000, 5000, [(4400, 4899)], 0),
        (1000, 5000, [(900, 1400)], 400),  # its send call may have waited
        (1000, 5000, [(1000, 1400)], 400),
        (1000, 5000, [(600, 1000)], 0),
        (1000, 5000, [(900, 1400), (4400, 5000)], 1000),
        (1000, 5000, [(500, 6000)], 4000),  # all of it
        (1000, 5000, [(4000, 4400), (4400, 5000)], 1000),  # it may have come late in the turn before
        (1000, 5000, [(4000, 4300), (4400, 5000)], 600),
    ],
)
def test_what_lies_in_a_gap_may_be_the_senders_own(sent: int, done: int, gaps: list[tuple[int, int]], own: int) -> None:
    assert held_us([sent], [done], *gaps) == [own]


def test_requests_are_told_apart() -> None:
    assert held_us([0, 1000, 2000, 3000], [500, 1500, 2500, 3600], (1200, 1500), (3000, 3400)) == [0, 300, 0, 400]


def test_a_run_without_answers_has_no_held_up_ones() -> None:
    times_ns = np.array([0, 1000])
    codes = np.array([SKIPPED, UNSENT], np.int32)
    assert len(held(run_of(times_ns, times_ns, times_ns, codes), (0, 10)).held_ns()) == 0


OFFSETS_NS = Constant(1000, 5).offsets_ns()
SERVICE_NS = 200 * US


def held_up(share: float, hold_ns: int, open_loop: bool) -> tuple[str, ...]:
    """So many of 5,000 requests were read late by `hold_ns`, in a gap that began when they had come."""
    count = round(share * len(OFFSETS_NS))
    came_ns = OFFSETS_NS + SERVICE_NS
    done_ns = came_ns.copy()
    done_ns[:count] += hold_ns
    run = held(run_of(OFFSETS_NS, OFFSETS_NS, done_ns), *zip(came_ns[:count], done_ns[:count], strict=True))
    return invalid(replace(run, open_loop=open_loop))


@pytest.mark.parametrize("open_loop", [True, False])
@pytest.mark.parametrize(
    ("share", "hold_ns", "percentile"),
    [
        (0.009, 300 * US, None),  # beyond p99, and p99.9 of 5,000 is thin
        (0.011, 300 * US, "p99"),
        (0.06, 300 * US, "p95"),
        (0.6, 300 * US, "p50"),
        (0.6, 0, None),
    ],
)
def test_being_held_up_counts_where_it_moves_a_percentile(
    share: float, hold_ns: int, percentile: str | None, open_loop: bool
) -> None:
    reasons = held_up(share, hold_ns, open_loop)
    assert [f"held up: 300.0 of the {percentile} of 500.0 µs" in reason for reason in reasons] == [True] * bool(
        percentile
    )


def test_a_freeze_of_the_server_is_not_the_senders() -> None:
    """Its answers all come at once, and the gap in which they are read is as long as reading takes."""
    run = on_time(OFFSETS_NS, np.full(len(OFFSETS_NS), SERVICE_NS), (1_000_000_000, 2_000_000_000))
    done_ns = int(run.rows["done_ns"][run.rows["code"] == OK].max()) - START_NS
    assert invalid(held(run, (2_000_000_000, 2_000_400_000), (done_ns + US, done_ns + GAP_NS + 2 * US))) == ()
