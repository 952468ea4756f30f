"""The sender as a process of its own, so that nothing else delays it.

    python -m tickpath.loadtest.worker PLAN.json

It writes rows to a shared file, and a JSON line on stdout when it starts to measure and when it has ended; it ends when
its stdin does. Whoever stops it otherwise, with whatever signal, keeps the rows.
"""

import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from tickpath.client import TickpathError
from tickpath.client.address import parse_address
from tickpath.loadtest.errors import LoadTestError
from tickpath.loadtest.link import open_link
from tickpath.loadtest.plan import Ended, Failed, Message, Plan, Started
from tickpath.loadtest.rows import GapWriter, Rows, RowWriter, open_gaps, open_rows, reached
from tickpath.loadtest.run import OK, Ending
from tickpath.loadtest.sender import Sender, ServerLostError, StoppedError
from tickpath.loadtest.target import AskingDialogue, Target
from tickpath.loadtest.targets import make_target

# Between the moment when all is ready and the first request.
LEAD_NS: Final = 1_000_000
# How long after the last intended time requests still leave: a stall of the sender is made good and shows as lateness;
# a rate it can't reach ends.
OVERRUN_NS: Final = 1_000_000_000
# For one answer in the warm-up: a model that takes longer is not one for this tool.
WARMUP_NS: Final = 5_000_000_000
# How long the sender reads on when all is answered, and never less than the slowest answer took: where answers have no
# ids, a second one to the same request is taken for that to the next, and what is over at the end shows it.
LINGER_NS: Final = 100_000_000

PR_SET_PDEATHSIG: Final = 1
PR_SET_TIMERSLACK: Final = 29


def run(plan: Plan) -> Ended:
    """Connect, warm up, measure. Raises TickpathError and LoadTestError as long as nothing was measured."""
    target = make_target(plan.target, plan.options)
    address = parse_address(plan.options.address)
    links = [
        open_link(n, address, target.dialogue(), plan.in_flight_max, plan.options.tls) for n in range(plan.connections)
    ]
    _check_room(plan, min(link.in_flight_max for link in links))
    rows = open_rows(Path(plan.rows))
    sender = Sender(links, RowWriter(rows), GapWriter(open_gaps(Path(plan.gaps))), sys.stdin.fileno())
    _warm_up(plan, sender, rows, target)
    gc.collect()
    gc.freeze()
    gc.disable()
    return _measure(plan, sender, rows, Started(target.name, target.model, [link.connect_ns for link in links]))


def _check_room(plan: Plan, in_flight_max: int) -> None:
    """A closed loop keeps as many in flight as were asked for, or none. Raises LoadTestError."""
    each = -(-plan.concurrency // plan.connections)
    if each > in_flight_max:
        needed = -(-plan.concurrency // in_flight_max)
        raise LoadTestError(
            f"{plan.concurrency} requests in flight are {each} on a connection, which may have {in_flight_max}: "
            f"take at least --connections {needed}"
        )


def _warm_up(plan: Plan, sender: Sender[AskingDialogue], rows: Rows, target: Target) -> None:
    """One at a time, over all connections. Raises LoadTestError where one is not answered, or none is answered well."""
    address = plan.options.address
    try:
        for index in range(plan.warmup):
            sender.warm(index, time.monotonic_ns() + WARMUP_NS)
            if sender.in_flight:
                raise LoadTestError(f"{address} did not answer a request within {WARMUP_NS / 1e9:.0f} s of the warm-up")
    except ServerLostError as error:
        raise LoadTestError(f"{address} was lost in the warm-up: {error}") from None
    if plan.warmup and not (rows["code"][: plan.warmup] == OK).any():
        raise LoadTestError(f"{address} refused every request of the warm-up: {target.refusal}")


def _measure(plan: Plan, sender: Sender[AskingDialogue], rows: Rows, started: Started) -> Ended:
    say(started)
    times_ns = [] if plan.concurrency else _schedule(plan, rows)
    start_ns = times_ns[0] if times_ns else time.monotonic_ns()
    asked_ns, reason = 0, ""
    ending: Ending = "complete"
    try:
        _ask(plan, sender, len(rows), start_ns, times_ns)
        asked_ns = time.monotonic_ns()
        sender.settle(asked_ns + plan.drain_ns)
        sender.linger(time.monotonic_ns() + min(plan.drain_ns, max(LINGER_NS, _slowest_ns(rows))))
    except ServerLostError as error:
        asked_ns = asked_ns or time.monotonic_ns()
        _hear_out(sender)
        ending, reason = "server lost", str(error)
    except StoppedError:
        ending = "interrupted"
    return Ended(ending, reason, start_ns, asked_ns or time.monotonic_ns(), sender.unasked)


def _ask(plan: Plan, sender: Sender[AskingDialogue], last: int, start_ns: int, times_ns: Sequence[int]) -> None:
    if times_ns:
        sender.open_loop(plan.warmup, times_ns, times_ns[-1] + OVERRUN_NS)
    else:
        sender.closed_loop(plan.warmup, last, plan.concurrency, start_ns + round(plan.seconds * 1e9))


def _schedule(plan: Plan, rows: Rows) -> list[int]:
    """The intended times. The rows hold offsets from the start, which is set when all else is done: whatever was late
    until then moves the whole schedule, so that there is no burst at its start."""
    offsets_ns = np.array(rows["intended_ns"][plan.warmup :])
    lead_ns = LEAD_NS
    while True:
        start_ns = time.monotonic_ns() + lead_ns
        rows["intended_ns"][plan.warmup :] = times_ns = start_ns + offsets_ns
        times: list[int] = times_ns.tolist()
        if time.monotonic_ns() < start_ns:
            return times
        lead_ns *= 2


def _slowest_ns(rows: Rows) -> int:
    """Of all answers."""
    come = rows[: reached(rows)]
    return int((come["done_ns"] - come["sent_ns"]).max(initial=0, where=come["done_ns"] > 0))


def _hear_out(sender: Sender[AskingDialogue]) -> None:
    """A server that dies ends all its connections, and what they had brought until then counts."""
    for _ in range(sender.link_count):
        with suppress(ServerLostError):
            sender.turn(time.monotonic_ns())


def _tune(cpu: int | None) -> None:
    """Pin, make short sleeps short, and end with the parent, however that ends. Raises LoadTestError."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if cpu is None:
        return
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError:
        have = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
        raise LoadTestError(f"the sender can't run on core {cpu}; it may use {have}") from None


def say(message: Message) -> None:
    """Tell the parent."""
    os.write(sys.stdout.fileno(), msgspec.json.encode(message) + b"\n")


def main() -> None:
    """Run the plan that the first argument names."""
    plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)
    try:
        _tune(plan.cpu)
        say(run(plan))
    except (TickpathError, LoadTestError) as error:
        say(Failed(str(error)))


if __name__ == "__main__":
    main()
